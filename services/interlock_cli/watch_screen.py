"""The live table of `interlock route watch`: one group on a terminal, drawn again in place as it changes."""

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from interlock_cli.errors import one_line, printable
from interlock_cli.grid import COLOURS, LEGEND, coloured, grid_lines
from interlock_cli.standing import LIVE, MISSING, UNDECLARED, Standing, key_ranges
from interlock_cli.texts import address_text, clock_text, state_word

if TYPE_CHECKING:
    from interlock.client import WatchChange, WatchSnapshot
    from interlock.topology import RankKey

_FRAMES_A_SECOND = 4
_LEAST_GRID_LINES = 3
_TABLE_FRAME_LINES = 4
"""Heading and borders of the table."""
_NAMED_RANGES = 8
"""Runs of ranks that the lines above the grid name; what is cut off the screen anyhow is not worth finding."""
_WIDTH_FOR_INCARNATIONS = 100
_WIDTH_FOR_SINCE = 70


class WatchScreen:
    """Takes what a watch gives, and draws it a few times a second: a burst of changes costs no more than one.

    While entered it has the terminal's alternate screen; when left, the last picture stays on the ordinary one.
    """

    def __init__(self, address: str) -> None:
        self._console = Console()
        self._lock = threading.Lock()  # the picture is drawn by a thread of the terminal's
        self._began = clock_text(time.time())
        self._standing: Standing | None = None
        self._seen: dict[RankKey, str] = {}
        """When each rank came to be as it is now, of those that were seen to; the latest one last."""
        self._connection = Text(f"following {address} since {self._began}", style="dim")
        self._away_since: float | None = None
        self._address = address
        self._drawn: tuple[tuple[int, int], Group] | None = None
        """The last picture, with the terminal's size."""
        self._live = Live(
            console=self._console, screen=True, refresh_per_second=_FRAMES_A_SECOND, get_renderable=self._picture
        )

    def __enter__(self) -> "WatchScreen":
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)
        self._console.print(self._picture())

    def take(self, item: "WatchSnapshot | WatchChange | None") -> None:
        """Shows a group as it is now. None: as it was, and the watch goes on."""
        with self._lock:
            now = time.time()
            if self._away_since is not None:
                self._connection = Text(
                    f"{self._address} is back since {clock_text(now)}, after {now - self._away_since:.0f} s",
                    style="green",
                )
                self._away_since = None
            if item is not None:
                if self._standing is not None:
                    went, came = item.routes.since(self._standing.routes)
                    for key in [*went, *(route.key for route in came)]:
                        self._seen.pop(key, None)
                        self._seen[key] = clock_text(now)
                self._standing = Standing(item)
            self._drawn = None

    def lost(self, error: Exception) -> None:
        """Says that the server is away."""
        with self._lock:
            if self._away_since is None:
                self._away_since = time.time()
            since = clock_text(self._away_since)
            reason = str(error).removeprefix(f"{self._address}: ")
            self._connection = Text(
                one_line(f"{self._address} is away since {since} and looked for; below is what it said last. {reason}"),
                style="bold red",
            )
            self._drawn = None

    def _picture(self) -> RenderableType:
        with self._lock:
            size = (self._console.width, self._console.height)
            if self._drawn is None or self._drawn[0] != size:
                self._drawn = (size, Group(*self._parts(*size)))
            return self._drawn[1]

    def _parts(self, width: int, height: int) -> list[RenderableType]:
        """What fits into a screen: what is most worth knowing first."""
        parts: list[RenderableType] = [self._connection]
        if self._standing is not None:
            parts += _state_lines(self._standing)
        for line in parts:
            assert isinstance(line, Text)
            line.no_wrap, line.overflow = True, "ellipsis"
        if self._standing is None or self._standing.sizes is None:
            return parts
        standing, sizes = self._standing, self._standing.sizes
        left = height - 1 - len(parts)  # the last line stays free, for the cursor
        if (grid_room := left * 2 // 3) >= _LEAST_GRID_LINES:
            grid = [coloured(line) for line in grid_lines(sizes, standing.word, width, grid_room)]
            for line in grid:
                line.no_wrap, line.overflow = True, "crop"
            parts += [Text(LEGEND, style="dim", no_wrap=True, overflow="crop"), *grid]
            left -= len(grid) + 1
        room = left - _TABLE_FRAME_LINES
        if room >= 1:
            keys = self._chosen(standing, sizes.product, room)
            parts.append(self._table(standing, keys, width))
            if more := sizes.product - len(keys):
                parts.append(Text(f"... and {more} more ranks", style="dim"))
        return parts

    def _chosen(self, standing: Standing, count: int, room: int) -> list["RankKey"]:
        """Keys of the ranks that there is room for: all; or those that changed last, then those that are not live."""
        if count <= room:
            return list(standing.rank_keys())
        room -= 1  # for the line that counts the others
        everything = (
            filter(standing.has, reversed(self._seen)),
            standing.undeclared,
            standing.missing(),
            standing.rank_keys(),
        )
        chosen: dict[RankKey, None] = {}
        for keys in everything:
            for key in keys:
                if len(chosen) >= room:
                    break
                chosen[key] = None
        return sorted(chosen)

    def _table(self, standing: Standing, keys: Sequence["RankKey"], width: int) -> Table:
        table = Table(box=box.ROUNDED, header_style="bold")
        for column in ("RANK", "STATE", "ADDRESS"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        if with_incarnations := width >= _WIDTH_FOR_INCARNATIONS:
            table.add_column("INCARNATION", no_wrap=True, justify="right")
        if with_since := width >= _WIDTH_FOR_SINCE:
            table.add_column("SINCE", no_wrap=True)
        for key in keys:
            route, word = standing.routes.get(key), standing.word(key)
            address = "-" if route is None else address_text(route.rank_ip, route.rank_port)
            cells = [Text(str(key)), Text(word, style=COLOURS[word]), Text(printable(address))]
            if with_incarnations:
                cells.append(Text("-" if route is None else str(route.incarnation)))
            if with_since:
                cells.append(Text(self._seen.get(key, f"before {self._began}")))
            table.add_row(*cells)
        return table


def _state_lines(standing: Standing) -> list[Text]:
    state = standing.state
    word = state_word(state)
    colour = COLOURS[{"ready": LIVE, "undeclared": UNDECLARED}.get(word, MISSING)]
    lines = [
        Text.assemble((state.group, "bold"), "  ", (word, f"bold {colour}"), f"  {standing.progress()}"),
        Text(f"epoch {state.epoch}  revision {state.revision}  {printable(str(state.instance or 'no instance yet'))}"),
    ]
    if state.missing_count:
        lines.append(_named(MISSING, key_ranges(standing.missing())))
    if standing.undeclared:
        undeclared = (f"{key} ({', '.join(standing.undeclared_fields(key))})" for key in sorted(standing.undeclared))
        lines.append(_named(UNDECLARED, undeclared))
    return lines


def _named(word: str, ranks: Iterable[str]) -> Text:
    return Text.assemble((f"{word}: ", COLOURS[word]), "; ".join(islice(ranks, _NAMED_RANGES)))
