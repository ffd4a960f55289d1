"""Structured logs on stderr: JSON lines for machines, text for a terminal.

Any code logs with the standard library: `logging.getLogger(__name__).info("route registered", extra={"group": group})`.
What is in `extra` becomes a field of its own.
"""

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, TextIO

from interlock.serving.config import Settings, setting

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "json", "text")
_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


@dataclass(frozen=True)
class LogSettings(Settings):
    """What is logged, and how."""

    table: ClassVar[str] = "logs"
    flag_prefix: ClassVar[str] = "log-"

    level: str = setting("info", "Least level that is logged; debug has a line for every call.", choices=_LEVELS)
    format: str = setting("auto", "json: one object a line. auto: text on a terminal, else json.", choices=_FORMATS)


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Sends all logs of the process to one stream, in place of whatever was configured before.

    Args:
        settings: Level and form.
        stream: Where to; stderr if None.
    """
    stream = stream or sys.stderr
    text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    logging.getLogger("numexpr").setLevel(logging.WARNING)  # else its import says how many threads it might use


class JsonFormatter(logging.Formatter):
    """One JSON object a line, ASCII only; a traceback is its field `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            **_fields(record),
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """One line a record, a traceback below. Control characters are escaped: callers choose some of the text."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {record.getMessage()}{fields}"
        line = "".join(character if character.isprintable() else repr(character)[1:-1] for character in line)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _OWN_ATTRIBUTES}


def _time(record: logging.LogRecord) -> str:
    """RFC 3339, UTC, milliseconds."""
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
