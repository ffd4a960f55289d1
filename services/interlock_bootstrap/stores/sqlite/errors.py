"""What keeps the store from starting."""


class StoreFileError(Exception):
    """The store's folder or file cannot be used. The message says which, why, and what to do."""
