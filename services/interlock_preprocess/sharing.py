"""Pictures that are the same are made once: taken from the cache, or from work that is under way, or else made anew."""

from functools import partial

from interlock_preprocess.admission import Source
from interlock_preprocess.cache import PatchCache
from interlock_preprocess.counters import Counters
from interlock_preprocess.keys import picture_key
from interlock_preprocess.requests import PictureRequest
from interlock_preprocess.settings import PreprocessSettings
from interlock_preprocess.subscription import Subscription
from interlock_preprocess.turns import Party
from interlock_preprocess.work import Work, WorkPool


class SharedPictures:
    """All pictures that are being made or kept, by key.

    Args:
        settings: how long a picture may wait for a thread, and whether callers share at all.
        pool: does the work.
        counters: where they are counted.
    """

    def __init__(self, settings: PreprocessSettings, pool: WorkPool, counters: Counters) -> None:
        self._per_token = settings.cache_per_token
        self._max_queue_seconds = settings.max_queue_seconds
        self._pool = pool
        self._counters = counters
        self._cache = PatchCache(counters)
        self._under_way: dict[bytes, Work] = {}

    def key(self, request: PictureRequest, source_sha256: bytes, scope: str) -> bytes:
        """The key of a picture that a caller of that scope wants."""
        return picture_key(request, source_sha256, scope if self._per_token else "")

    @property
    def retry_delay(self) -> float:
        """Seconds after which there should be room again, where there is none."""
        return self._pool.turns.retry_delay

    def check_room(self, party: Party) -> None:
        """Refuse one more picture of this party if its wait for a thread would be too long.

        Raises:
            ImageFault: OVERLOADED.
        """
        self._pool.turns.check_room(party)

    def knows(self, key: bytes, scope: str) -> bool:
        """Whether `find` would find it now."""
        work = self._under_way.get(key)
        output = work.output if work is not None else self._cache.get(key)
        return output is not None and scope in output.owners

    def find(self, key: bytes, scope: str, request: PictureRequest, party: Party) -> Subscription | None:
        """The patches of a picture of which the caller has named no more than the hash; None: its bytes are needed.

        Found is only what a caller of the same scope has sent: a hash alone is no proof of having the picture.
        """
        return self._existing(key, request, party) if self.knows(key, scope) else None

    def subscribe(self, key: bytes, scope: str, request: PictureRequest, source: Source, party: Party) -> Subscription:
        """The patches of a picture that arrived whole. Its source now belongs to the work, or is dropped.

        Raises:
            ImageFault: OVERLOADED; the source still belongs to the caller.
        """
        if (subscription := self._existing(key, request, party)) is not None:
            source.drop()
        else:
            self.check_room(party)
            subscription = self._wait_with(self._start(key, request, source), request, party)
        subscription.own(scope)
        return subscription

    def _existing(self, key: bytes, request: PictureRequest, party: Party) -> Subscription | None:
        if (work := self._under_way.get(key)) is not None:
            self._counters.followers += 1
            return self._wait_with(work, request, party)
        if (output := self._cache.get(key)) is not None:
            self._counters.cache_hits += 1
            return Subscription(output, request, from_cache=True)
        return None

    def _start(self, key: bytes, request: PictureRequest, source: Source) -> Work:
        self._counters.cache_misses += 1
        over, keep = partial(self._not_to_be_joined, key), partial(self._cache.keep, key)
        work = self._under_way[key] = self._pool.start(request, source, over=over, keep=keep)
        return work

    def _not_to_be_joined(self, key: bytes, work: Work) -> None:
        if self._under_way.get(key) is work:
            del self._under_way[key]

    def _wait_with(self, work: Work, request: PictureRequest, party: Party) -> Subscription:
        """Join work that is under way; if no thread has it yet, it now waits in the line of this party too."""
        subscription = Subscription(work.output, request, from_cache=False)
        turn = work.turn
        if not turn.over:
            self._pool.turns.line_up(turn, party)
        if not turn.over:

            def end_wait() -> None:
                if not turn.over:
                    waited = f"the picture waited {self._max_queue_seconds:g} s for a thread, as long as one may"
                    subscription.fail(self._pool.turns.overloaded(waited))

            subscription.after(self._max_queue_seconds, end_wait)
        return subscription
