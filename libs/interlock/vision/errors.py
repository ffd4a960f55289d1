"""The one exception of `interlock.vision`."""

from interlock.reasons import Reason


class VisionError(ValueError):
    """A picture, profile, plan or buffer was refused.

    Attributes:
        reason: why, stable and machine-readable.
        field: what is at fault, as a path in the words of the protos, for example `profile.patch_size` or `encoded`.
            A service puts its own prefix before it.
    """

    def __init__(self, reason: Reason, field: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.field = field
