"""Who may call what: the rules of methods, held against the caller of every call.

A service gives a `Rule` for each of its methods when it is added to a server. Without a credentials file everyone may
do everything. With one, a call has a bearer token or a client certificate that the file knows, or it is refused; and a
call that runs on, such as a watch, ends when its credential is taken away, loses its role or expires.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import grpc

from interlock.reasons import Reason
from interlock.serving.config import Settings, setting
from interlock.serving.credentials import (
    ANYONE,
    Caller,
    CredentialsError,
    Role,
    read_credentials,
    token_sha256,
)
from interlock.serving.refusals import Refusal

_LOGGER = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""Between two looks whether the credentials file has changed."""

_MAX_TOKEN_LENGTH = 512
_BEARER = "bearer "

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class AccessSettings(Settings):
    """Who may call a server."""

    table: ClassVar[str] = "access"

    credentials_file: Path | None = setting(
        None,
        "Tokens and certificate names with what each may do (TOML); docs/security.md explains it. Read again when it "
        "changes. Not set: everyone may do everything.",
    )
    insecure: bool = setting(
        False,
        "Serve on an address that others can reach although no credentials file is set, so that everyone who reaches "
        "it may do everything.",
    )


@dataclass(frozen=True)
class Rule:
    """Who may call a method."""

    roles: frozenset[Role]
    """Any of them will do."""
    groups_of: Callable[[Any], Iterable[str]] | None = None
    """The groups that a request names, which must be among the caller's; None: the method is about no group, or
    answers only what its caller may see."""
    open: bool = False
    """For everyone, also without credentials."""


OPEN = Rule(frozenset(), open=True)
ANY_ROLE = Rule(frozenset(Role))
"""For whoever has credentials."""
ADMINS = Rule(frozenset({Role.ADMIN}))

_CALLER: ContextVar[Caller] = ContextVar("caller", default=ANYONE)


def current_caller() -> Caller:
    """Whom the call that is being served comes from."""
    return _CALLER.get()


class _Evidence(NamedTuple):
    """What a call proved itself with; kept instead of the token."""

    token_sha256: str | None
    names: tuple[str, ...]


@dataclass(eq=False)
class _Running:
    """A call that may have to end before its time."""

    task: asyncio.Task[Any]
    evidence: _Evidence
    rule: Rule
    groups: frozenset[str] = frozenset()
    revoked: Refusal | None = None
    """Why it is not allowed any more."""


class Access:
    """Holds the rules against callers.

    Args:
        settings: where the credentials are.

    Raises:
        CredentialsError: the credentials file cannot be used.
    """

    def __init__(self, settings: AccessSettings) -> None:
        self._file = settings.credentials_file
        self._seen = self._stamp()
        self._credentials = None if self._file is None else read_credentials(self._file)
        self._next_expiry = inf if self._credentials is None else self._credentials.next_expiry(time.time())
        self._rules: dict[str, Rule] = {}
        self._running: set[_Running] = set()

    @property
    def checked(self) -> bool:
        """Whether callers need credentials."""
        return self._credentials is not None

    def add(self, method: str, rule: Rule) -> None:
        """Has a rule for a method, named as in a call: `/package.Service/Method`."""
        self._rules[method] = rule

    # Around a call

    def admit(self, method: str, context: Context) -> "Admission | None":
        """Lets a call in, or does not. None: nothing has to be held against it later.

        Raises:
            Refusal: UNAUTHENTICATED, NOT_PERMITTED.
        """
        if self._credentials is None or (rule := self._rules.get(method, ADMINS)).open:
            return None
        task = asyncio.current_task()
        assert task is not None
        running = _Running(task, _evidence(context), rule)
        _CALLER.set(self._allowed(running))
        self._running.add(running)
        task.add_done_callback(lambda _: self._running.discard(running))
        return Admission(self, running)

    def _allowed(self, running: _Running) -> Caller:
        """The caller, who may call the method.

        Raises:
            Refusal: UNAUTHENTICATED, NOT_PERMITTED.
        """
        caller = self._caller(running.evidence)
        if not caller.roles & running.rule.roles:
            raise Refusal(
                Reason.NOT_PERMITTED,
                f"{caller.id!r} may {', '.join(sorted(caller.roles))}; the method needs "
                f"{' or '.join(sorted(running.rule.roles))}",
            )
        return caller

    def _caller(self, evidence: _Evidence) -> Caller:
        credentials, now = self._credentials, time.time()
        assert credentials is not None
        if evidence.token_sha256 is not None:
            caller, wrong = credentials.of_token(evidence.token_sha256, now), "the token is unknown or has expired"
        else:
            caller, names = credentials.of_names(evidence.names, now), ", ".join(evidence.names)[:200]
            wrong = (
                f"no name of the client's certificate is known here: {names}"
                if names
                else "this server lets in whom it knows: send the header `authorization: Bearer TOKEN`"
            )
        if caller is None:
            raise Refusal(Reason.UNAUTHENTICATED, wrong)
        return caller

    def check_groups(self, running: _Running, groups: Iterable[str]) -> None:
        """
        Raises:
            Refusal: a group is not the caller's.
        """
        caller = self._caller(running.evidence)
        for group in groups:
            if not caller.may_see(group):
                raise Refusal(
                    Reason.NOT_PERMITTED,
                    f"{caller.id!r} has nothing to do with group {group[:64]!r}; its groups are "
                    f"{', '.join(caller.groups)[:200]}",
                )

    # Changes

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Within the block the credentials file is looked at, and calls end that it does not allow any more."""
        if self._file is None:
            yield
            return
        watch = asyncio.create_task(self._watch(), name="credentials")
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._read_again() or time.time() >= self._next_expiry:
                self._end_what_is_not_allowed()

    def _read_again(self) -> bool:
        """Whether the file has changed and could be used. What cannot be used leaves everything as it was."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        assert self._file is not None
        try:
            self._credentials = read_credentials(self._file)
        except CredentialsError as error:
            _LOGGER.error("the credentials changed and cannot be used, the old ones stay: %s", error)
            return False
        _LOGGER.info("credentials were read again", extra={"credentials_file": str(self._file)})
        return True

    def _end_what_is_not_allowed(self) -> None:
        assert self._credentials is not None
        self._next_expiry = self._credentials.next_expiry(time.time())
        for running in self._running:
            try:
                self._allowed(running)
                self.check_groups(running, running.groups)
            except Refusal as refusal:
                running.revoked = refusal
                running.task.cancel()

    def _stamp(self) -> object:
        try:
            stat = os.stat(self._file) if self._file is not None else None
        except OSError:
            return None
        return stat and (stat.st_ino, stat.st_size, stat.st_mtime_ns)


class Admission:
    """A call that was let in by its credentials."""

    def __init__(self, access: Access, running: _Running) -> None:
        self._access = access
        self._running = running

    @property
    def revoked(self) -> Refusal | None:
        """Why the call was cancelled, if it was because it is not allowed any more."""
        return self._running.revoked

    def check(self, request: Any) -> None:
        """Holds the groups of a request against the caller's.

        Raises:
            Refusal: NOT_PERMITTED.
        """
        running = self._running
        if running.rule.groups_of is not None:
            running.groups = frozenset(running.rule.groups_of(request))
            self._access.check_groups(running, running.groups)

    def checked(self, requests: AsyncIterable[Any]) -> AsyncIterable[Any]:
        """The requests of a stream, each held against the caller's groups as it comes."""
        return requests if self._running.rule.groups_of is None else self._each(requests)

    async def _each(self, requests: AsyncIterable[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            self.check(request)
            yield request


def _evidence(context: Context) -> _Evidence:
    """The token that a call brings, or else the names in its client's certificate.

    Raises:
        Refusal: UNAUTHENTICATED, the header is none of a bearer token.
    """
    for key, value in context.invocation_metadata() or ():
        if key != "authorization":
            continue
        text = value if isinstance(value, str) else value.decode(errors="replace")
        token = text[len(_BEARER) :].strip()
        if text[: len(_BEARER)].lower() != _BEARER or not 1 <= len(token) <= _MAX_TOKEN_LENGTH:
            raise Refusal(
                Reason.UNAUTHENTICATED,
                f"the header `authorization` must be `Bearer TOKEN`, with a token of at most {_MAX_TOKEN_LENGTH} "
                "characters",
            )
        return _Evidence(token_sha256(token), ())
    proved = context.auth_context()
    names = (*proved.get("x509_subject_alternative_name", ()), *proved.get("x509_common_name", ()))
    return _Evidence(None, tuple(name.decode(errors="replace") for name in names))
