"""The doctor's groups that watch the device at work, each broken once: what lies or errs is seen."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from bench.device.nvml import NvmlGpu
from bench.model.ceilings import two_speeds
from bench.selfcheck import clocks, rows, telemetry
from bench.selfcheck.clock_agreement import ClockReadings, Ratio
from bench.selfcheck.finding import Finding
from bench.worker.clock import GraphClock, HostClock
from tests.bench import simulated
from tests.bench.nvml_fake import Clock, FakeNvml
from tests.bench.selfcheck_stubs import OK, Stub, device, levels, row
from tests.bench.simulated import SimulatedCuda

# ---- NVML under load


def under_load(
    nvml: FakeNvml, energy_mj: int = 40_000, counters: Mapping[int, int] = MappingProxyType({})
) -> list[Finding]:
    """The findings where a load of 50 ms lets the counters advance by so much."""
    clock = Clock()

    def load() -> None:
        clock.sleep(0.05)
        nvml.run(dict(counters), energy_mj)

    return list(telemetry.under_load("GPU-5ba8", load, nvml, clock))


def healthy_nvml(**readings: Any) -> FakeNvml:
    nvml = FakeNvml(**readings)
    nvml.counters(74, 75, 76, 269, 270, 271)
    nvml.fields[telemetry.POWER_INSTANT] = (1, 500_000)
    return nvml


def test_nvml_is_judged_by_what_it_tells() -> None:
    names = ("NVML", "NVML counters", "clock under load")
    assert levels(iter(under_load(healthy_nvml()))) == dict.fromkeys(names, "PASS")
    for silent in (FakeNvml(initialised=False), healthy_nvml(lost=True)):
        assert levels(iter(under_load(silent))) == {"NVML": "WARN"}
    cold = under_load(healthy_nvml(temperature=None))[0]
    assert cold.level == "WARN" and "temperature_c: rows have no temperature" in cold.sentence
    still, without_counters = under_load(healthy_nvml(), energy_mj=0), under_load(FakeNvml())
    assert still[1].level == without_counters[1].level == "WARN"


@pytest.mark.parametrize(
    ("counter", "percent", "level"),
    [(74, 40, "PASS"), (75, 40, "WARN"), (270, 40, "WARN"), (271, 40, "WARN"), (271, 4, "PASS")],
)
def test_a_clock_that_heat_or_hardware_holds_back_is_said(counter: int, percent: int, level: str) -> None:
    """Power may: a matrix multiplication of full size is there to reach the limit. Moments move no median."""
    *_, found = under_load(healthy_nvml(), counters={counter: percent * 500_000})
    assert (found.name, found.level) == ("clock under load", level) and f"{percent} %" in found.sentence


# ---- our clock


def on(cuda: SimulatedCuda, empty_s: float = 1e-6) -> dict[str, str]:
    return levels(clocks.gpu(cuda, lambda: cuda.launch(lambda: empty_s), cuda.host_now))


class ColdCuda(SimulatedCuda):
    """Spins at 345 MHz for its first 100 ms, then at 1980 MHz."""

    def _sleep(self, cycles: int) -> None:
        self.run(cycles / (345e6 if self.device_s < 0.1 else 1980e6))


class Hasty(GraphClock):
    """Takes the rate of an idle device for the rate under load."""

    cycles_per_s = property(lambda self: 345e6, lambda self, rate: None)  # type: ignore[assignment]


def test_a_spin_calibrated_on_an_idle_gpu_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "GraphClock", Hasty)
    cuda = ColdCuda()
    first = next(clocks.gpu(cuda, lambda: None, cuda.host_now))
    assert (first.level, first.name) == ("FAIL", "spin") and "20 us" in first.remedy
    assert first.numbers["cold_per_s"] == pytest.approx(345e6, rel=0.01)
    assert first.numbers["warm_per_s"] == pytest.approx(1980e6, rel=0.02)
    assert clocks.spin(345e6, 1980e6, 1970e6).level == "PASS"  # calibrated on a loaded GPU
    assert clocks.spin(1980e6, 1980e6, 1700e6).level == "FAIL"


def test_events_coarser_than_reckoned_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def coarse(self: Any, end: Any) -> float:
        return round((end.at_s - self.at_s) / 4e-6) * 4e-3

    monkeypatch.setattr(simulated.Event, "elapsed_time", coarse)
    assert on(SimulatedCuda())["event step"] == "WARN"


def test_a_tool_that_watches_every_launch_is_said() -> None:
    assert on(SimulatedCuda(), empty_s=50e-6)["empty graphs"] == "WARN"

    class Watched(SimulatedCuda):
        def run(self, seconds: float) -> float:
            return super().run(seconds + 30e-6 * (seconds == 0))

    assert on(Watched())["empty pair"] == "WARN"


def test_a_host_clock_is_judged_by_its_step_and_by_empty_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HostClock(lambda: None)
    assert levels(clocks.host(clock)) == {"clock step": "PASS", "empty call": "PASS"}
    monkeypatch.setattr(HostClock, "resolution_s", 4e-3)
    monkeypatch.setattr(HostClock, "batch", lambda self, calls, flushed: lambda: 5e-6 * len(calls))
    assert levels(clocks.host(clock)) == {"clock step": "WARN", "empty call": "WARN"}


# ---- CUDA graphs

GRAPH = OK | {"clock": "graph", "kernels": "neg grid 1x1x1 block 128", "samples_s": [1.0]}
STREAM = GRAPH | {"clock": "stream"}


@pytest.mark.parametrize(
    ("good", "refused", "found"),
    [
        ([GRAPH, GRAPH], STREAM, {"capture": "PASS", "failed capture": "PASS"}),
        ([GRAPH, GRAPH], row("error"), {"capture": "PASS", "failed capture": "PASS"}),
        ([STREAM], STREAM, {"capture": "FAIL"}),
        ([row("error")], STREAM, {"capture": "FAIL"}),
        ([GRAPH, row("error")], STREAM, {"capture": "PASS", "failed capture": "FAIL"}),
        ([GRAPH, STREAM], STREAM, {"capture": "PASS", "failed capture": "FAIL"}),
        ([GRAPH, GRAPH], GRAPH, {"capture": "PASS", "failed capture": "FAIL"}),
    ],
)
def test_a_failed_capture_must_leave_the_next_row_right(
    good: list[dict[str, Any]], refused: dict[str, Any], found: dict[str, str]
) -> None:
    stub = Stub({"good": good, "uncapturable": refused})
    assert levels(rows.captured(stub)) == found
    assert all(request["operator"] == "fault" for request in stub.asked)


# ---- survival


def test_every_fault_is_a_row_and_the_next_is_good() -> None:
    illegal = row("error", "AcceleratorError: CUDA error: an illegal memory access was encountered")
    right = {"illegal": illegal, "hang": row("timeout"), "kill": row("crashed"), "good": OK}

    def told(fault: str, **changes: Any) -> dict[str, str]:
        return levels(iter([rows.survived(Stub(right | changes), fault)]))

    for fault, (name, _) in rows.FAULTS.items():
        stub = Stub(right)
        assert levels(iter([rows.survived(stub, fault)])) == {name: "PASS"}
        assert stub.graces == {"good": 60.0, fault: 2.0 if fault == "hang" else 60.0}
    assert told("hang", hang=OK) == {"hang": "FAIL"}
    compiler = row("error", "CompilationError: no compiler")
    assert told("illegal", illegal=compiler) == {"illegal address": "FAIL"}
    poisoned = [OK, row("error", "AcceleratorError: CUDA error")]
    assert told("illegal", good=poisoned) == {"illegal address": "FAIL"}
    assert told("kill", good=row("crashed")) == {"good row": "FAIL"}


# ---- two clocks


def comparison(**middles: float | None) -> ClockReadings:
    ratios = {n: None if m is None else Ratio(m, m - 0.005, m + 0.005) for n, m in middles.items()}
    return ClockReadings("gemm", {"graph": 2e-4, **dict.fromkeys(middles, 2e-4)}, ratios)


@pytest.mark.parametrize(
    ("middles", "cuda", "cpu"),
    [
        ({"stream": 1.01, "profiler": 0.985}, "PASS", "PASS"),
        ({"stream": 1.01, "profiler": 1.04}, "WARN", "WARN"),
        ({"stream": 1.0, "profiler": None}, "WARN", "WARN"),
        ({"stream": 1.49, "profiler": 1.0}, "FAIL", "WARN"),
        ({"stream": 0.6, "profiler": 1.0}, "FAIL", "WARN"),
    ],
)
def test_clocks_that_disagree_are_seen(middles: dict[str, float | None], cuda: str, cpu: str) -> None:
    assert on_either(comparison(**middles)) == (cuda, cpu)


def on_either(compared: ClockReadings) -> tuple[str, str]:
    """The levels on a GPU and on a CPU."""
    found = [clocks.agreed("clocks", compared, kind) for kind in ("cuda", "cpu")]  # type: ignore[arg-type]
    assert levels(iter(found))
    return found[0].level, found[1].level


def test_the_profiler_which_is_asked_later_never_fails() -> None:
    found = [clocks.profiled("GEMM", comparison(profiler=middle)) for middle in (1.01, 1.05, 1.5)]
    assert [one.level for one in found] == ["PASS", "WARN", "WARN"]
    assert set(levels(iter(found))) == {"profiler, GEMM"}


def test_what_a_cpus_scatter_leaves_open_is_no_warning_and_shows() -> None:
    scattered = ClockReadings("copy", {"host": 2e-4, "Timer": 2e-4}, {"Timer": Ratio(0.966, 0.845, 1.059)})
    assert on_either(scattered) == ("WARN", "PASS")
    assert "0.966 (0.845 to 1.059) of Timer" in clocks.agreed("clocks", scattered, "cpu").sentence


# ---- steadiness


GEMM_S, COPY_S = 2 * 8192**3 / 989.4e12, 2 * 4 * (1 << 26) / 3.352e12
"""Seconds of the anchors at an H100's peaks."""


def visited(
    kind: str, copies: list[float], products: list[float], hertz: Sequence[float] = (0.0,), **facts: Any
) -> list[Finding]:
    """The findings where copies and products run at these shares of a peak, in turns; so does the clock."""
    good = OK | {"late_samples": 0, "clock_start_s": 4e-6, "samples_s": [1.0] * 100} | facts

    def at(peak_s: float, shares: list[float]) -> list[dict[str, Any]]:
        in_turn = zip(itertools.cycle(shares), itertools.cycle(hertz), strict=False)
        visits = itertools.islice(in_turn, rows.PROCESSES * rows.ROUNDS)
        return [good | {"median_s": peak_s / share, "sm_clock_hz": hz} for share, hz in visits]

    library = "onednn" if kind == "cpu" else "cublas"
    launch = [good | {"median_s": 2e-6}]
    worker = Stub({"aten": at(COPY_S, copies) + launch, library: at(GEMM_S, products)}, kind=kind)
    return list(rows.visited(worker, device(kind), lambda: 0.0))  # type: ignore[arg-type]


def test_anchors_lie_between_60_and_105_percent_of_the_datasheet() -> None:
    def rated(gemm: float = 0.8, copy: float = 0.9, **facts: Any) -> dict[str, str]:
        found = levels(iter(visited("cuda", [copy], [gemm], **facts)))
        return {name: found[name] for name in ("GEMM rate", "copy rate", "late samples")}

    right = {"GEMM rate": "PASS", "copy rate": "PASS", "late samples": "PASS"}
    assert rated() == right
    assert rated(gemm=0.5) == right | {"GEMM rate": "WARN"}
    assert rated(copy=1.1) == right | {"copy rate": "FAIL"}
    assert rated(late_samples=3) == right and rated(late_samples=6) == right | {"late samples": "WARN"}
    assert rated(late_samples=None) == right | {"late samples": "WARN"}
    assert rows.share(rows.anchors("cuda")[0], 1.0, None).level == "WARN"


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_steady_work_passes_and_scattered_work_is_said(kind: str) -> None:
    calm, restless = [0.8, 0.79, 0.81], [0.8, 0.84, 0.86, 0.9]
    assert set(levels(iter(visited(kind, calm, calm))).values()) == {"PASS"}
    found = levels(iter(visited(kind, restless, calm)))
    assert (found["steady memory"], found["steady GEMM"]) == ("WARN", "PASS")
    assert levels(iter(visited(kind, calm, restless)))["steady GEMM"] == "WARN"
    assert "two speeds" not in visited(kind, restless, calm)[0].sentence


def test_a_slow_machine_has_fewer_visits() -> None:
    visit = OK | {"median_s": 1e-2, "samples_s": []}
    visits = [visit] * rows.LEAST_VISITS  # one more is not there to be asked for
    seconds = itertools.count(step=2 * rows.LONGEST_S)
    worker = Stub({"aten": visits, "onednn": visits}, kind="cpu")
    found = list(rows.visited(worker, device("cpu"), lambda: next(seconds)))  # type: ignore[arg-type]
    assert [one.sentence[:8] for one in found] == [f"{rows.LEAST_VISITS} visits"] * 2


def test_two_speeds_are_named() -> None:
    memory, _ = visited("cpu", [0.46, 0.8, 0.79], [1.0])
    byte = 2 * 4 * (1 << 24)
    low, high = byte / COPY_S * 0.46e-9, byte / COPY_S * 0.795e-9
    assert memory.level == "WARN"
    assert f"two speeds: {low:.4g} GB/s in 4 and {high:.4g} GB/s in 8." in memory.sentence
    assert two_speeds([1.0] * 11 + [2.0], least=2) is None, "one visit is a disturbance"


@pytest.mark.parametrize(
    ("hertz", "level", "says"),
    [
        ([1.41e9], "PASS", "stayed at 1410 MHz of at most 1980 MHz: locked, or held there."),
        ([1.98e9], "PASS", "stayed at 1980 MHz of at most 1980 MHz."),
        ([1.98e9, 1.755e9], "WARN", "is not locked: it was 1755 to 1980 MHz of at most 1980 MHz."),
        ([0.0], "PASS", "is unknown"),
    ],
)
def test_a_clock_that_moves_is_said(
    hertz: list[float], level: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "NvmlGpu", lambda uuid: NvmlGpu("GPU-5ba8", FakeNvml(sm_mhz=1980)))
    found = next(one for one in visited("cuda", [1.0], [1.0], hertz) if one.name == "steady clock")
    assert found.level == level and says in found.sentence


def test_a_row_that_fails_ends_the_group() -> None:
    worker = Stub({"aten": row("crashed")}, kind="cpu")
    (only,) = rows.visited(worker, device("cpu"), lambda: 0.0)  # type: ignore[arg-type]
    assert (only.level, only.name) == ("FAIL", "steady memory") and "crashed: it says so" in only.sentence
