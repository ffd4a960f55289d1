"""The README's example runs as it stands, and its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

from interlock.serving import Server, ServerSettings
from interlock.topology import Instance, ParallelSizes, RankKey, Route
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def python_example() -> str:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return example
