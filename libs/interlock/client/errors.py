"""What a call can raise.

    InterlockError
    ├── UnreachableError             no server answered
    ├── DeadlineError                the time given to the call is over
    ├── CallCancelledError           the call was ended from this side, or between
    ├── UnexpectedAnswerError        the server answered what the contract does not allow
    ├── PatchesDamagedError          a patch buffer came incomplete or changed; it is never handed out
    ├── SourceError                  a picture could not be read on this side
    ├── SharedMemoryError            memory had to be shared with the server, and cannot be
    ├── InstanceError                a rank does not know its launch, or what names it cannot be read
    ├── CredentialsError             a token or certificate cannot be used (also a ValueError)
    ├── MissingPackageError          an optional package is needed (also an ImportError)
    └── RefusedError                 the server said no; `reason` says why
        ├── InvalidRequestError      a field is wrong; `field_violations` names each
        ├── RevisionConflictError    compare-and-swap lost; `conflict` has what is needed to decide
        ├── ContractMismatchError    a rank that does not fit its group; `mismatch` has both values of each field
        ├── StaleInstanceError       a newer launch was accepted already; `floor` is that launch
        ├── StaleIncarnationError    a newer life of the rank was accepted already
        ├── NotReadyError            the group is not complete; `state` has the missing keys
        ├── AccessError              the server does not know the caller, or it may not do this
        ├── NotFoundError            no such group, rank or profile
        ├── OverloadedError          a bound of the server is reached
        └── ImageFailedError         one picture could not be turned into patches

A refusal of a reason that this version does not know is a plain `RefusedError`, and so is one that came without the
typed detail that its class promises.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import grpc

from interlock.client._internal.advice import ADVICE
from interlock.client.groups import ContractDifferences
from interlock.reasons import Reason
from interlock.topology import GroupState, Instance, RevisionConflict, StaleIncarnation, StaleInstance

_Detail = TypeVar("_Detail")


class InterlockError(Exception):
    """Anything that went wrong in a call."""

    _advice = ""

    def diagnostics(self) -> str:
        """What happened and what to do about it, in a few lines for a person."""
        return f"{self}\nWhat to do: {self._advice}" if self._advice else str(self)


class UnreachableError(InterlockError):
    """No server answered: refused, unknown host, or the connection was lost. Retries have ended."""

    _advice = "check that the service runs and that address and port are right."


class DeadlineError(InterlockError):
    """The time given to the call is over."""

    _advice = "give the call a longer `timeout`, or look whether the server is overloaded."


class CallCancelledError(InterlockError):
    """The call was ended before its answer came: the client was closed, or something between cancelled it."""


class UnexpectedAnswerError(InterlockError):
    """The server answered what the contract does not allow."""

    _advice = "check that the address is that of the right service, and that both sides have fitting versions."


class PatchesDamagedError(InterlockError):
    """A patch buffer came incomplete, out of order or changed on the way. It is never handed out."""

    _advice = "ask for the picture again; if it happens twice, something between server and client changes bytes."


class SourceError(InterlockError):
    """A picture could not be read on this side; `__cause__` has the reason."""


class SharedMemoryError(InterlockError):
    """Memory had to be shared with the server (`shared_memory=True`), and cannot be."""

    _advice = (
        "set the server's shared_memory_folder, and see that both sides have the same folder; or take "
        '`shared_memory="auto"`, which falls back to chunks.'
    )


class InstanceError(InterlockError):
    """A rank does not know which launch it belongs to, or the text that names it cannot be read."""

    _advice = (
        "mint one instance in the launcher (`interlock instance mint GROUP`) and hand it to all ranks unchanged, in "
        "INTERLOCK_INSTANCE."
    )


class CredentialsError(InterlockError, ValueError):
    """A token or certificate cannot be used; the message names the file and why."""


class MissingPackageError(InterlockError, ImportError):
    """An optional package is needed for this."""


class RefusedError(InterlockError):
    """The server said no."""

    def __init__(
        self,
        reason: str,
        code: grpc.StatusCode,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        field_violations: Sequence[tuple[str, str]] = (),
        details: Sequence[object] = (),
        retry_delay: float | None = None,
    ) -> None:
        super().__init__(f"{reason or code.name}: {message}" if message else reason or code.name)
        self.reason = reason
        """Why, stable: equal to a member of `interlock.reasons.Reason`. Empty: the server gave none."""
        self.code = code
        """The gRPC status."""
        self.message = message
        """For people; may change."""
        self.metadata = dict(metadata or {})
        """What the server added for programs."""
        self.field_violations = tuple(field_violations)
        """Field and fault of each wrong field."""
        self.details = tuple(details)
        """Typed details: values of `interlock.topology`, or `google.protobuf.Any` where the type is unknown."""
        self.retry_delay = retry_delay
        """Seconds after which trying again may help. None: the server gave no such hint."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled by their `args`, which here is the one text: process pools need all of it.
        return _refused, (type(self), self.__dict__.copy(), self.args)

    def diagnostics(self) -> str:
        """What was refused, every fault, and what to do about it, in a few lines for a person."""
        lines = [f"refused: {self.reason or 'no reason given'} ({self.code.name})"]
        if self.message:
            lines.append(self.message)
        lines.extend(f"  {field}: {fault}" for field, fault in self.field_violations)
        lines.extend(f"  {fact}" for fact in self._facts())
        if self.retry_delay is not None:
            lines.append(f"Trying again may help after {self.retry_delay:g} s.")
        advice = ADVICE.get(self.reason)
        if advice is not None:
            lines.append(f"What to do: {advice}")
        return "\n".join(lines)

    def _facts(self) -> Sequence[str]:
        """Lines on the typed detail."""
        return ()

    def _detail(self, kind: type[_Detail]) -> _Detail:
        return next(detail for detail in self.details if isinstance(detail, kind))


def _refused(kind: type[RefusedError], state: dict[str, object], args: tuple[object, ...]) -> RefusedError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidRequestError(RefusedError):
    """A field is wrong; `field_violations` names each."""


class RevisionConflictError(RefusedError):
    """Compare-and-swap lost: the group is at another revision than was expected."""

    @property
    def conflict(self) -> RevisionConflict:
        """The group's revision, epoch and instance, and the route that stands under the offered key."""
        return self._detail(RevisionConflict)

    def _facts(self) -> Sequence[str]:
        conflict = self.conflict
        standing = "none" if conflict.standing_route is None else f"incarnation {conflict.standing_route.incarnation}"
        return [
            f"revision: {conflict.revision}",
            f"epoch: {conflict.epoch}",
            f"instance: {conflict.instance or 'none'}",
            f"route under the offered key: {standing}",
        ]


class ContractMismatchError(RefusedError):
    """The rank does not fit its group."""

    @property
    def mismatch(self) -> ContractDifferences:
        """Every field that differs, with both values and the rank that holds the standing one."""
        return self._detail(ContractDifferences)

    def _facts(self) -> Sequence[str]:
        lines = [
            f"{one.field}: the group has {one.standing_value} (rank {one.held_by}), offered is {one.offered_value}"
            for one in self.mismatch.differences
        ]
        hidden = self.mismatch.total_count - len(lines)
        return [*lines, f"... and {hidden} more"] if hidden > 0 else lines


class StaleInstanceError(RefusedError):
    """A newer launch of the group was accepted already."""

    @property
    def floor(self) -> Instance:
        """The newest instance accepted; a later one would be accepted."""
        return self._detail(StaleInstance).floor

    def _facts(self) -> Sequence[str]:
        return [f"newest instance accepted: {self.floor}"]


class StaleIncarnationError(RefusedError):
    """A newer life of the rank was accepted already, or this one was deregistered."""

    @property
    def stale(self) -> StaleIncarnation:
        """The rank, its newest incarnation, and whether that was deregistered."""
        return self._detail(StaleIncarnation)

    def _facts(self) -> Sequence[str]:
        stale = self.stale
        ended = ", deregistered" if stale.deregistered else ""
        return [f"rank {stale.key}: newest incarnation {stale.newest_incarnation}{ended}"]


class NotReadyError(RefusedError):
    """The group is not complete."""

    @property
    def state(self) -> GroupState:
        """How far the group has come, with the keys that are missing or undeclared."""
        return self._detail(GroupState)

    def _facts(self) -> Sequence[str]:
        state = self.state
        lines = [f"registered: {state.registered} of {state.expected or 'an unknown number of'} routes"]
        for word, keys, count in (
            ("missing", state.missing_keys, state.missing_count),
            ("undeclared", state.undeclared_keys, state.undeclared_count),
        ):
            lines += [f"{word}: {key}" for key in keys]
            if count > len(keys):
                lines.append(f"{word}: ... and {count - len(keys)} more")
        return lines


class AccessError(RefusedError):
    """The server does not know the caller, or the caller may not do this, or not any more."""


class NotFoundError(RefusedError):
    """No such group, rank or profile."""


class OverloadedError(RefusedError):
    """A bound of the server is reached."""


class ImageFailedError(RefusedError):
    """One picture could not be turned into patches; other pictures are not concerned."""


DETAIL_ERRORS: Mapping[str, tuple[type[RefusedError], type]] = {
    Reason.REVISION_CONFLICT: (RevisionConflictError, RevisionConflict),
    Reason.CONTRACT_MISMATCH: (ContractMismatchError, ContractDifferences),
    Reason.STALE_INSTANCE: (StaleInstanceError, StaleInstance),
    Reason.STALE_INCARNATION: (StaleIncarnationError, StaleIncarnation),
    Reason.NOT_READY: (NotReadyError, GroupState),
}
"""Class of each reason whose refusals carry a typed detail, and the type of that detail."""

REASON_ERRORS: Mapping[str, type[RefusedError]] = {
    Reason.INVALID_FIELD: InvalidRequestError,
    Reason.INVALID_PROFILE: InvalidRequestError,
    Reason.UNKNOWN_GROUP: NotFoundError,
    Reason.UNKNOWN_RANK: NotFoundError,
    Reason.UNKNOWN_PROFILE: NotFoundError,
    Reason.UNAUTHENTICATED: AccessError,
    Reason.NOT_PERMITTED: AccessError,
    Reason.OVERLOADED: OverloadedError,
    Reason.TOO_MANY_GROUPS: OverloadedError,
    Reason.TOO_MANY_ROOMS: OverloadedError,
}
"""Class of each other reason that has one. What fails a single picture is always an `ImageFailedError`."""
