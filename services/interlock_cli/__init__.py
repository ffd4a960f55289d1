"""The `interlock` command: run the services, ask them, and turn pictures into patches from a shell.

`main` is the click group with every command. The bare install has the console script but neither click nor rich;
there `main` only says what to install.
"""

import sys
from importlib.util import find_spec

if find_spec("click") and find_spec("rich"):
    from interlock_cli.program import main as main
else:

    def main() -> None:  # type: ignore[misc]  # stands in where the group cannot exist
        """Says what to install."""
        sys.exit("interlock: the command needs click and rich, which are not installed: pip install 'interlock[all]'")


__all__ = ["main"]
