"""The instrument check: its arithmetic, its turns, and our clocks in it on a device whose truth is known."""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import median

import pytest
import torch
from rich.console import Console

from bench.measure.instruments import (
    CASES,
    INCLUDES,
    ROUNDS,
    TURN_S,
    Comparison,
    Given,
    Instrument,
    Ratio,
    alternate,
    compare,
    cpu_comparison,
    cuda_comparisons,
    kernel_s,
    ours,
    plain_loop,
    print_report,
    problem_of,
    ratio,
    timer,
    triton_instrument,
    worst,
)
from bench.measure.ring import plan
from bench.measure.run import Slots
from bench.measure.worker import make_bench
from tests.bench.simulated import Doubling, SimulatedCuda, doubling, simulated_bench

ROOT = Path(__file__).parents[2]


@pytest.fixture
def seeded() -> random.Random:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    return random.Random(seed)


class Machine:
    """A machine on a time axis of its own, whose launches take what `speed` says at that moment."""

    def __init__(self, launch_s: float, speed: Callable[[float], float]) -> None:
        self.at_s, self.launch_s, self.speed = 0.0, launch_s, speed

    def instrument(self, name: str, factor: float = 1.0) -> Instrument:
        def read() -> float:
            seen = factor * self.launch_s / self.speed(self.at_s)
            self.at_s += TURN_S
            return seen

        return Instrument(name, read)


# ---- turns and ratios


def test_turns_go_forwards_then_backwards() -> None:
    seen: list[str] = []

    def of(name: str) -> Instrument:
        return Instrument(name, lambda: float(len(seen.append(name) or seen)))

    readings = alternate([of(name) for name in "abc"], 4)
    assert "".join(seen) == "abccbaabccba"
    assert readings == {"a": [1, 6, 7, 12], "b": [2, 5, 8, 11], "c": [3, 4, 9, 10]}


def test_of_a_machine_that_changes_speed_the_ratio_is_right_all_the_same(seeded: random.Random) -> None:
    """Two speeds a tenth apart, for seconds each: the medians of the instruments may differ by as much."""
    for _ in range(20):
        period_s, phase_s = seeded.uniform(2, 6), seeded.uniform(0, 6)
        machine = Machine(1e-3, lambda at, p=period_s, o=phase_s: 1.0 if (at + o) % p < p / 2 else 0.9)
        factor = seeded.uniform(0.95, 1.05)
        found = compare("x", [machine.instrument("host"), machine.instrument("Timer", factor)], 12)
        known = found.ours_over["Timer"]
        assert known is not None
        assert known.middle == pytest.approx(1 / factor, rel=1e-9)
        assert known.low <= known.middle <= known.high


def test_a_steady_drift_cancels(seeded: random.Random) -> None:
    """Always in the same order, the first would seem quicker by what one turn's drift is worth."""
    drift = seeded.uniform(0.05, 0.2)  # of the speed, a second
    machine = Machine(1e-3, lambda at: math.exp(-drift * at))
    instruments = [machine.instrument("host"), machine.instrument("Timer")]
    both_ways = compare("x", instruments, 12).ours_over["Timer"]
    readings = [(a.read(), b.read()) for a, b in [instruments] * 12]
    one_way = ratio(*zip(*readings, strict=True))
    assert both_ways is not None and one_way is not None
    assert both_ways.middle == pytest.approx(1.0, abs=5e-4)  # a ratio and its inverse: second order
    assert one_way.middle == pytest.approx(math.exp(-drift * TURN_S), rel=1e-9)


def test_the_first_turn_counts_for_nothing() -> None:
    reads = iter([100.0, *[1.0] * 12])
    slow = Instrument("host", lambda: next(reads))
    found = compare("x", [slow, Instrument("Timer", lambda: 1.0)], 12)
    assert found.ours_over["Timer"] == Ratio(1.0, 1.0, 1.0) and found.median_s["host"] == 1.0
    assert list(reads) == []


def test_the_ratios_interval_covers_the_truth_as_often_as_it_says(seeded: random.Random) -> None:
    """12 rounds: the interval from the 3rd to the 10th holds the median in 96.1 % of all cases."""
    times, covered = 4000, 0
    for _ in range(times):
        a = [math.exp(seeded.gauss(0, 0.1)) for _ in range(12)]
        b = [math.exp(seeded.gauss(0, 0.1)) / 1.07 for _ in range(12)]
        found = ratio(a, b)
        assert found is not None
        each = sorted(x / y for x, y in zip(a, b, strict=True))
        assert found == Ratio(median(each), each[2], each[9])
        covered += found.low <= 1.07 <= found.high
    assert covered / times == pytest.approx(0.9614, abs=0.02)  # six standard deviations


@pytest.mark.parametrize("rounds", range(9))
def test_too_few_rounds_give_no_interval(rounds: int, seeded: random.Random) -> None:
    turns = [seeded.uniform(1, 2) for _ in range(rounds)]
    assert (ratio(turns, turns) is None) == (rounds < 6)


@pytest.mark.parametrize("blind", [0.0, math.nan, -1.0])
def test_an_instrument_that_saw_nothing_in_a_turn_has_no_ratio(blind: float) -> None:
    turns = [1.0] * 12
    assert ratio(turns, [*turns[:11], blind]) is None
    assert ratio([*turns[:11], math.nan], turns) is None


# ---- the instruments


@pytest.mark.parametrize("clock", ["graph", "stream"])
def test_our_clocks_read_a_simulated_devices_kernels_warm_and_cold(clock: str) -> None:
    cuda = SimulatedCuda()
    bench = simulated_bench(cuda)
    problem = Doubling(dtype="float32", size=256)
    operator = doubling(cuda, cold_s=20e-6, warm_s=5e-6)
    ring = plan(problem.byte, bench.cache_byte, True, bench.usable_byte, bench.protocol)
    assert ring.slots > 10
    calls = Slots(bench, operator, "good", problem, ring.slots).calls
    for call in calls:
        call()
    which = bench.clock if clock == "graph" else bench.spare_clock
    assert which is not None and which.name == clock
    assert ours("warm", bench, which, calls[:1], flushed=False).read() == pytest.approx(5e-6, rel=0.01)
    assert ours("cold", bench, which, calls, ring.flushed).read() == pytest.approx(20e-6, rel=0.01)


def test_a_plain_loop_divides_by_the_calls_it_made(seeded: random.Random) -> None:
    call_s, at = seeded.uniform(1e-3, 9e-3), [0.0]

    def call() -> None:
        at[0] += call_s

    assert plain_loop(call, lambda: at[0]).read() == pytest.approx(call_s, rel=1e-9)


def test_a_plain_loop_makes_a_call_longer_than_its_turn_once() -> None:
    at = [0.0]

    def call() -> None:
        at[0] += 3 * TURN_S

    assert plain_loop(call, lambda: at[0]).read() == 3 * TURN_S


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


@dataclass
class Span:
    us: float

    def elapsed_us(self) -> float:
        return self.us


@dataclass
class Kind:
    name: str


@dataclass
class Event:
    device_type: Kind
    time_range: Span


def test_the_profilers_kernels_are_summed_and_the_hosts_events_left_out(seeded: random.Random) -> None:
    kernel_us = [seeded.uniform(1, 1000) for _ in range(30)]
    events = [Event(Kind("CUDA"), Span(us)) for us in kernel_us]
    events += [Event(Kind("CPU"), Span(seeded.uniform(1, 1000))) for _ in range(10)]
    seeded.shuffle(events)
    assert kernel_s(events, 10) == pytest.approx(1e-7 * sum(kernel_us))
    assert math.isnan(kernel_s([event for event in events if event.device_type.name == "CPU"], 10))
    assert math.isnan(kernel_s([], 10))


@pytest.mark.parametrize("name", ["do_bench", "do_bench_cudagraph"])
def test_tritons_answer_is_asked_for_as_a_median_and_given_in_seconds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def answer(fn: object, **options: object) -> float:
        asked.extend([fn, options])
        return 2.5  # milliseconds

    monkeypatch.setattr(f"triton.testing.{name}", answer)
    assert triton_instrument(name, print).read() == pytest.approx(2.5e-3)
    assert asked == [print, {"rep": 1e3 * TURN_S, "return_mode": "median"}]


def test_a_case_on_a_gpu_is_timed_warm_and_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the simulated device; the others' instruments are stood in for."""
    cuda = SimulatedCuda()
    operator = doubling(cuda, cold_s=20e-6, warm_s=5e-6)
    here = "bench.measure.instruments"
    monkeypatch.setattr(f"{here}.kernels.operator", lambda name: operator)
    monkeypatch.setattr(f"{here}.kernels.problem", lambda name: Doubling)
    monkeypatch.setattr(f"{here}.timer", lambda call, threads: Instrument("Timer", lambda: 5e-6))
    profiled: list[float] = []

    def profiler(call: object, launch_s: float) -> Instrument:
        profiled.append(launch_s)
        return Instrument("profiler", lambda: 4e-6)

    monkeypatch.setattr(f"{here}.cuda_profiler", profiler)
    monkeypatch.setattr(f"{here}.triton_instrument", lambda name, call: Instrument(name, lambda: 10e-6))
    given: Given = ("doubling", "good", {"dtype": "float32", "size": 256})
    warm, cold = cuda_comparisons(simulated_bench(cuda), given, 6)
    assert list(warm.median_s) == ["graph", "stream", "Timer", "do_bench_cudagraph", "profiler"]
    assert list(cold.median_s) == ["graph, ring", "stream, ring", "do_bench"]
    assert (warm.case[-5:], cold.case[-5:]) == (" warm", " cold")
    assert warm.median_s["graph"] == pytest.approx(5e-6, rel=0.01) == warm.median_s["stream"]
    assert cold.median_s["graph, ring"] == pytest.approx(20e-6, rel=0.01) == cold.median_s["stream, ring"]
    assert profiled == [pytest.approx(5e-6, rel=0.01)]
    known = warm.ours_over["profiler"], cold.ours_over["do_bench"]
    assert [r and r.middle for r in known] == [pytest.approx(5 / 4, rel=0.01), pytest.approx(2.0, rel=0.01)]
    assert set(warm.median_s) | set(cold.median_s) <= set(INCLUDES)


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
    monkeypatch.setattr("bench.measure.instruments.TURN_S", 0.01)
    bench = make_bench("cpu", 1 << 20, seed=1)
    given: Given = (
        "softmax",
        "aten",
        {"dtype": "float32", "direction": "forward", "rows": 64, "length": 512},
    )
    with torch.no_grad():
        found = cpu_comparison(bench, given, torch.get_num_threads(), 6)
    assert list(found.median_s) == ["host", "Timer", "loop"] and list(found.ours_over) == ["Timer", "loop"]
    assert all(1e-7 < seconds < 1 for seconds in found.median_s.values())
    assert all(one is not None and one.low <= one.middle <= one.high for one in found.ours_over.values())


# ---- what is printed


def comparison(case: str, host_s: float, **ratios: float | None) -> Comparison:
    known = {name: None if r is None else Ratio(r, r - 0.01, r + 0.02) for name, r in ratios.items()}
    seconds = {name: math.nan if r is None else host_s / r for name, r in ratios.items()}
    return Comparison(case, {"host": host_s, **seconds}, known)


def printed(found: list[Comparison]) -> list[str]:
    text = StringIO()
    print_report(Console(file=text, width=200), found)
    return [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]


def test_the_last_line_is_the_worst_of_the_long_cases() -> None:
    found = [
        comparison("short", 99e-6, Timer=1.5, loop=0.5),
        comparison("long", 101e-6, Timer=0.985, loop=1.002),
        comparison("longer", 2e-3, Timer=1.012, loop=1.001),
    ]
    lines = printed(found)
    assert lines[-1] == "ours / Timer: worst 1.5 % over 2 cases above 100 us"
    assert lines[-2] == "ours / loop: worst 0.2 % over 2 cases above 100 us"
    (row,) = (line for line in lines if line.lstrip().startswith("longer"))
    assert row.split() == "longer 2000.0 1976.3 1.012 (1.002 to 1.032) 1998.0 1.001 (0.991 to 1.021)".split()


def test_what_is_unknown_is_said_and_left_out_of_the_worst() -> None:
    found = [comparison("a", 1e-3, profiler=None, Timer=1.0), comparison("b", 1e-3, profiler=1.03, Timer=1.0)]
    lines = printed(found)
    assert "ours / profiler: worst 3.0 % over 1 cases above 100 us" in lines
    (row,) = (line for line in lines if line.lstrip().startswith("a "))
    assert "none seen" in row and "unknown" in row
    assert worst(found[:1], "profiler") == "ours / profiler: no case above 100 us has a ratio"


def test_sets_of_instruments_have_a_table_each_and_every_instrument_says_what_it_includes() -> None:
    warm = Comparison("gemm warm", {"graph": 1e-3, "Timer": 1e-3}, {"Timer": Ratio(1.0, 1.0, 1.0)})
    cold = Comparison(
        "gemm cold", {"graph, ring": 2e-3, "do_bench": 2e-3}, {"do_bench": Ratio(0.99, 0.98, 1.0)}
    )
    lines = printed([warm, cold])
    assert lines[-1].startswith("ours / Timer: ") and lines[-2].startswith("ours / do_bench: worst 1.0 %")
    for name in ("graph", "Timer", "graph, ring", "do_bench"):
        assert any(line.strip() == f"{name}  {INCLUDES[name]}" for line in lines)
    assert not any(INCLUDES["loop"] in line for line in lines)


def test_nothing_could_be_timed() -> None:
    assert printed([]) == []


# ---- the command


@pytest.mark.parametrize(
    ("device", "says"),
    [("cuda:7", "--bench-device cuda:7: "), ("tpu", "--bench-device tpu: give auto, cpu, cuda")],
)
def test_a_device_that_is_not_there_is_refused_in_one_sentence(device: str, says: str) -> None:
    words = [sys.executable, "-m", "bench", "instruments", "--bench-device", device]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == ""
    assert re.fullmatch(rf"error: {re.escape(says)}.*\n", done.stderr)
