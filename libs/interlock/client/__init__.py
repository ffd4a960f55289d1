"""The SDK: clients of the Bootstrap and the Preprocess service, asynchronous and synchronous.

- `BootstrapClient`, `AsyncBootstrapClient`: register ranks, learn the topology, map rooms to DP ranks.
- `Registration`, `AsyncRegistration`: a rank that is kept registered; made by `client.registration(...)`.
- `instance_environment`, `process_incarnation` and what is beside them in `interlock.client.launch`: one launch, handed
  from the launcher to its ranks.
- `PreprocessClient`, `AsyncPreprocessClient`: pictures to bf16 patches. Patches need
  `pip install 'interlock[patches]'`; everything else runs on the bare install.
- `InterlockError` and those below it: what can go wrong; the tree is drawn in `interlock.client.errors`.

All other modules below this one are private, but for those that these names come from.
"""

from interlock.client._internal.pipeline import AsyncPatchStream, PatchStream
from interlock.client._internal.retry import RetryPolicy
from interlock.client.bootstrap import AsyncBootstrapClient, BootstrapClient
from interlock.client.credentials import Credentials
from interlock.client.errors import (
    AccessError,
    CallCancelledError,
    ContractMismatchError,
    CredentialsError,
    DeadlineError,
    ImageFailedError,
    InstanceError,
    InterlockError,
    InvalidRequestError,
    MissingPackageError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    PatchesDamagedError,
    RefusedError,
    RevisionConflictError,
    SharedMemoryError,
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
    RegistrationState,
    RoomRank,
    WatchChange,
    WatchItem,
    WatchProgress,
    WatchSnapshot,
)
from interlock.client.launch import (
    instance_environment,
    instance_from_environment,
    instance_from_text,
    instance_to_text,
    process_incarnation,
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
from interlock.client.registrations import AsyncRegistration, Registration

__all__ = [
    "AccessError",
    "AsyncBootstrapClient",
    "AsyncPatchStream",
    "AsyncPreprocessClient",
    "AsyncRegistration",
    "BootstrapClient",
    "CallCancelledError",
    "Compatibility",
    "ContractDifferences",
    "ContractMismatchError",
    "Credentials",
    "CredentialsError",
    "DeadlineError",
    "Deregistered",
    "DpRanksRegistered",
    "FieldDifference",
    "ForcedEpoch",
    "ImageFailedError",
    "ImageResult",
    "InstanceError",
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
    "Registration",
    "RegistrationState",
    "RetryPolicy",
    "RevisionConflictError",
    "RoomRank",
    "ServedProfiles",
    "SharedMemoryError",
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
    "instance_environment",
    "instance_from_environment",
    "instance_from_text",
    "instance_to_text",
    "process_incarnation",
]
