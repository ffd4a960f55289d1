"""The kernel benchmark: the goals are those of the issue, and every size is a legal plan."""

import pytest

from benchmarks import kernel
from interlock.vision import check_plan


def rows(simd: list[float], numexpr: list[float]) -> list[dict[str, object]]:
    sizes = [*kernel.RESIZED, *kernel.UNRESIZED]
    return [
        {"resized": "no" if size == resized else "yes", "simd / peer": ours, "numexpr / peer": theirs}
        for (size, resized), ours, theirs in zip(sizes, simd, numexpr, strict=True)
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_goals_are_means_over_the_six_resizes_and_the_two_that_keep_their_size(threads):
    measured = rows([0.01, 0.1, 0.01, 0.1, 0.01, 0.1, 0.09, 0.16], [0.5, 2.0] * 3 + [9.0, 9.0])
    goals = {goal.name: (goal.value, goal.limit, goal.met) for goal in kernel.goals_of(measured, threads)}
    assert goals == {
        f"simd_{threads}t_geomean": (pytest.approx(0.1**1.5), 0.08, True),
        f"simd_{threads}t_worst": (0.1, 0.12, True),
        f"simd_{threads}t_patchify": (pytest.approx(0.12), 0.25, True),
        f"numexpr_{threads}t_geomean": (pytest.approx(1.0), 1.0, True),
    }


@pytest.mark.parametrize(("size", "resized"), [*kernel.RESIZED, *kernel.UNRESIZED])
def test_every_size_is_a_legal_plan(size, resized):
    check_plan(kernel.whole_canvas(*resized), *size, kernel.PROFILE)
