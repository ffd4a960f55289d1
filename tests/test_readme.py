"""The README's example runs as it stands, and its commands exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def python_example() -> str:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return example
