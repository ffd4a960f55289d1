"""`python -m interlock_cli` is the `interlock` command."""

from interlock_cli import main

main()
