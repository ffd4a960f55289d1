"""What keeps the store from starting."""

from interlock_bootstrap.stores import CannotOpenStoreError


class StoreFileError(CannotOpenStoreError):
    """The store's folder or file cannot be used. The message says which, why, and what to do."""
