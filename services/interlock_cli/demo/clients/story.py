"""The demo of the clients: each is built and run, and every step of each is shown."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from interlock_cli.demo.clients.checkout import Checkout
from interlock_cli.demo.clients.pictures import write_pictures
from interlock_cli.demo.clients.programs import BuildError, Program, build
from interlock_cli.demo.clients.runs import STEPS, Result, run
from interlock_cli.demo.clients.services import Services
from interlock_cli.demo.telling import Teller


def results_of(programs: Sequence[Program], checkout: Checkout, logs: Path, teller: Teller) -> list[dict[str, object]]:
    """Builds and runs the programs, one after the other, against one pair of services.

    Args:
        programs: What to run.
        checkout: Where their sources and the pictures are.
        logs: The folder for what tools, programs and services say.
        teller: Shows each program's results as soon as it ends.

    Returns:
        Each step of each language, with language, step, ok, seconds and detail.

    Raises:
        ServiceError: A service did not start.
    """
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="interlock-clients-") as place:
        pictures = Path(place, "pictures")
        pictures.mkdir()
        write_pictures(checkout, pictures)
        with Services(Path(place, "state"), logs) as services:
            for program in programs:
                language = program.language
                teller.step(f"The client in {language}")
                results = list(_results(program, checkout, services, pictures, logs / f"{language}.log"))
                teller.table(
                    ["LANGUAGE", "STEP", "RESULT", "SECONDS", "DETAIL"],
                    [(language, r.step, "ok" if r.ok else "FAILED", f"{r.seconds:.3f}", r.detail) for r in results],
                )
                rows += [{"language": language, **asdict(result)} for result in results]
    return rows


def _results(program: Program, checkout: Checkout, services: Services, pictures: Path, log: Path) -> Iterator[Result]:
    folder = checkout.clients / program.language
    log.unlink(missing_ok=True)
    started = time.perf_counter()
    try:
        build(program, folder, log)
    except BuildError as error:
        yield Result("build", False, time.perf_counter() - started, str(error))
        for step in STEPS:
            yield Result(step, False, 0.0, "not built")
        return
    yield Result("build", True, time.perf_counter() - started, f"by {program.builds[-1][0]}")
    yield from run(program, folder, services, pictures, log)
