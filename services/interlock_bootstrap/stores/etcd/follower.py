"""Follows etcd: keeps copies of all groups by one watch, and knows whether they are current.

A watch is resumed after the last event that came; if that was compacted away, all keys are listed anew.

The copies are current as of a moment if they have the last commit that the cluster knew then. The cluster is asked
every second or so by a read that takes a quorum, so never of a member that was cut off. The progress that a watch tells
would not do as a proof: members before 3.4.25 and 3.5.8 tell it ahead of events that wait to be sent (etcd issue
15220), all members tell it without asking others. It is asked for only to see that the watch lives.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import NoReturn

from interlock_bootstrap.commits import Commit, CommitFeed
from interlock_bootstrap.stores import CannotOpenStoreError, StoreUnavailableError, StoreUnreachableError
from interlock_bootstrap.stores.etcd.client import (
    RANGE,
    EtcdClient,
    EtcdError,
    EtcdUnavailableError,
    WatchCompactedError,
    WatchStream,
    full_jitter,
)
from interlock_bootstrap.stores.etcd.copies import CopyBrokenError, GroupCopy, KeyChange
from interlock_bootstrap.stores.etcd.keys import HEADER, ROOMS, Keys, ParsedKey
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc

_PAGE = 1_000
"""Keys that are listed at once."""

_OLD = ", and what this replica knows may be older than the bound that is set"

_LOGGER = logging.getLogger(__name__)


class Follower:
    """Copies of all groups."""

    def __init__(
        self,
        client: EtcdClient,
        keys: Keys,
        settings: EtcdSettings,
        feed: CommitFeed,
        on_rooms: Callable[[ParsedKey, rpc.KeyValue], None],
        on_lapse: Callable[[str], None],
        on_availability: Callable[[bool], None],
    ) -> None:
        """
        Args:
            client: Speaks to etcd.
            keys: The store's keys.
            settings: How long etcd may be silent.
            feed: Is told of each commit, in order.
            on_rooms: Is told of each record of rooms, in order.
            on_lapse: Is told of each group that holds something no commit has settled yet.
            on_availability: Is told when the copies are no longer current, and when they are again.
        """
        self.copies: dict[str, GroupCopy] = {}
        """Of each group with a history."""
        self._client = client
        self._keys = keys
        self._settings = settings
        self._silence = settings.progress_seconds + settings.attempt_timeout_seconds
        """Seconds after which a watch that says nothing is taken for broken; its progress is asked for more often."""
        self._feed = feed
        self._on_rooms = on_rooms
        self._on_lapse = on_lapse
        self._on_availability = on_availability
        self._stream: WatchStream | None = None
        self._resume_after = 0
        """Revision of the last event that came, or of the listing."""
        self._proved_at = float("-inf")
        self._first_proof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._available = True
        self._expiry: asyncio.TimerHandle | None = None
        self._expected: dict[bytes, tuple[str, asyncio.Future[bool]]] = {}
        self._waiting: dict[str, dict[asyncio.Future[None], Callable[[GroupCopy], bool]]] = {}
        self._sought: tuple[int, asyncio.Future[None]] | None = None
        """The revision that the present proof waits for."""
        self._tasks: list[asyncio.Task[NoReturn]] = []

    async def start(self) -> None:
        """Lists all keys and begins to follow them.

        Raises:
            CannotOpenStoreError: etcd refused us.
            StoreUnreachableError: It did not answer within the request timeout.
        """
        endpoints = self._settings.endpoints
        try:
            await self._list()
        except EtcdUnavailableError as error:
            raise _unreachable(endpoints, f" ({error})") from error
        except EtcdError as error:
            raise CannotOpenStoreError(
                f"etcd at {endpoints} refuses this server ({error}): check --etcd-user, --etcd-password-file and what "
                "that user may do under --etcd-prefix"
            ) from error
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._prove())]
        try:
            await self._patiently(self._first_proof)
        except StoreUnavailableError as error:
            raise _unreachable(endpoints, "") from error

    async def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def current(self) -> bool:
        """The copies are not older than the staleness bound."""
        return _clock() - self._proved_at < self._settings.staleness_bound_seconds

    def copy(self, group: str) -> GroupCopy:
        """The group as it was not longer ago than the staleness bound; an empty one if it has no history.

        Raises:
            StoreUnavailableError: That is not known.
        """
        self.check_current()
        return self.copies.get(group) or GroupCopy(group)

    def check_current(self) -> None:
        """
        Raises:
            StoreUnavailableError: The copies may be older than the staleness bound.
        """
        if not self.current:
            raise self._unavailable(_OLD)

    async def until(self, group: str, condition: Callable[[GroupCopy], bool]) -> None:
        """Waits until a group's copy meets a condition.

        Raises:
            StoreUnavailableError: It did not within the request timeout.
        """
        if condition(self.copies.get(group) or GroupCopy(group)):
            return
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, {})[met] = condition
        try:
            await self._patiently(met)
        finally:
            waiting = self._waiting[group]
            del waiting[met]
            if not waiting:
                del self._waiting[group]

    def expect(self, group: str, commit_id: bytes) -> asyncio.Future[bool]:
        """Is done once the watch shows a commit; with False when the watch missed what it would have shown."""
        expected: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._expected[commit_id] = group, expected
        expected.add_done_callback(lambda _: self._expected.pop(commit_id, None))
        return expected

    # Listing

    async def _list(self) -> None:
        """Makes the copies anew from all keys, as of one revision."""
        found: dict[str, list[KeyChange]] = {}
        first, end = self._keys.everything
        revision = 0
        while True:
            request = rpc.RangeRequest(key=first, range_end=end, limit=_PAGE, revision=revision)
            page = await self._client.call(RANGE, request)
            revision = revision or page.header.revision
            for kv in page.kvs:
                if (parsed := self._keys.parse(kv.key)) is not None:
                    found.setdefault(parsed.group, []).append((parsed, kv, False))
            if not page.more:
                break
            first = page.kvs[-1].key + b"\0"
        after = self._resume_after
        listed = {group: changes for group, changes in found.items() if any(c[0].kind == HEADER for c in changes)}
        for group in self.copies.keys() - listed.keys():
            self._replace(GroupCopy(group))
            del self.copies[group]
        for group, changes in listed.items():
            copy = GroupCopy(group)
            copy.apply(changes)
            self._replace(copy)
        rooms = [(parsed, kv) for changes in found.values() for parsed, kv, _ in changes if parsed.kind == ROOMS]
        for parsed, kv in sorted(rooms, key=lambda each: (each[1].mod_revision, each[1].key)):
            if kv.mod_revision > after:
                self._on_rooms(parsed, kv)
        self._advance(revision)

    def _replace(self, copy: GroupCopy) -> None:
        """Takes a group as it was listed; commits in between are not known."""
        group = copy.topology.group
        before = self.copies.get(group) or GroupCopy(group)
        self.copies[group] = copy
        if copy.header_mod != before.header_mod:
            for commit_id, (expecting, expected) in self._expected.items():
                if expecting == group and not expected.done():
                    expected.set_result(commit_id == copy.commit_id)
        if copy.topology != before.topology:
            self._feed.replace(copy.topology)
        self._settle(copy)

    # Watching

    async def _follow(self) -> NoReturn:
        attempts = 0
        list_first = False
        while True:
            begun_at = time.monotonic()
            try:
                if list_first:
                    await self._list()
                    list_first = False
                await self._read(await self._client.watch(*self._keys.everything, self._resume_after + 1))
            except (WatchCompactedError, CopyBrokenError) as error:
                _LOGGER.warning("listing all groups anew: %s", error)
                list_first = True
            except EtcdError as error:
                _LOGGER.log(logging.DEBUG if attempts else logging.WARNING, "etcd is not followed: %s", error)
            except Exception:
                _LOGGER.exception("what etcd keeps cannot be understood; listing all groups anew")
                list_first = True
            if time.monotonic() - begun_at > self._silence:
                attempts = 0
            await asyncio.sleep(full_jitter(attempts))
            attempts += 1

    async def _read(self, stream: WatchStream) -> NoReturn:
        self._stream = stream
        try:
            while True:
                response = await stream.read(self._silence)
                for _, events in groupby(response.events, key=lambda event: event.kv.mod_revision):
                    self._take_in(events)
        except EtcdUnavailableError:
            self._client.turn_from(stream.member)
            raise
        finally:
            self._stream = None
            stream.cancel()

    def _take_in(self, events: Iterable[rpc.Event]) -> None:
        """Takes in all that one revision of etcd changed."""
        by_group: dict[str, list[KeyChange]] = {}
        revision = 0
        for event in events:
            revision = event.kv.mod_revision
            parsed = self._keys.parse(event.kv.key)
            gone = event.type == rpc.Event.EVENT_TYPE_DELETE
            if parsed is None:
                continue
            if parsed.kind != ROOMS:
                by_group.setdefault(parsed.group, []).append((parsed, event.kv, gone))
            elif not gone:
                self._on_rooms(parsed, event.kv)
        for group, changes in by_group.items():
            copy = self.copies.get(group) or GroupCopy(group)
            before = copy.topology
            if copy.apply(changes):
                self.copies[group] = copy
                if copy.topology.revision != before.revision:
                    self._feed.publish(Commit(before, copy.topology))
                if (expected := self._expected.get(copy.commit_id)) is not None and not expected[1].done():
                    expected[1].set_result(True)
            self._settle(copy)
        self._advance(revision)

    def _settle(self, copy: GroupCopy) -> None:
        """Sees to who waits for a group."""
        group = copy.topology.group
        for met, condition in self._waiting.get(group, {}).items():
            if not met.done() and condition(copy):
                met.set_result(None)
        if copy.lapsed or copy.miscounted:
            self._on_lapse(group)

    def _advance(self, revision: int) -> None:
        """Everything up to a revision has been taken in."""
        self._resume_after = revision
        if self._sought is not None and self._sought[0] <= revision:
            _, seen = self._sought
            self._sought = None
            if not seen.done():
                seen.set_result(None)

    # Being current

    async def _prove(self) -> NoReturn:
        attempts = 0
        while True:
            try:
                async with asyncio.timeout(self._settings.attempt_timeout_seconds):
                    self._proved_at = await self._prove_once()
            except (EtcdError, StoreUnavailableError, TimeoutError) as error:
                _LOGGER.debug("cannot prove that the copies are current: %s", error)
                pause = full_jitter(attempts)
                attempts += 1
            except Exception:
                _LOGGER.exception("cannot prove that the copies are current")
                pause = full_jitter(attempts)
                attempts += 1
            else:
                if not self._first_proof.done():
                    self._first_proof.set_result(None)
                self._tell_availability()
                pause = self._settings.progress_seconds
                attempts = 0
            await asyncio.sleep(pause)

    async def _prove_once(self) -> float:
        """The time as of which the copies are current."""
        asked_at = _clock()
        stream = self._stream
        if stream is None:
            raise EtcdUnavailableError("there is no watch")
        await stream.request_progress()
        answer = await self._client.attempt(RANGE, rpc.RangeRequest(key=self._keys.last_commit, keys_only=True))
        if answer.kvs and answer.kvs[0].mod_revision > self._resume_after:
            seen = asyncio.get_running_loop().create_future()
            self._sought = answer.kvs[0].mod_revision, seen
            await seen
        return asked_at

    def _tell_availability(self) -> None:
        """Tells whether the copies are current, if that is news; looks again when the last proof is too old."""
        if self._expiry is not None:
            self._expiry.cancel()
        left = self._proved_at + self._settings.staleness_bound_seconds - _clock()
        if left > 0:
            self._expiry = asyncio.get_running_loop().call_later(left, self._tell_availability)
        if self._available != (left > 0):
            self._available = left > 0
            if self._available:
                _LOGGER.info("etcd answers again; serving")
            else:
                _LOGGER.error("%s", self._unavailable(_OLD))
                self._feed.interrupt(partial(self._unavailable, _OLD))  # they would see nothing, and not know it
            self._on_availability(self._available)

    def _unavailable(self, more: str) -> StoreUnavailableError:
        return StoreUnavailableError(f"etcd at {self._settings.endpoints} does not answer{more}")

    async def _patiently(self, met: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(self._settings.request_timeout_seconds):
                await met
        except TimeoutError:
            raise self._unavailable("") from None


def _unreachable(endpoints: str, why: str) -> StoreUnreachableError:
    return StoreUnreachableError(
        f"etcd at {endpoints} does not answer{why}: start it, or name its members by --etcd-endpoints"
    )


def _clock() -> float:
    """Seconds, those included in which this machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
