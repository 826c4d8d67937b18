"""What the instruments' readings say: ratios on machines that move, the processes, and the tables."""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from statistics import median

import pytest
from rich.console import Console

from bench.validation import clock_agreement
from bench.validation.clock_agreement import (
    APART,
    INCLUDES,
    Comparison,
    Ratio,
    compare_instruments,
    comparison,
    print_report,
    ratio,
    worst,
)
from bench.validation.instruments import TURN_S, Instrument, alternate, turns_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def seeded(seed: int) -> random.Random:
    return random.Random(seed)


def compare(case: str, taken: list[Instrument], rounds: int) -> Comparison:
    return comparison(case, turns_of(taken, rounds))


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


# ---- processes


CHILD = """
import json, sys
settings = json.loads(sys.argv[1])
part, begin = settings["part"], settings["begin"]
def tell(**said):
    print(json.dumps(said), flush=True)
tell(say=f"{part} from {begin}")
if part == "together" and begin == 0:
    tell(case="a warm", turns_s={"graph": [2e-3] * 6, "Timer": [1e-3] * 6})
    tell(again_from=1)
elif part == "together":
    tell(case="b warm", turns_s={"graph": [1e-3] * 6, "Timer": [1e-3] * 6})
    tell(case="b cold", turns_s={"graph, ring": [3e-3] * 6, "do_bench": [3e-3] * 6})
elif part == "profiler":
    for name in "abc":
        tell(case=f"{name} warm", turns_s={"profiler": [1e-3] * (2 if name == "b" else 6)})
    sys.exit(3)
elif part == "cuda-bench":
    tell(case="b cold", turns_s={"cuda-bench": [1.5e-3] * 6})
"""


def test_each_that_must_be_alone_has_its_process_after_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench" / "validation").mkdir(parents=True)
    (tmp_path / "bench" / "validation" / "instruments.py").write_text(CHILD)
    for package in ("bench", "bench/validation"):  # without it, a package of this name elsewhere would win
        (tmp_path / package / "__init__.py").touch()
    monkeypatch.setattr(clock_agreement, "ROOT", tmp_path)
    text = StringIO()
    assert compare_instruments({"kind": "cuda"}, {}, Console(file=text, width=200)) == 0
    lines = [line.strip() for line in text.getvalue().splitlines() if line.strip()]
    order = ["together from 0", "together from 1", *(f"{part} from 0" for part in APART)]
    assert [line for line in lines if " from " in line] == order
    assert "profiler came to an early end; its readings so far are shown" in lines
    assert "ours / profiler: worst 100.0 % over 1 cases above 100 us" in lines, "of b it saw too little"
    assert "ours / cuda-bench: worst 100.0 % over 1 cases above 100 us" in lines
    assert not any(line.startswith("c warm") for line in lines), "our clock did not time it"


# ---- what is printed


def compared(case: str, host_s: float, **ratios: float | None) -> Comparison:
    known = {name: None if r is None else Ratio(r, r - 0.01, r + 0.02) for name, r in ratios.items()}
    seconds = {name: math.nan if r is None else host_s / r for name, r in ratios.items()}
    return Comparison(case, {"host": host_s, **seconds}, known)


def printed(found: list[Comparison]) -> list[str]:
    text = StringIO()
    print_report(Console(file=text, width=200), found)
    return [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]


def test_the_last_line_is_the_worst_of_the_long_cases() -> None:
    found = [
        compared("short", 99e-6, Timer=1.5, loop=0.5),
        compared("long", 101e-6, Timer=0.985, loop=1.002),
        compared("longer", 2e-3, Timer=1.012, loop=1.001),
    ]
    lines = printed(found)
    assert lines[-1] == "ours / Timer: worst 1.5 % over 2 cases above 100 us"
    assert lines[-2] == "ours / loop: worst 0.2 % over 2 cases above 100 us"
    (row,) = (line for line in lines if line.lstrip().startswith("longer"))
    assert row.split() == "longer 2000.0 1976.3 1.012 (1.002 to 1.032) 1998.0 1.001 (0.991 to 1.021)".split()


def test_what_is_unknown_is_said_and_left_out_of_the_worst() -> None:
    found = [compared("a", 1e-3, profiler=None, Timer=1.0), compared("b", 1e-3, profiler=1.03, Timer=1.0)]
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
