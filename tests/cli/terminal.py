"""A terminal for the command: a pseudo-terminal whose screen can be read."""

import codecs
import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
from pathlib import Path

from cli.running import COMMAND, PATIENCE, environment

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][0-9A-Za-z]|[=>])")
_HOME = "\x1b[H"
_LEAVE_ALTERNATE_SCREEN = "\x1b[?1049l"


class Terminal:
    """Runs the command on a terminal of its own; to be used in a `with` block, after which it runs no more."""

    def __init__(self, folder: Path, *args: object, columns: int = 120, lines: int = 30, term: str = "xterm") -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        theirs_alone = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
        variables = {name: value for name, value in environment(folder).items() if name not in theirs_alone}
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, args)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**variables, "TERM": term},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
        )
        os.close(theirs)
        self._written = ""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")().decode
        try:
            while part := os.read(self._ours, 65_536):
                with self._news:
                    self._written += decode(part)
                    self._news.notify_all()
        except OSError:  # how Linux tells that the other side was closed
            pass

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        os.close(self._ours)

    def wait_for(self, *texts: str) -> str:
        """Waits until the picture has all these texts, and gives it."""
        with self._news:
            assert self._news.wait_for(lambda: all(text in self.picture() for text in texts), PATIENCE), self.picture()
            return self.picture()

    def picture(self) -> str:
        """What was drawn last."""
        return _plain(self._written.rpartition(_HOME)[2])

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def end(self) -> tuple[int, list[str]]:
        """Waits until the command has ended. Its exit code, and the lines that it left on the ordinary screen."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code, _plain(self._written.rpartition(_LEAVE_ALTERNATE_SCREEN)[2]).splitlines()


def _plain(text: str) -> str:
    return _ESCAPES.sub("", text).replace("\r", "")
