"""The SDK: clients of the Bootstrap and the Preprocess service, asynchronous and synchronous.

- `BootstrapClient`, `AsyncBootstrapClient`: register ranks, learn the topology, map rooms to DP ranks.
- `PreprocessClient`, `AsyncPreprocessClient`: pictures to bf16 patches. Patches need
  `pip install 'interlock[patches]'`; everything else runs on the bare install.
- `InterlockError` and those below it: what can go wrong; the tree is drawn in `interlock.client.errors`.

All other modules below this one are private, but for those that these names come from.
"""

from interlock.client._internal.pipeline import AsyncPatchStream, PatchStream
from interlock.client._internal.retry import RetryPolicy
from interlock.client.bootstrap import AsyncBootstrapClient, BootstrapClient
from interlock.client.errors import (
    CallCancelledError,
    ContractMismatchError,
    DeadlineError,
    ImageFailedError,
    InterlockError,
    InvalidRequestError,
    MissingPackageError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    PatchesDamagedError,
    RefusedError,
    RevisionConflictError,
    SourceError,
    StaleIncarnationError,
    StaleInstanceError,
    UnexpectedAnswerError,
    UnreachableError,
)
from interlock.client.groups import (
    Compatibility,
    ContractDifferences,
    Deregistered,
    DpRanksRegistered,
    FieldDifference,
    ForcedEpoch,
    RankInfo,
    ReadyGroup,
    Registered,
    RoomRank,
    WatchChange,
    WatchItem,
    WatchProgress,
    WatchSnapshot,
)
from interlock.client.pictures import (
    ImageResult,
    Patches,
    Picture,
    PlannedImage,
    RawRgb,
    ServedProfiles,
    Source,
    Timings,
)
from interlock.client.preprocess import AsyncPreprocessClient, PreprocessClient

__all__ = [
    "AsyncBootstrapClient",
    "AsyncPatchStream",
    "AsyncPreprocessClient",
    "BootstrapClient",
    "CallCancelledError",
    "Compatibility",
    "ContractDifferences",
    "ContractMismatchError",
    "DeadlineError",
    "Deregistered",
    "DpRanksRegistered",
    "FieldDifference",
    "ForcedEpoch",
    "ImageFailedError",
    "ImageResult",
    "InterlockError",
    "InvalidRequestError",
    "MissingPackageError",
    "NotFoundError",
    "NotReadyError",
    "OverloadedError",
    "PatchStream",
    "Patches",
    "PatchesDamagedError",
    "Picture",
    "PlannedImage",
    "PreprocessClient",
    "RankInfo",
    "RawRgb",
    "ReadyGroup",
    "RefusedError",
    "Registered",
    "RetryPolicy",
    "RevisionConflictError",
    "RoomRank",
    "ServedProfiles",
    "Source",
    "SourceError",
    "StaleIncarnationError",
    "StaleInstanceError",
    "Timings",
    "UnexpectedAnswerError",
    "UnreachableError",
    "WatchChange",
    "WatchItem",
    "WatchProgress",
    "WatchSnapshot",
]
