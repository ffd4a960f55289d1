"""The steps of the demo. Each does its part over gRPC, shows what came back, and checks it against what it tells."""

import hashlib
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from numpy.typing import NDArray

from interlock.bootstrap.v1.bootstrap_service_pb2 import DESCRIPTOR as BOOTSTRAP
from interlock.client import (
    BootstrapClient,
    ContractMismatchError,
    ImageFailedError,
    Picture,
    PreprocessClient,
    Registered,
    RevisionConflictError,
)
from interlock.kv.v1 import pool_name_pb2 as pool
from interlock.pools import wire_name
from interlock.preprocess.v1.preprocess_service_pb2 import DESCRIPTOR as PREPROCESS
from interlock.reasons import Reason
from interlock.topology import DecodeServer, Instance, ParallelSizes, RankKey, Route, SpecLayout
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, decode, kernels, plan, preview
from interlock_cli.demo.stage import Stage
from interlock_cli.demo.telling import NotAsToldError, Teller, expect
from interlock_cli.files import written_whole
from interlock_cli.texts import address_text

GROUP = "prefill-demo"
PHOTOGRAPH = "lake.jpg"
SMALL_PICTURES = ("sun.png", "spruces.webp")
PREVIEW_NAME = "lake-seen.png"

_PROFILE = PROFILES[DEFAULT_PROFILE_NAME]


class Story:
    """The demo. `steps` are to be told in their order, each after its title."""

    def __init__(self, stage: Stage, teller: Teller, output: Path) -> None:
        self._stage = stage
        self._teller = teller
        self._output = output
        bootstrap_port, preprocess_port = stage.ports
        self._bootstrap_address = f"127.0.0.1:{bootstrap_port}"
        self._preprocess_address = f"127.0.0.1:{preprocess_port}"
        self._bootstrap = BootstrapClient(self._bootstrap_address)
        self._preprocess = PreprocessClient(self._preprocess_address)
        self._instance = Instance("demo-launch", time.time_ns())
        self._routes = [_prefill_route(tp) for tp in range(2)]
        self._patches: NDArray[np.uint16] = np.empty(0, np.uint16)

    @property
    def steps(self) -> list[tuple[str, Callable[[], None]]]:
        """Title and doing of each step."""
        return [
            ("Bootstrap and Preprocess start, each on a free port, and say that they serve", self._services_serve),
            ("Two prefill ranks register at once by compare-and-swap: one loses and tries again", self._ranks_register),
            ("A third rank that does not fit is refused, with each field and both values", self._misfit_is_refused),
            ("A decode server checks whether it fits: one does not, one does", self._decode_servers_check),
            ("The decode server that fits asks for the topology and gets it", self._decode_server_connects),
            ("A photograph goes through Preprocess and comes back as bf16 patches", self._photograph),
            ("Several pictures go on one stream, one of them damaged: the others are served", self._stream),
            ("The patches of the photograph are drawn back as the picture that the model sees", self._preview),
            ("Everything stops", self._stop),
        ]

    def close(self) -> None:
        """Closes the connections."""
        self._bootstrap.close()
        self._preprocess.close()

    def _services_serve(self) -> None:
        rows = []
        for descriptor, address in ((BOOTSTRAP, self._bootstrap_address), (PREPROCESS, self._preprocess_address)):
            (service,) = descriptor.services_by_name.values()
            with grpc.insecure_channel(address) as channel:
                answer = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service=service.full_name), timeout=10, wait_for_ready=True
                )
            status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
            expect(status == "SERVING", f"the health of {service.full_name} is {status}")
            rows.append((service.full_name, address, status))
        self._teller.table(["SERVICE", "ADDRESS", "HEALTH"], rows)
        served = self._preprocess.list_profiles()
        self._teller.say(
            f"Preprocess works with kernel {served.kernel} (available: {', '.join(served.available_kernels)}); "
            f"its profiles are {', '.join(served.profiles)}."
        )
        expect(
            served.profiles.get(DEFAULT_PROFILE_NAME) == _PROFILE, f"{DEFAULT_PROFILE_NAME} is not served as published"
        )

    def _ranks_register(self) -> None:
        def register(route: Route) -> Registered | RevisionConflictError:
            try:
                return self._bootstrap.register_route(route, self._instance, group=GROUP, expected_revision=0)
            except RevisionConflictError as error:
                return error

        with ThreadPoolExecutor(len(self._routes)) as threads:
            outcomes = list(threads.map(register, self._routes))
        rows: list[tuple[object, ...]] = []
        winners: list[Registered] = []
        losers: list[tuple[Route, RevisionConflictError]] = []
        for route, outcome in zip(self._routes, outcomes, strict=True):
            if isinstance(outcome, Registered):
                winners.append(outcome)
                rows.append((route.key, 0, "stands", outcome.revision, f"{outcome.registered} of {outcome.expected}"))
            else:
                losers.append((route, outcome))
                rows.append((route.key, 0, outcome.reason, outcome.conflict.revision, None))
        expect(len(winners) == len(losers) == 1, f"{len(winners)} ranks won and {len(losers)} lost")
        (winner,), ((route, lost),) = winners, losers
        expect(lost.conflict.revision == winner.revision, "the refusal does not name the winner's revision")
        registered = self._bootstrap.register_route(
            route, self._instance, group=GROUP, expected_revision=lost.conflict.revision
        )
        rows.append(
            (
                route.key,
                lost.conflict.revision,
                "stands",
                registered.revision,
                f"{registered.registered} of {registered.expected}",
            )
        )
        self._teller.table(["RANK", "EXPECTED REVISION", "OUTCOME", "REVISION", "REGISTERED"], rows)
        self._teller.say(
            f"The refusal carried the revision that stands, {lost.conflict.revision}: the loser needed no second look."
        )
        expect(registered.revision > winner.revision, "the revision did not grow")
        expect(registered.ready and registered.registered == 2, "the group is not ready with both ranks")

    def _misfit_is_refused(self) -> None:
        [before] = [state for state in self._bootstrap.list_groups() if state.group == GROUP]
        misfit = _prefill_route(2, tp_size=3, page_size=128, kv_cache_dtype="fp8_e4m3")
        try:
            self._bootstrap.register_route(misfit, self._instance, group=GROUP)
        except ContractMismatchError as error:
            refusal = error
        else:
            raise NotAsToldError("the rank was taken")
        self._teller.say(refusal.diagnostics())
        told = {"sizes.tp": ("2", "3"), "page_size": ("64", "128"), "kv_cache_dtype": ("bfloat16", "fp8_e4m3")}
        got = {d.field: (d.standing_value, d.offered_value) for d in refusal.mismatch.differences}
        expect(got == told, f"the fields refused are {got}, not {told}")
        [after] = [state for state in self._bootstrap.list_groups() if state.group == GROUP]
        expect(after == before, "the refused request left something behind")
        self._teller.say(f"Nothing of it stays: the group is as before, at revision {after.revision}.")

    def _decode_servers_check(self) -> None:
        rows: list[tuple[object, ...]] = []
        for name, decode_server, told in (
            ("decode-x", _decode_server(page_size=128, tp_size=3), ("page_size", "sizes.tp")),
            ("decode-a", _decode_server(page_size=64, tp_size=2), ()),
        ):
            answer = self._bootstrap.check_compatibility(decode_server, group=GROUP)
            violations = answer.incompatibilities
            rows += [(name, v.field, v.prefill_value, v.decode_value, v.message) for v in violations]
            if not violations:
                rows.append((name, None, None, None, f"fits at revision {answer.revision}"))
            fields = tuple(sorted(v.field for v in violations))
            expect(fields == told, f"{name} was refused for {fields}, not for {told}")
            expect(answer.ready, "the group is not ready")
        self._teller.table(["DECODE SERVER", "FIELD", "PREFILL", "DECODE", "ANSWER"], rows)

    def _decode_server_connects(self) -> None:
        ready = self._bootstrap.get_prefill_server_info(GROUP)
        info = ready.info
        self._teller.table(
            ["SIZES", "PAGE SIZE", "KV DTYPE", "KV LAYOUT", "POOLS", "DRAFT TOKENS", "EPOCH", "REVISION"],
            [
                (
                    "x".join(map(str, info.sizes)),
                    info.page_size,
                    info.kv_cache_dtype,
                    info.kv_layout,
                    ", ".join(map(wire_name, info.pools)),
                    getattr(info.dsv41_spec_layout, "num_draft_tokens", None),
                    ready.epoch,
                    ready.revision,
                )
            ],
        )
        first = self._routes[0]
        for field in ("sizes", "page_size", "kv_cache_dtype", "kv_layout", "dsv41_spec_layout", "pools"):
            value, registered = getattr(info, field), getattr(first, field)
            expect(value == registered, f"{field} is {value}, and {registered} was registered")
        rows = []
        for route in self._routes:
            rank = self._bootstrap.get_rank_info(route.key, group=GROUP, min_revision=ready.revision)
            rows.append((route.key, address_text(rank.rank_ip, rank.rank_port), rank.epoch))
            expect(
                (rank.rank_ip, rank.rank_port, rank.epoch) == (route.rank_ip, route.rank_port, ready.epoch),
                f"rank {route.key} is not where it registered",
            )
        self._teller.table(["RANK", "ADDRESS", "EPOCH"], rows)

    def _photograph(self) -> None:
        data = _shipped(PHOTOGRAPH)
        started = time.perf_counter()
        patches = self._preprocess.preprocess(data, image_id=PHOTOGRAPH, profile=_PROFILE)
        seconds = time.perf_counter() - started
        self._teller.table(
            ["PICTURE", "FORMAT", "SIZE", "BYTES", "PATCHES", "TOKENS", "DECODE MS", "KERNEL MS", "ROUND TRIP MS"],
            [
                (
                    PHOTOGRAPH,
                    patches.source_format,
                    f"{patches.source_width}x{patches.source_height}",
                    len(data),
                    _shape(patches.array),
                    patches.plan.token_count,
                    patches.timings.decode * 1000,
                    patches.timings.kernel * 1000,
                    seconds * 1000,
                )
            ],
        )
        differing = _differing_words(patches.array, data)
        self._teller.say(
            f"{differing} of {patches.array.size} words differ from the reference kernel; the CRC-32C of all "
            f"{patches.array.nbytes} bytes is right; SHA-256 {hashlib.sha256(patches.array.tobytes()).hexdigest()}"
        )
        expect(differing == 0, f"{differing} words differ from the reference")
        self._patches = patches.array

    def _stream(self) -> None:
        sources = {name: _shipped(name) for name in (PHOTOGRAPH, *SMALL_PICTURES)}
        damaged = f"{PHOTOGRAPH}, first half"
        sources[damaged] = sources[PHOTOGRAPH][: len(sources[PHOTOGRAPH]) // 2]
        names = [*SMALL_PICTURES, damaged, PHOTOGRAPH]
        started = time.perf_counter()
        pictures = [Picture(sources[name], image_id=name) for name in names]
        with self._preprocess.preprocess_many(pictures, profile=_PROFILE, timeout=20) as stream:
            results = sorted(stream, key=lambda result: result.index)
        seconds = time.perf_counter() - started
        expect([result.image_id for result in results] == names, "not every picture got exactly one answer")
        rows: list[tuple[object, ...]] = []
        for result in results:
            name = result.image_id
            if result.patches is None:
                rows.append((name, len(sources[name]), None, None, result.error))
            else:
                differing = _differing_words(result.patches.array, sources[name])
                rows.append((name, len(sources[name]), _shape(result.patches.array), differing, None))
        self._teller.table(["PICTURE", "BYTES", "PATCHES", "DIFFERING WORDS", "ERROR"], rows)
        for result, row in zip(results, rows, strict=True):
            if result.image_id != damaged:
                expect(result.error is None, f"{result.image_id} failed: {result.error}")
                expect(row[3] == 0, f"{row[3]} words of {result.image_id} differ from the reference")
        [error] = [result.error for result in results if result.image_id == damaged]
        expect(isinstance(error, ImageFailedError), f"the damaged picture gave {error!r}")
        expect(getattr(error, "reason", "") == Reason.IMAGE_TRUNCATED, f"the damaged picture was refused with {error}")
        fields = [field for field, _ in getattr(error, "field_violations", ())]
        self._teller.say(
            f"{sum(result.error is None for result in results)} of {len(results)} pictures came back in "
            f"{seconds * 1000:.1f} ms; the damaged one was refused: {getattr(error, 'reason', '')}, "
            f"field {', '.join(fields)}."
        )
        expect(len(fields) == 1, "the refusal names no field")

    def _preview(self) -> None:
        picture = preview(self._patches, _PROFILE)
        file = self._output / PREVIEW_NAME
        with written_whole(file) as handle:
            picture.save(handle, format="PNG")
        drawn = decode(file.read_bytes())
        # The drawing has the canvas's size: nothing is resized, and the same patches must come out of it.
        geometry = plan(drawn.width, drawn.height, _PROFILE)
        again = kernels.get("reference").resize_patchify(drawn.rgb, geometry, _PROFILE)
        same = again.shape == self._patches.shape and bool((again == self._patches).all())
        self._teller.say(
            f"Written to {file}: {drawn.width}x{drawn.height}. "
            f"Cut into patches again it gives {'the very same words' if same else 'other words'}."
        )
        expect(same, "the drawing is not the picture of these patches")

    def _stop(self) -> None:
        self.close()
        self._stage.stop()
        expect(not self._stage.running, "the services still run")
        for port in self._stage.ports:
            with socket.socket() as probe:
                expect(probe.connect_ex(("127.0.0.1", port)) != 0, f"something still listens on port {port}")
        self._teller.say(f"Nothing listens on ports {' and '.join(map(str, self._stage.ports))} any more.")


def _prefill_route(tp: int, *, tp_size: int = 2, page_size: int = 64, kv_cache_dtype: str = "bfloat16") -> Route:
    return Route(
        key=RankKey(dp=0, cp=0, tp=tp, pp=0),
        incarnation=time.time_ns(),
        sizes=ParallelSizes(dp=1, cp=1, tp=tp_size, pp=1),
        rank_ip=f"10.0.0.{tp + 1}",
        rank_port=9000 + tp,
        page_size=page_size,
        kv_cache_dtype=kv_cache_dtype,
        kv_layout="deepseek_v4",
        dsv41_spec_layout=_LAYOUT,
        pools=_POOLS,
    )


def _decode_server(*, page_size: int, tp_size: int) -> DecodeServer:
    return DecodeServer(
        page_size=page_size,
        sizes=ParallelSizes(dp=1, cp=1, tp=tp_size, pp=1),
        kv_cache_dtype="bfloat16",
        kv_layout="deepseek_v4",
        dsv41_spec_layout=_LAYOUT,
        pools=_POOLS,
    )


_POOLS = (pool.POOL_NAME_KV, pool.POOL_NAME_SWA, pool.POOL_NAME_DRAFT)

_LAYOUT = SpecLayout(
    num_draft_tokens=3,
    compression_ratios=(1, 4, 128),
    kv_layer_ids=(0, 1, 2),
    kv_item_lens=(73728, 18432, 576),
    state_types=("swa", "c128_state"),
    state_item_lens=((9216, 9216), (2304,)),
)


def _shipped(name: str) -> bytes:
    """A picture that comes with the package."""
    return files("interlock_cli.demo").joinpath("pictures", name).read_bytes()


def _differing_words(patches: NDArray[np.uint16], data: bytes) -> int:
    """Words in which patches differ from those of the reference kernel, made here from the same file."""
    picture = decode(data)
    geometry = plan(picture.width, picture.height, _PROFILE)
    expected = kernels.get("reference").resize_patchify(picture.rgb, geometry, _PROFILE)
    if patches.shape != expected.shape:
        return max(patches.size, expected.size)
    return int(np.count_nonzero(patches != expected))


def _shape(patches: NDArray[np.uint16]) -> str:
    return "x".join(map(str, patches.shape))
