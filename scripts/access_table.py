"""Writes the table of who may call what into docs/security.md, from the rules of the code.

python scripts/access_table.py            # prints the table
python scripts/access_table.py --write    # puts it into the page
"""

import sys
from pathlib import Path

from interlock.serving.access import ANY_ROLE, Rule
from interlock.serving.credentials import Role
from interlock_bootstrap.access import RULES as BOOTSTRAP
from interlock_preprocess.access import RULES as PREPROCESS

PAGE = Path(__file__).parent.parent / "docs" / "security.md"
BEGIN, END = "<!-- from scripts/access_table.py -->\n", "<!-- end -->\n"


def table() -> str:
    """Methods by roles, as Markdown."""
    lines = [f"| method | {' | '.join(Role)} | groups |", "|---" * (len(Role) + 2) + "|"]
    for service, rules in (("Bootstrap", BOOTSTRAP), ("Preprocess", PREPROCESS)):
        lines += [_line(f"{service}.{method}", rule) for method, rule in rules.items()]
    lines.append(_line("ServerReflection", ANY_ROLE))
    lines.append(f"| Health | {' | '.join(['yes'] * len(Role))} | without credentials too |")
    return "\n".join(lines) + "\n"


def _line(method: str, rule: Rule) -> str:
    if method == "Bootstrap.ListGroups":
        groups = "shows only the caller's"
    else:
        groups = "" if rule.groups_of is None else "only the caller's"
    return f"| {method} | {' | '.join('yes' if role in rule.roles else '' for role in Role)} | {groups} |"


def with_table(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_table(PAGE.read_text()))
    else:
        print(table(), end="")
