"""Who may do what: the credentials file, and the caller that a token or a client certificate stands for.

[[token]]
id = "team-a"                       # in logs, never the token itself
sha256 = "9f86d0..."                # of the token, in hex; `interlock token new` makes both
roles = ["register"]
groups = ["team-a-*"]               # absent: every group
expires = 2027-01-01T00:00:00Z      # absent: never

[[identity]]                        # a client certificate, where the server asks for one (mTLS)
name = "spiffe://cluster/ns/prefill/sa/engine"     # a subject alternative name or the common name, whole
roles = ["read", "register"]
"""

import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any

_MAX_FILE_BYTES = 4 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[!-~][ -~]{0,511}")
_GROUP_PATTERN = re.compile(r"[a-z0-9*?-]{1,63}")


class CredentialsError(Exception):
    """The credentials file cannot be used; the message says where and why."""


class Role(StrEnum):
    """What a credential is good for."""

    READ = "read"
    """See groups, ranks and rooms, and watch them."""
    REGISTER = "register"
    """Also register and deregister routes, renew leases, register rooms."""
    ADMIN = "admin"
    """Everything."""
    PREPROCESS = "preprocess"
    """Have pictures made into patches."""


@dataclass(frozen=True)
class Caller:
    """Whom a call comes from.

    Args:
        id: the credential's id, for logs; empty: nobody in particular, where the server knows no credentials.
        roles: what it may do.
        groups: patterns of the groups that it may do it with; empty: all.
        expires: when it ends, in Unix seconds; None: never.
    """

    id: str
    roles: frozenset[Role]
    groups: tuple[str, ...] = ()
    expires: float | None = None

    def may_see(self, group: str) -> bool:
        """Whether a group is one of its groups."""
        return not self.groups or any(fnmatchcase(group, pattern) for pattern in self.groups)


ANYONE = Caller("", frozenset(Role))
"""The caller where a server knows no credentials: everyone may do everything."""


class Credentials:
    """What a credentials file says.

    Args:
        tokens: callers by the SHA-256 of their token, in hex.
        identities: callers by a name in their certificate.
    """

    def __init__(self, tokens: Mapping[str, Caller], identities: Mapping[str, Caller]) -> None:
        # Tokens are looked up by a keyed hash: how long a lookup takes tells nothing to somebody who does not have the
        # key, which is as good as comparing in constant time with each of them.
        self._key = secrets.token_bytes(32)
        self._tokens = {self._keyed(sha256): caller for sha256, caller in tokens.items()}
        self._identities = dict(identities)

    def _keyed(self, sha256: str) -> bytes:
        return hmac.digest(self._key, sha256.encode(), "sha256")

    def of_token(self, sha256: str, now: float) -> Caller | None:
        """The caller that has a token, given by its SHA-256; None: there is no such token, or it has expired.

        Args:
            sha256: as `token_sha256` gives it.
            now: Unix seconds.
        """
        return _unless_expired(self._tokens.get(self._keyed(sha256)), now)

    def next_expiry(self, now: float) -> float:
        """When the next of them expires, in Unix seconds; infinity: none does."""
        callers = (*self._tokens.values(), *self._identities.values())
        return min(
            (caller.expires for caller in callers if caller.expires is not None and caller.expires > now), default=inf
        )

    def of_names(self, names: Iterable[str], now: float) -> Caller | None:
        """The caller whose certificate has one of these names, the first that is known and has not expired."""
        callers = (_unless_expired(self._identities.get(name), now) for name in names)
        return next((caller for caller in callers if caller is not None), None)


def token_sha256(token: str) -> str:
    """What the file holds of a token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def read_credentials(file: Path) -> Credentials:
    """
    Raises:
        CredentialsError: the file cannot be read, is no TOML, or something in it is wrong: what, and where.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CredentialsError(f"{file}: {error.strerror}") from None
    if len(text) > _MAX_FILE_BYTES:
        raise CredentialsError(f"{file}: over {_MAX_FILE_BYTES} bytes")
    try:
        tables = tomllib.loads(text.decode())
    except ValueError as error:
        raise CredentialsError(f"{file}: no valid TOML: {error}") from None
    try:
        _only_known(tables, {"token", "identity"}, "the file")
        tokens = _by(_SHA256, "sha256", "64 hexadecimal digits, from `interlock token new`", tables, "token")
        identities = _by(_NAME, "name", "a name of 1 to 512 characters", tables, "identity")
    except CredentialsError as error:
        raise CredentialsError(f"{file}: {error}") from None
    return Credentials(tokens, identities)


def _by(pattern: re.Pattern[str], key: str, expected: str, tables: Mapping[str, Any], kind: str) -> dict[str, Caller]:
    """The callers of the tables of one kind, by what they are found by."""
    entries = tables.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CredentialsError(f"write each {kind} under a line [[{kind}]]")
    callers: dict[str, Caller] = {}
    for number, entry in enumerate(entries, 1):
        where = f"[[{kind}]] number {number}"
        found_by = entry.get(key)
        if not isinstance(found_by, str) or not pattern.fullmatch(found_by):
            raise CredentialsError(f"{where}: {key} must be {expected}; got {found_by!r}")
        if found_by in callers:
            raise CredentialsError(f"{where}: the same {key} as an earlier one")
        callers[found_by] = _caller(entry, key, where, default_id=found_by if kind == "identity" else None)
    return callers


def _caller(entry: Mapping[str, Any], key: str, where: str, default_id: str | None) -> Caller:
    _only_known(entry, {key, "id", "roles", "groups", "expires"}, where)
    name = entry.get("id", default_id)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise CredentialsError(f"{where}: id must be a name of 1 to 512 printable characters; got {name!r}")
    roles, groups, expires = entry.get("roles"), entry.get("groups"), entry.get("expires")
    if not isinstance(roles, list) or not roles or not set(map(str, roles)) <= {*Role}:
        raise CredentialsError(f"{where}: roles must be some of {', '.join(Role)}; got {roles!r}")
    if groups is not None and not (
        isinstance(groups, list)
        and groups
        and all(isinstance(group, str) and _GROUP_PATTERN.fullmatch(group) for group in groups)
    ):
        raise CredentialsError(
            f"{where}: groups must be names of groups, in which * and ? stand for others; got {groups!r}"
        )
    if expires is not None and not (isinstance(expires, datetime) and expires.tzinfo is not None):
        raise CredentialsError(f"{where}: expires must be a time with its zone, such as 2027-01-01T00:00:00Z")
    return Caller(
        name, frozenset(map(Role, roles)), tuple(groups or ()), None if expires is None else expires.timestamp()
    )


def _only_known(table: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := table.keys() - known:
        raise CredentialsError(f"{where}: unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")


def _unless_expired(caller: Caller | None, now: float) -> Caller | None:
    expired = caller is not None and caller.expires is not None and caller.expires <= now
    return None if expired else caller
