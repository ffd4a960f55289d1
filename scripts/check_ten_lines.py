"""What docs/clients.md shows, the same few lines in six languages: put into the page, built, and run on a live server.

    python -m scripts.check_ten_lines                  # build and run all
    python -m scripts.check_ten_lines --only go,rust   # or some
    python -m scripts.check_ten_lines --write          # put the lines into the page

The programs lie beside the clients of their languages and are built with them.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interlock_cli.demo.clients.programs import PROGRAMS, BuildError, build
from scripts.check_wheels import server
from scripts.versions import ROOT

CLIENTS = ROOT / "examples" / "clients"
PAGE = ROOT / "docs" / "clients.md"
EXPECTED = re.compile(r"ready at revision \d+: 64 tokens a page")


@dataclass(frozen=True)
class TenLines:
    """One program: its file, and what runs it, both in the folder of its language."""

    source: str
    run: Sequence[str]


TEN_LINES = {
    "python": TenLines("ten_lines.py", [sys.executable, "ten_lines.py"]),
    "go": TenLines("tenlines/main.go", ["go", "run", "./tenlines"]),
    "rust": TenLines("examples/ten_lines.rs", ["cargo", "run", "--quiet", "--release", "--example", "ten_lines", "--"]),
    "node": TenLines("src/ten-lines.ts", ["node", "dist/ten-lines.js"]),
    "java": TenLines(
        "src/main/java/dev/interlock/example/TenLines.java",
        ["java", "-classpath", "target/interlock-client.jar", "dev.interlock.example.TenLines"],
    ),
    "cpp": TenLines("ten_lines.cpp", ["build/ten_lines"]),
}
"""By language, in the order of the page."""


def shown_lines(language: str) -> str:
    """The lines of a program that the page shows."""
    text = (CLIENTS / language / TEN_LINES[language].source).read_text()
    (lines,) = re.findall(
        r"^[ \t]*(?://|#) ten lines\n(.*?)^[ \t]*(?://|#) that is all$", text, re.DOTALL | re.MULTILINE
    )
    return textwrap.dedent(lines).expandtabs(4)


def page() -> str:
    """The page with the lines of today's programs."""
    text = PAGE.read_text()
    for language, program in TEN_LINES.items():
        link = f"examples/clients/{language}/{program.source}"
        text, count = re.subn(
            rf"(\]\(\.\./{re.escape(link)}\).*?```\w+\n).*?(```)",
            lambda found, language=language: found[1] + shown_lines(language) + found[2],
            text,
            count=1,
            flags=re.DOTALL,
        )
        if not count:
            raise ValueError(f"{PAGE.name} does not show {link}")
    return text


def check(language: str, address: str, log: Path) -> str:
    """Builds one program and runs it; gives the line that it prints."""
    folder = CLIENTS / language
    for program in (one for one in PROGRAMS if one.language == language):
        build(program, folder, log)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "libs")}
    command = [*TEN_LINES[language].run, address]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if run.returncode or not EXPECTED.fullmatch(run.stdout.strip()):
        sys.exit(f"{language}: {' '.join(command)} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return run.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.check_ten_lines")
    parser.add_argument("--only", default=",".join(TEN_LINES), help="languages, with commas between")
    parser.add_argument("--write", action="store_true", help="put the lines into the page, and run nothing")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(page())
        return
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as address:
        for language in options.only.split(","):
            log = Path(name, f"{language}.log")
            try:
                print(f"{language}: {check(language, address, log)}", flush=True)
            except BuildError as error:
                sys.exit(f"{language}: {error}\n{log.read_text() if log.exists() else ''}")


if __name__ == "__main__":
    main()
