"""The life of a picture, where a caller cannot time it."""

import pytest
from prometheus_client import CollectorRegistry

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock_preprocess.admission import Budget, Source
from interlock_preprocess.counters import Counters
from interlock_preprocess.metrics import PreprocessMetrics
from interlock_preprocess.requests import read_image
from interlock_preprocess.settings import PreprocessSettings
from interlock_preprocess.turns import Party
from interlock_preprocess.work import WorkPool
from preprocess.callers import picture_file, until


@pytest.mark.parametrize("in_line", [False, True])
async def test_work_that_nobody_wants_before_it_begins_keeps_no_thread(in_line):
    counters = Counters(sources=Budget(1 << 30), work=Budget(1 << 30), cache=Budget(0))
    pool = WorkPool(PreprocessSettings(worker_threads=1), counters, PreprocessMetrics(CollectorRegistry()))
    request, data = read_image(pb.PreprocessImageRequest(encoded=picture_file(1, 30, 20)))
    over = []
    work = pool.start(
        request, Source(counters.sources, len(data), data), over=over.append, keep=lambda output, size: None
    )
    work.output.join()
    if in_line:
        pool.turns.line_up(work.turn, Party(1))
    work.output.leave()

    await until(lambda: counters.at_rest)

    assert over
    assert pool.turns.waiting == 0
    after = pool.turns.turn()
    pool.turns.line_up(after, Party(1))
    assert after.over
    pool.turns.end(after)
    await pool.close()
