"""What can be set of the SQLite store."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from interlock.serving.config import Settings, setting


@dataclass(frozen=True)
class SqliteSettings(Settings):
    """Where the SQLite store keeps its file."""

    table: ClassVar[str] = "sqlite"

    state_folder: Path | None = setting(
        None,
        "Folder of the SQLite store, made if missing; one server at a time. Not set: $STATE_DIRECTORY, else "
        "$XDG_STATE_HOME/interlock, else ~/.local/state/interlock.",
    )
