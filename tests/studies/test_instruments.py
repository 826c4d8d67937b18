"""The instrument check: its arithmetic, its turns, and our clocks in it on a device whose truth is known."""

from __future__ import annotations

import math
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from enum import IntEnum
from functools import partial
from io import StringIO
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from bench.device.detect import Device, detect
from bench.selfcheck.clock_agreement import comparison
from bench.selfcheck.finding import Finding, failed, passed
from bench.selfcheck.groups import CheckGroup
from bench.selfcheck.instruments import (
    TURN_S,
    Given,
    Instrument,
    cpu_reading,
    cuda_readings,
    kernel_s,
    ours,
    plain_loop,
    problem_of,
    timer,
    triton_instrument,
)
from bench.worker.__main__ import make_bench
from bench.worker.cache_ring import plan
from bench.worker.measure_case import Slots
from studies import instrument_process, instruments
from studies.instrument_process import CASES, ROUNDS, read_part
from studies.instruments import APART, INCLUDES, Readings
from tests.bench.simulated import COLD_S, WARM_S, Doubling, SimulatedCuda, doubling, simulated_bench

ROOT = Path(__file__).parents[2]


@pytest.fixture
def seeded(seed: int) -> random.Random:
    return random.Random(seed)


# ---- the instruments


@pytest.mark.parametrize("clock", ["graph", "stream"])
def test_our_clocks_read_a_simulated_devices_kernels_warm_and_cold(clock: str) -> None:
    cuda = SimulatedCuda()
    bench = simulated_bench(cuda)
    problem = Doubling(dtype="float32", size=256)
    operator = doubling(cuda)
    ring = plan(problem.byte, bench.cache_byte, True, bench.usable_byte, bench.protocol)
    assert ring.slots > 10
    calls = Slots(bench, operator, "good", problem, ring.slots).calls
    for call in calls:
        call()
    which = bench.clock if clock == "graph" else bench.spare_clock
    assert which is not None and which.name == clock
    assert ours("warm", bench, which, calls[:1], flushed=False).read() == pytest.approx(WARM_S, rel=0.01)
    assert ours("cold", bench, which, calls, ring.flushed).read() == pytest.approx(COLD_S, rel=0.01)


@pytest.mark.parametrize("call_s", [1e-3, 7e-3, 3 * TURN_S])
def test_a_plain_loop_divides_by_the_calls_it_made(call_s: float) -> None:
    """A call longer than its turn is made once."""
    at = [0.0]

    def call() -> None:
        at[0] += call_s

    assert plain_loop(call, lambda: at[0]).read() == pytest.approx(call_s, rel=1e-9)
    assert call_s < TURN_S or at[0] == call_s


def test_the_timer_uses_the_threads_it_is_given_and_sets_them_back() -> None:
    before = torch.get_num_threads()
    seen: set[int] = set()
    assert timer(lambda: seen.add(torch.get_num_threads()), 2).read() > 0
    assert seen == {2} and torch.get_num_threads() == before


def test_the_timer_s_blocks_hold_what_ours_do() -> None:
    calls: list[float] = []
    tool = timer(lambda: calls.append(time.perf_counter()), 1, 700)
    assert tool.launches == 700
    assert 0 < tool.read() < (calls[-1] - calls[0]) / 700  # of a launch, not of a block
    # Each block is 7 calls to warm up and 700 that are timed.
    assert len(calls) % 707 == 0


def event(kind: str, us: float) -> Any:
    """As torch.profiler's."""
    time_range = SimpleNamespace(elapsed_us=lambda: us)
    return SimpleNamespace(device_type=SimpleNamespace(name=kind), time_range=time_range)


def test_the_profilers_kernels_are_summed_and_the_hosts_events_left_out(seeded: random.Random) -> None:
    kernel_us = [seeded.uniform(1, 1000) for _ in range(30)]
    events = [event("CUDA", us) for us in kernel_us]
    events += [event("CPU", seeded.uniform(1, 1000)) for _ in range(10)]
    seeded.shuffle(events)
    assert kernel_s(events, 10) == pytest.approx(1e-7 * sum(kernel_us))
    assert math.isnan(kernel_s([event("CPU", 1.0)], 10)) and math.isnan(kernel_s([], 10))


@pytest.mark.parametrize("name", ["do_bench", "do_bench_cudagraph"])
def test_triton_is_asked_for_a_median(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def answer(fn: object, **options: object) -> float:
        asked.extend([fn, options])
        return 2.5  # milliseconds

    monkeypatch.setattr(f"triton.testing.{name}", answer)
    assert triton_instrument(name, print).read() == pytest.approx(2.5e-3)
    replays = 10 if name == "do_bench_cudagraph" else 1  # triton/testing.py: n_retries
    assert asked == [print, {"rep": 1e3 * TURN_S / replays, "return_mode": "median"}]


def simulated_instruments(cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the simulated device; the others' instruments are stood in for."""
    operator = doubling(cuda)
    here = "bench.selfcheck.instruments"
    monkeypatch.setattr(f"{here}.kernels.operator", lambda name: operator)
    monkeypatch.setattr(f"{here}.kernels.problem", lambda name: Doubling)
    monkeypatch.setattr(f"{here}.timer", lambda call, threads, launches: Instrument("Timer", lambda: WARM_S))
    monkeypatch.setattr(f"{here}.triton_instrument", lambda name, call: Instrument(name, lambda: COLD_S / 2))


GOOD, BAD, FULL = (
    ("doubling", name, {"dtype": "float32", "size": 256}) for name in ("good", "uncapturable", "exhausting")
)


def test_a_case_on_a_gpu_is_timed_warm_and_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimulatedCuda()
    simulated_instruments(cuda, monkeypatch)
    warm, cold = (comparison(*one) for one in cuda_readings(simulated_bench(cuda), GOOD, 6))
    assert list(warm.median_s) == ["graph", "stream", "Timer", "do_bench_cudagraph"]
    assert list(cold.median_s) == ["graph, ring", "stream, ring", "do_bench"]
    assert not set(APART) & (set(warm.median_s) | set(cold.median_s))
    assert (warm.case[-5:], cold.case[-5:]) == (" warm", " cold")
    assert warm.median_s["graph"] == pytest.approx(WARM_S, rel=0.01) == warm.median_s["stream"]
    assert cold.median_s["graph, ring"] == pytest.approx(COLD_S, rel=0.01) == cold.median_s["stream, ring"]
    known = cold.ours_over["do_bench"]
    assert known is not None and known.middle == pytest.approx(2.0, rel=0.01)
    assert set(warm.median_s) | set(cold.median_s) <= set(INCLUDES)


def test_after_a_failed_capture_another_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Finding] = []
    cases = [GOOD, FULL, GOOD, BAD, GOOD, BAD]
    begin: int | None = 0
    processes = 0
    while begin is not None:
        processes += 1
        cuda = SimulatedCuda()
        simulated_instruments(cuda, monkeypatch)
        settings = {"part": "together", "begin": begin}
        *others, last = read_part(settings, simulated_bench(cuda), "cuda", 1, cases)
        told += [*others, last]
        begin = last.numbers.get("again_from")
        assert all("again_from" not in finding.numbers for finding in others)
    assert processes == 2, "after the last case there is nothing to go on with, and the third spoilt nothing"
    said = [finding.sentence for finding in told if finding.sentence]
    assert [line[:5] for line in said if line.startswith("[")] == [f"[{n}/6]" for n in range(1, 7)]
    assert sum("left out: CUDA error: operation not permitted" in line for line in said) == 2
    assert sum("left out: CUDA out of memory" in line for line in said) == 1
    assert sum("turns_s" in finding.numbers for finding in told) == 6


def test_readings_are_gathered_from_one_process_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = passed("gemm warm", "", turns_s={"graph": [1.0, None]})
    first = [passed("together", "[1/4]"), seen, passed("together", "", again_from=3)]
    processes = iter([first, [failed("unfinished", "It died.", "Look.")]])
    begins: list[int] = []

    class Processes:
        def __init__(self, device: Device, settings: dict[str, Any]) -> None:
            begins.append(settings["begin"])

        def findings(self, group: CheckGroup) -> Iterator[Finding]:
            assert resolve_name(group.function)
            yield from next(processes)

    monkeypatch.setattr(instruments, "Examination", Processes)
    text = StringIO()
    readings = Readings(detect("cpu"), Console(file=text))
    assert not readings.take("together") and begins == [0, 3]
    assert text.getvalue().splitlines() == ["[1/4]", "It died."]
    ours, nothing = readings.turns_s["gemm warm"]["graph"]
    assert ours == 1.0 and math.isnan(nothing)  # JSON holds no NaN


def test_a_part_that_is_not_installed_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instrument_process, "PACKAGES", {"cupti-python": ("nonesuch", "cupti-python")})
    said = instrument_process.lacking("cupti-python")
    assert said.startswith("cupti-python is not installed and left out: ")
    assert said.endswith("-m pip install 'cupti-python'")
    package = {"cuda-bench": ("nonesuch.bench", "cuda-bench[cu{major}]")}
    monkeypatch.setattr(instrument_process, "PACKAGES", package)
    assert re.search(r"-m pip install 'cuda-bench\[cu1\d\]'$", instrument_process.lacking("cuda-bench"))
    assert instrument_process.lacking("together") == "" == instrument_process.lacking("profiler")


# ---- the cases


@pytest.mark.parametrize("given", [(kind, given) for kind in CASES for given in CASES[kind]], ids=str)
def test_every_case_exists_and_runs_on_its_kind_of_device(given: tuple[str, Given]) -> None:
    kind, case = given
    problem = problem_of(case)
    assert problem.missing(case[1], kind, (9, 0) if kind == "cuda" else None) == ""
    assert problem.byte < 2**31  # so that any device holds it


def test_there_are_cases_of_many_kinds() -> None:
    for kind, cases in CASES.items():
        assert len(cases) > 10 and len({str(case) for case in cases}) == len(cases)
        assert {"gemm", "stream", "activations", "batchnorm"} <= {operator for operator, _, _ in cases}
        assert len({problem_of(case).dtype for case in cases}) >= 2
        assert ROUNDS[kind] % 2 == 0 and ROUNDS[kind] >= 6


def test_a_real_case_is_timed_by_all_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """They agree on the order of magnitude: no more can be asked of a machine that others use."""
    monkeypatch.setattr("bench.selfcheck.instruments.TURN_S", 0.01)
    bench = make_bench("cpu", 1 << 20, seed=1)
    parameters = {"dtype": "float32", "direction": "forward", "rows": 64, "length": 512}
    given: Given = ("softmax", "aten", parameters)
    with torch.no_grad():
        found = comparison(*cpu_reading(bench, given, torch.get_num_threads(), 6))
    assert list(found.median_s) == ["host", "Timer", "loop"] and list(found.ours_over) == ["Timer", "loop"]
    assert all(1e-7 < seconds < 1 for seconds in found.median_s.values())
    assert all(one is not None and one.low <= one.middle <= one.high for one in found.ours_over.values())


# ---- those that are alone in their process: stand-ins with the names of the wheels


KINDS = {"MEMCPY": 1, "MEMSET": 2, "KERNEL": 3, "CONCURRENT_KERNEL": 10, "OVERHEAD": 17}
"""As in cupti/cupti.pyi of cupti-python 13.4.0."""


class Cupti:
    """As cupti.cupti: records are delivered when they are flushed, and gone when the callback returns."""

    ActivityKind = IntEnum("ActivityKind", KINDS)

    def __init__(self) -> None:
        self.enabled: set[int] = set()
        self.buffered: list[Any] = []
        self.registered = 0

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_register_callbacks(
        self, requested: Callable[[], Any], completed: Callable[..., Any]
    ) -> None:
        self.registered += 1
        byte, most = requested()
        assert byte > 1 << 20 and most == 0
        self.completed = completed

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        records, self.buffered = self.buffered, []
        self.completed(records)
        for record in records:
            record.start = record.end = 0

    def launch(self, name: str, ns: int) -> None:
        if KINDS[name] in self.enabled:
            self.buffered.append(SimpleNamespace(kind=KINDS[name], start=1000, end=1000 + ns))


def test_cupti_s_records_are_summed_over_the_launches_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = Cupti()
    monkeypatch.setitem(sys.modules, "cupti.cupti", cupti)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    instrument_process._cupti_records.cache_clear()

    def call() -> None:
        for name, ns in (("CONCURRENT_KERNEL", 2000), ("MEMSET", 500), ("OVERHEAD", 10**6)):
            cupti.launch(name, ns)

    read = instrument_process.cupti_python(call, 7)
    call()  # before the turn: not of it
    assert read() == pytest.approx(2.5e-6) == read()
    assert math.isnan(instrument_process.cupti_python(lambda: None, 7)())
    assert cupti.registered == 1, "CUPTI stays attached; another case attaches nothing more"
    instrument_process._cupti_records.cache_clear()


def test_nvbench_measures_each_case_as_often_as_there_are_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names as in cuda/bench/__init__.pyi and results/__init__.pyi of cuda-bench 0.3.0."""
    made: dict[str, Any] = {}
    built: list[str] = []
    called: list[str] = []

    class Benchmark:
        def __init__(self, measured: Callable[[Any], None]) -> None:
            self.measured = measured

        def set_name(self, name: str) -> Benchmark:
            made[name] = self.measured
            return self

        def set_timeout(self, seconds: float) -> Benchmark:
            assert seconds > 0
            return self

    class State:
        def get_stream(self) -> Any:
            return SimpleNamespace(addressof=lambda: 4096)

        def exec(self, launch: Callable[[Any], None], /, *, batched: bool) -> None:
            assert not batched and len(called) >= 3, "warmed up before the blocking kernel"
            launch(object())

    def run_all_benchmarks(argv: list[str]) -> None:
        assert argv[1:3] == ["--quiet", "--jsonbin"]
        for measured in made.values():
            measured(State())

    class BenchmarkResult:
        @classmethod
        def from_json(cls, path: Path) -> dict[str, Any]:
            def state(samples: list[float] | None) -> Any:
                return SimpleNamespace(center=lambda estimator: estimator(samples) if samples else None)

            samples = {"case-0-0": [1e-6, 3e-6, 2e-6], "case-1-0": None}
            return {name: SimpleNamespace(states=[state(samples.get(name, [5e-6]))]) for name in made}

    bench = SimpleNamespace(register=Benchmark, run_all_benchmarks=run_all_benchmarks)
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bench=bench))
    monkeypatch.setitem(sys.modules, "cuda.bench", bench)
    monkeypatch.setitem(sys.modules, "cuda.bench.results", SimpleNamespace(BenchmarkResult=BenchmarkResult))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda address: address)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def build(name: str) -> Callable[[], Any]:
        built.append(name)
        return partial(called.append, name)

    found = dict(instrument_process.nvbench_s({name: partial(build, name) for name in "ab"}, 2, 0.12))
    assert built == ["a", "a", "b", "b"] and called == ["a"] * 8 + ["b"] * 8
    assert found["a"] == [2e-6, 5e-6]
    assert math.isnan(found["b"][0]) and found["b"][1] == 5e-6
