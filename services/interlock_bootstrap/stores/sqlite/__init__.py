"""The SQLite backend.

- `state_folder`: where the file is, and the lock that gives it to one process. `database`: the file itself.
- `rows`: between topologies and rows. `writer`: the thread that commits. `store`: the `Store` over all of it.
"""

from interlock_bootstrap.stores.sqlite.errors import StoreFileError
from interlock_bootstrap.stores.sqlite.settings import SqliteSettings
from interlock_bootstrap.stores.sqlite.state_folder import default_state_folder
from interlock_bootstrap.stores.sqlite.store import SqliteStore

__all__ = ["SqliteSettings", "SqliteStore", "StoreFileError", "default_state_folder"]
