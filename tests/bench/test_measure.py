"""One case end to end on a simulated device: cold means cold, wrong has no time, nothing escapes."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from bench.environment.chosen_code import NAMES, chosen_code
from bench.sampling.protocol import Protocol
from bench.spec import Launch, Operator
from bench.store.schema import FIELDS
from bench.worker.__main__ import make_bench, respond
from bench.worker.cache_ring import RingSampler
from bench.worker.clock import GraphClock, HostClock
from bench.worker.measure_case import Bench, check, measure
from bench.worker.memory import Memory
from bench.worker.visit import Visit, VisitResult
from kernels.stream import operator as stream
from tests.bench.simulated import COLD_S, QUEUE_S, WARM_S, Doubling, SimulatedCuda, doubling, simulated_bench

LIMITS = (2.0, 1.0)


def visit(implementation: str, problem: Doubling, limits: tuple[float, float] = LIMITS, **more: Any) -> Visit:
    """A visit of so many seconds, of which a launch may take so many."""
    budget_s, launch_s = limits
    asked = {"cache": "cold", "budget_s": budget_s, "launch_s": launch_s} | more
    return Visit("doubling", implementation, problem.parameters(), **asked)


def run(
    implementation: str = "good",
    size: int = 4096,
    cold: bool = True,
    cuda: SimulatedCuda | None = None,
    operator: Operator | None = None,
    limits: tuple[float, float] = LIMITS,
    bench: Bench | None = None,
    clock: str | None = None,
    **more: Any,
) -> VisitResult:
    """What comes of a case, on this device, of this operator and bench or of new ones."""
    cuda = cuda or SimulatedCuda()
    bench, operator = bench or simulated_bench(cuda), operator or doubling(cuda)
    problem = Doubling(dtype="float32", size=size, **more)
    asked = visit(implementation, problem, limits, cache="cold" if cold else "warm", clock=clock)
    assert Visit.from_json(asked.to_json()) == asked
    result = measure(bench, operator, problem, asked)
    assert result.columns().keys() <= FIELDS.keys(), "what is no column is in no row"
    assert VisitResult.from_json(result.to_json()) == result
    return result


@pytest.mark.parametrize(
    ("size", "cache_byte"),
    [(1, 1 << 20), (16, 1 << 20), (64, 1 << 14), (1031, 1 << 14), (4099, 1 << 14), (1 << 14, 1 << 14)],
)
def test_cold_is_cold_at_every_size(size: int, cache_byte: int) -> None:
    """From a footprint that no ring of 4096 slots can blow up to the cache, to one larger than the cache."""
    cold_s = COLD_S / 2 if size < 64 else COLD_S  # a turn has 4096 launches, and there are many turns
    cuda = SimulatedCuda(cache_byte)
    facts = run("good", size, cuda=cuda, operator=doubling(cuda, cold_s))
    assert facts.flushed == (size < 64)
    assert facts.status == "ok", facts
    assert facts.median_s == pytest.approx(cold_s, rel=0.01)
    assert facts.clock == "graph"
    assert facts.low_s <= facts.median_s <= facts.high_s


def test_launches_that_block_the_host_are_timed_by_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a spinning kernel the host would be late each time, and a capture would be refused."""
    cuda = SimulatedCuda()
    monkeypatch.setattr("bench.worker.clock.time.perf_counter_ns", lambda: round(1e9 * cuda.host_s))
    flushed = []

    def flush() -> None:
        cuda.flush()
        cuda.synchronize()
        flushed.append(cuda.host_s)

    bench = simulated_bench(cuda)
    for name, size in (("blocking", 64), ("blocking", 1), ("good", 64)):
        bench.host_clock = HostClock(flush)
        facts = run(name, size, cuda=cuda, bench=bench)
        assert facts.status == "ok", facts
        assert facts.clock == ("graph" if name == "good" else "host")
        queued_s = 0.0 if name == "good" else QUEUE_S
        assert facts.median_s == pytest.approx(COLD_S + queued_s, rel=0.01)
        assert facts.flushed == (len(flushed) > 1) == (size == 1)  # after the poison once in any case
        assert not bench.distrust()
        flushed.clear()


def test_warm_is_warm_and_outputs_may_be_allocated_by_each_call() -> None:
    facts = run(cold=False)
    assert facts.median_s == pytest.approx(WARM_S, rel=0.01)
    assert facts.ring_slots == 1
    assert run("allocating").median_s == pytest.approx(COLD_S, rel=0.01)


@pytest.mark.parametrize(("ring", "per_sample", "flushed"), [(10, 3, False), (7, 2, False), (6, 2, True)])
def test_every_slot_is_visited_and_the_place_is_kept(ring: int, per_sample: int, flushed: bool) -> None:
    """None starts again at slot 0 before the ring is through; a short ring is flushed before each turn."""
    log: list[object] = []
    calls = [lambda i=i: log.append(i) or i for i in range(ring)]  # type: ignore[func-returns-value]
    turns = RingSampler(HostClock(lambda: log.append("flush")), calls, per_sample, flushed)
    for number in range(1, 2 * len(turns.batches) + 1):
        turns()
        slot, written = turns.last
        assert slot == written == log[-1] and turns.visited == min(ring, len(log) - log.count("flush")), (
            number
        )
    assert log == [*(["flush"] * flushed), *range(ring)] * 2


class Allocator:
    """The part of torch.cuda that counts bytes, moved by hand: a peak is the most since the last reset."""

    now = peak = 0

    def move(self, byte: int) -> None:
        self.now += byte
        self.peak = max(self.peak, self.now)

    def memory_allocated(self) -> int:
        return self.now

    def max_memory_allocated(self) -> int:
        return self.peak

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.now

    def synchronize(self) -> None:
        """Nothing is queued."""


def test_what_chooses_code_is_told_by_names_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if NAMES.fullmatch(name)]:
        monkeypatch.delenv(name)
    kept = {
        "DNNL_MAX_CPU_ISA": "AVX2",
        "OMP_PLACES": "{0:4}:8",
        "OMP_SCHEDULE": "static, 4",
        "TORCH_BLAS_PREFER_CUBLASLT": "1",
    }
    others = {"TORCH_HOME": "x", "MKL_VERBOSE_OUTPUT_FILE": "/home/me/x", "AWS_SECRET": "x", "HF_TOKEN": "x"}
    for name, value in (kept | others).items():
        monkeypatch.setenv(name, value)
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        *variables, capability, precision = chosen_code().split(" ")
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"
    assert dict(each.split("=", 1) for each in variables) == kept | {"OMP_SCHEDULE": "static,4"}
    assert capability == f"cpu_capability={torch.backends.cpu.get_cpu_capability()}"
    assert precision == "mkldnn.matmul.fp32_precision=bf16"


def test_a_row_says_what_memory_a_launch_needs() -> None:
    """What was built for it and what a call takes, but not what tuning took or the first call keeps."""
    cuda, memory = SimulatedCuda(1 << 14), Allocator()
    operator = doubling(cuda)
    good = operator.implementations["good"]

    def counted(problem: Doubling, x: torch.Tensor) -> Launch:
        memory.move(1000)
        memory.move(-900)
        launch, kept = good(problem, x), iter([500])

        def call() -> Any:
            memory.move(next(kept, 0))
            memory.move(64)
            memory.move(-64)
            return launch.call()

        return replace(launch, call=call)

    operator = replace(operator, implementations={"counted": counted})
    bench = replace(simulated_bench(cuda), memory=Memory(memory))
    facts = run("counted", operator=operator, bench=bench)
    assert (facts.status, facts.peak_byte) == ("ok", 100 + 64)
    assert run("good", 4096).peak_byte is None


@pytest.mark.parametrize(
    ("implementation", "status", "says"),
    [
        ("wrong", "wrong", "before timing"),
        ("breaking", "wrong", "after timing"),
        ("escaping", "escaped", "escaped the graph clock"),
    ],
)
def test_a_result_that_is_wrong_or_of_nobody_has_no_time(implementation: str, status: str, says: str) -> None:
    facts = run(implementation)
    assert facts.status == status and says in facts.reason
    assert facts.median_s is None and facts.samples_s is None


def test_what_cannot_be_captured_says_so_and_is_timed_by_the_stream_when_asked() -> None:
    """Not in the same process: what a failed capture has left behind there is not known."""
    facts = run("uncapturable", 1 << 12)
    assert facts.status == "error" and facts.uncaptured and facts.median_s is None
    assert facts.reason.endswith("operation not permitted when stream is capturing")
    cuda = SimulatedCuda()
    bench = simulated_bench(cuda)
    facts = run("uncapturable", cuda=cuda, bench=bench, clock="stream")
    assert facts.status == "ok" and not facts.uncaptured
    assert facts.clock == "stream" and bench.distrust() == ""
    assert facts.median_s == pytest.approx(COLD_S, rel=0.1)


def test_a_row_says_what_the_clock_adds_and_how_often_the_host_was_late() -> None:
    cuda = SimulatedCuda()
    cuda.graph_start_s = 5e-6
    chance = random.Random(1)
    cuda.stall = lambda: 1e-3 * (cuda.host_s > 0.5 and chance.random() < 1 / 100)
    facts = run(cuda=cuda)
    assert facts.status == "ok" and facts.late_samples > 0
    assert facts.clock_start_s == pytest.approx(5e-6, abs=0.6e-6)
    assert facts.step_s == facts.clock_start_s / facts.launches
    assert facts.launches * COLD_S >= 400 * 4.4e-6
    assert facts.median_s == pytest.approx(COLD_S, rel=0.003) and facts.stop == "converged"
    assert max(facts.samples_s) < 1.01 * COLD_S, "no late sample is published"
    quiet = run("good", 4096)
    assert (quiet.late_samples, quiet.clock_start_s) == (0, 0.0)


def test_a_host_that_is_never_in_time_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimulatedCuda()
    bench = simulated_bench(cuda)
    _ = bench.clock.start_s
    monkeypatch.setattr("tests.bench.simulated.Event.query", lambda event: True)
    facts = run(cuda=cuda, bench=bench)
    assert facts.status == "error" and "the host was late 14 times in a row" in facts.reason
    assert facts.median_s is None and bench.distrust() == ""


def with_implementation(
    cuda: SimulatedCuda, build: Callable[..., Launch], reference: Callable[..., Any] | None = None
) -> Operator:
    """The operator whose `good` is this instead."""
    made = doubling(cuda)
    return replace(made, implementations={"good": build}, reference=reference or made.reference)


def test_launches_of_which_only_a_part_was_captured_have_escaped() -> None:
    """The second of a launch's two kernels runs on another stream: only the end of the output is poison."""
    cuda = SimulatedCuda()

    def half_escaping(problem: Doubling, x: torch.Tensor) -> Launch:
        y = torch.empty_like(x)
        captured, escaped = x[: problem.size // 2], x[problem.size // 2 :]

        def write(half: torch.Tensor) -> float:
            torch.mul(half, 2, out=y[: half.numel()] if half is captured else y[half.numel() :])
            return WARM_S

        def call() -> Any:
            cuda.launch(partial(write, captured))
            if cuda.capturing is None:
                cuda.launch(partial(write, escaped))
            return y

        return Launch(call, (y,))

    facts = run(cuda=cuda, operator=with_implementation(cuda, half_escaping))
    assert facts.status == "escaped" and facts.median_s is None
    assert facts.reason.startswith(f"{facts.ring_slots} timed launches wrote nothing")


def test_a_reference_that_is_not_finite_gives_no_time() -> None:
    """Of the slot that is checked after timing: an error of its own, and never right."""
    cuda, asked = SimulatedCuda(), itertools.count()

    def reference(problem: Doubling, x: torch.Tensor) -> torch.Tensor:
        return 2 * x.double() / (1.0 - next(asked))

    facts = run(cuda=cuda, operator=replace(doubling(cuda), reference=reference))
    assert facts.status == "error" and facts.median_s is None
    assert facts.reason.startswith("ValueError: the reference of output 0 is not finite")


@pytest.mark.parametrize("cold", [True, False])
def test_what_poisoning_left_in_the_cache_is_flushed_before_a_cold_visit(cold: bool) -> None:
    """Once: a ring that displaces its own data needs no flush afterwards."""
    facts = run(cold=cold, cuda=(cuda := SimulatedCuda()))
    assert facts.status == "ok" and not facts.flushed and cuda.flushes == cold


def test_an_implementation_without_its_function_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a function that no problem.py declares, which no case can name."""
    functions = {"aten": stream.OPERATOR.implementations["aten"], "undeclared": stream.aten}
    monkeypatch.setattr(stream, "OPERATOR", replace(stream.OPERATOR, implementations=functions))
    bench = make_bench("cpu", 1 << 20, 1)
    parameters = {"dtype": "float32", "kind": "copy", "length": 1000}
    request = Visit("stream", "aten", parameters, "warm", 1e-9, 60.0).to_json()
    for do in ("check", "measure"):
        assert respond(bench, request | {"do": do})["status"] == "ok"
        lacking = respond(bench, request | {"do": do, "implementation": "triton"})
        assert lacking["status"] == "error" and "renew" not in lacking
        assert lacking["reason"] == (
            "kernels/stream/operator.py: OPERATOR.implementations lacks triton, "
            "which problem.py in the same folder declares"
        )


def test_the_configuration_and_what_was_passed_over_for_it_are_in_the_row() -> None:
    cuda = SimulatedCuda()
    good = doubling(cuda).implementations["good"]
    said = ("256x128 w8: TypeError: cannot convert None", "64x64 w4: out of resource: shared memory")

    def picky(problem: Doubling, x: torch.Tensor) -> Launch:
        return replace(good(problem, x), passed_over=said, configuration="64x64 w8")

    facts = run(cuda=cuda, operator=with_implementation(cuda, picky))
    assert facts.status == "ok" and facts.passed_over == "; ".join(said)
    assert facts.configuration == "64x64 w8"
    assert run("good", 4096).passed_over is None


@pytest.mark.parametrize("later", ["right", "wrong"])
def test_another_visit_repeats_no_set_up_and_finds_a_kernel_that_has_gone_wrong(
    later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a launch takes and runs is found out once, and a reference is computed once."""
    cuda, counts = SimulatedCuda(), Counter[str]()
    bench, made, factor = simulated_bench(cuda), doubling(cuda), [2.0]

    def reference(problem: Doubling, x: torch.Tensor) -> Any:
        counts["references"] += 1
        return made.reference(problem, x)

    def build(problem: Doubling, x: torch.Tensor) -> Launch:
        counts["built"] += 1
        y = torch.empty_like(x)

        def kernel() -> float:
            torch.mul(x, factor[0], out=y)
            return COLD_S

        return Launch(lambda: cuda.launch(kernel) or y, (y,))

    monkeypatch.setattr(GraphClock, "kernels", lambda clock, call: counts.update(["captured"]) or "a kernel")
    operator, problem = with_implementation(cuda, build, reference), Doubling(dtype="float32", size=4096)
    first = measure(bench, operator, problem, visit("good", problem))
    assert first.status == "ok" and counts["references"] == 2 and counts["captured"] == 1
    counts.clear()
    factor[0] = {"right": 2.0, "wrong": 2.1}[later]
    result = measure(bench, operator, problem, visit("good", problem, first=False))
    assert counts == Counter(built=result.ring_slots, references=1)
    if later == "wrong":
        assert result.status == "wrong" and "after timing" in result.reason and result.median_s is None
        return
    facts = ("status", "ring_slots", "launches", "clock", "kernels", "enqueue_s")
    assert [getattr(result, fact) for fact in facts] == [getattr(first, fact) for fact in facts]
    assert result.median_s == pytest.approx(COLD_S, rel=0.01)


def uncompilable(problem: Doubling, x: torch.Tensor) -> Launch:
    try:
        raise TypeError("cannot convert None to tensor")
    except TypeError as error:
        raise RuntimeError("at 27:17:\n    return a, b, c, d\n    ^") from error


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("declining", "unsupported", "the library takes no 64 elements"),
        ("uncompilable", "error", "TypeError: cannot convert None to tensor"),
    ],
)
def test_a_row_shows_why_a_launch_cannot_be_built(name: str, status: str, reason: str) -> None:
    """Of a compiler what it stumbled over, and not where."""
    cuda = SimulatedCuda()
    operator, bench = doubling(cuda), simulated_bench(cuda)
    operator = replace(operator, implementations={**operator.implementations, "uncompilable": uncompilable})
    facts = run(name, 64, operator=operator, bench=bench)
    assert (facts.status, facts.reason) == (status, reason) and facts.median_s is None
    assert check(bench, operator, name, Doubling(dtype="float32", size=64)) == VisitResult(status, reason)


def test_a_time_that_cannot_be_divided_stays_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a profiler is not permitted."""
    cuda = SimulatedCuda()
    bench, problem = simulated_bench(cuda), Doubling(dtype="float32", size=4096)

    def refuse(calls: Any) -> dict[str, Any]:
        raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

    monkeypatch.setattr(bench, "by_class", refuse)
    facts = measure(bench, doubling(cuda), problem, visit("good", problem, divided=True))
    assert (facts.status, facts.reason) == ("ok", "") and facts.median_s == pytest.approx(COLD_S, rel=0.01)
    assert facts.more == {"parts_by": "not divided: RuntimeError: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}


def test_a_slower_clock_halfway_is_not_called_converged_at_the_first_value() -> None:
    """The clock drops by 30 % while sampling: the interval must reach the new value or say unconverged."""
    cuda = SimulatedCuda()
    bench = simulated_bench(cuda, Protocol(least_timed_s=0.4))
    cuda.slow_after_s = 0.3
    facts = run(cuda=cuda, bench=bench)
    assert facts.status == "ok"
    covered = facts.low_s <= 1.3 * COLD_S <= facts.high_s * 1.01
    assert covered or facts.stop != "converged"
