"""Rounds of histories: several groups at once on one cluster, while things go wrong."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from faults.clusters import Cluster
from faults.nemesis import go_wrong
from faults.workload import GroupRun, Mix

_NUMBERS = count(1)


@dataclass
class Tally:
    """What was done so far."""

    seeds: list[int] = field(default_factory=list)
    """Of the rounds."""
    histories: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    """How often each went wrong, names of servers left out."""

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        faults = ", ".join(f"{count} x {what}" for what, count in sorted(self.faults.items()))
        return (
            f"{self.histories} histories in {len(self.seeds)} rounds (seeds {self.seeds}): {counts}; faults: {faults}"
        )


GoingWrong = Callable[[Sequence[GroupRun]], Awaitable[list[str]]]
"""Makes things go wrong while groups run, heals them, and says what it was."""


async def run_round(
    cluster: Cluster, seed: int, tally: Tally, folder: Path, *, groups: int = 5, faults: int = 4
) -> None:
    """One round: so many groups, so many faults as the seed decides.

    Raises:
        AssertionError: a history is not as it must be; see `run_groups`.
    """
    await run_groups(cluster, seed, tally, folder, groups, lambda runs: go_wrong(cluster, seed, faults))
    tally.seeds.append(seed)


async def run_groups(
    cluster: Cluster, seed: int, tally: Tally, folder: Path, groups: int, go_wrong: GoingWrong
) -> None:
    """Lets clients of several groups work while something goes wrong, and checks every history.

    Raises:
        AssertionError: with the seed, what went wrong meanwhile, and where the history was written down.
    """
    runs = [
        GroupRun(f"s{seed}-{number}-{next(_NUMBERS)}", seed * 100 + number, cluster.stubs, Mix())
        for number in range(groups)
    ]
    nemesis = asyncio.ensure_future(go_wrong(runs))
    try:
        await asyncio.gather(*(run.run(asyncio.shield(nemesis)) for run in runs))
    finally:
        nemesis.cancel()
        await asyncio.wait([nemesis])
    happened = nemesis.result()
    tally.faults.update(" ".join(word for word in what.split() if not word[-1].isdigit()) for what in happened)
    for run in runs:
        try:
            states = run.check(ambiguous_commits=bool(cluster.members))
        except AssertionError as error:
            path = folder / f"{run.history.group}.jsonl"
            run.history.dump(path)
            raise AssertionError(f"seed {seed}, faults {happened}, history in {path}:\n{error}") from None
        tally.histories += 1
        tally.counts.update(
            operations=len(run.history.operations),
            unknown=run.history.unknown,
            observations=len(run.history.observations),
            renewals=len(run.history.renewals),
            changes=sum(record.changes for record in run.records),
            snapshots=sum(record.snapshots for record in run.records),
            states=states,
        )
