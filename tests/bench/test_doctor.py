"""The doctor: each check broken once, what it shows and writes, and its command."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kernels
from bench.device.datasheet import find_datasheet
from bench.device.detect import Device
from bench.device.other_processes import OtherProcesses
from bench.doctor import clocks, faults, installation, operators, report, steadiness
from bench.doctor.finding import Finding, failed, passed, warned
from bench.runner.supervisor import WorkerSupervisor
from bench.runner.worker_process import WorkerDied
from bench.worker.__main__ import make_bench
from bench.worker.fault import Fault
from bench.worker.visit import Visit, VisitResult
from tests.bench.nvml_fake import FakeNvml

ROOT = Path(__file__).parents[2]
H100 = find_datasheet("NVIDIA H100 80GB HBM3")
OK = {"status": "ok", "reason": ""}


def device(kind: Any = "cuda", **facts: Any) -> Device:
    of_gpu: dict[str, Any] = {"index": 0, "uuid": "GPU-5ba8", "capability": (9, 0), "datasheet": H100}
    of_cpu: dict[str, Any] = {"index": None, "uuid": "", "capability": None, "datasheet": None}
    values: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "slug": "h100", "id": "id", "sm_count": 132}
    values |= {"cache_byte": 50 << 20, "memory_byte": 80 << 30, "driver": "580.82.07"}
    return Device(kind=kind, **(values | (of_gpu if kind == "cuda" else of_cpu) | facts))


def levels(found: Iterable[Finding]) -> dict[str, str]:
    """Name -> level; every WARN and FAIL says what to do, every sentence is one."""
    listed = list(found)
    for one in listed:
        assert bool(one.remedy) == (one.level != "PASS"), one
        assert one.sentence.endswith(".") and "\n" not in one.sentence, one
        assert one.remedy[:1] == one.remedy[:1].upper() and "\n" not in one.remedy, one
    return {one.name: one.level for one in listed}


class Stub:
    """A worker with a row for each implementation; a list of rows is given one by one."""

    def __init__(self, rows: Mapping[str, Any], kind: str = "cuda") -> None:
        self.device = device(kind)
        self.rows = {name: list(row) if isinstance(row, list) else row for name, row in rows.items()}
        self.grace_s, self.graces = 0.0, dict[str, float]()
        self.closed = self.stopped = False

    def check(self, implementation: str, problem: object = None, quick: bool = False) -> VisitResult:
        row = self.rows.get(implementation, OK)
        self.graces[implementation] = self.grace_s
        if isinstance(row, BaseException):
            raise row
        return VisitResult.from_json(row.pop(0) if isinstance(row, list) else row)

    def visit(self, visit: Visit) -> VisitResult:
        return self.check(visit.implementation)

    def threads(self, setting: str) -> None:
        return None

    def close(self) -> None:
        self.closed = True

    def kill(self) -> None:
        self.stopped = True


def row(status: str, reason: str = "it says so", **facts: Any) -> dict[str, Any]:
    return {"status": status, "reason": reason, **facts}


# ---- driver, device, neighbours and packages

WHEEL = {"__version__": "2.13.0+cu130", "cuda": "13.0"}


@pytest.mark.parametrize(
    ("torch", "speaks", "level", "says"),
    [
        (WHEEL, 13020, "PASS", "Driver 580.82.07 speaks CUDA 13.2; torch was built for CUDA 13.0."),
        ({**WHEEL, "cuda": "12.8"}, 12040, "PASS", "speaks CUDA 12.4"),  # minor versions are compatible
        (WHEEL, 12080, "FAIL", "580.65 or later, or install a torch wheel built for CUDA 12.8"),
        ({**WHEEL, "cuda": "14.1"}, 13000, "FAIL", "Update the driver to one that speaks CUDA 14, or"),
        (WHEEL, 0, "FAIL", "does not say which CUDA it speaks"),
        ({"__version__": "2.13.0+cpu", "cuda": None}, 13000, "FAIL", "built without CUDA"),
    ],
)
def test_the_driver_must_speak_the_cuda_of_the_wheel(
    torch: dict[str, Any], speaks: int, level: str, says: str
) -> None:
    found = installation.compatible(torch, speaks, "580.82.07")
    assert levels([found]) == {"driver": level} and says in f"{found.sentence} {found.remedy}"


def test_a_gpu_without_a_file_is_said() -> None:
    assert installation.datasheet(device()).level == "PASS"
    assert H100 is not None
    for rates, says in ((H100.rates, "8 % high"), ({}, "are unknown")):
        found = installation.datasheet(device(datasheet=replace(H100, derived=True, rates=rates)))
        assert levels([found]) == {"datasheet": "WARN"} and says in found.sentence


def test_neighbours_and_states_that_refuse_fail_and_others_warn() -> None:
    def found(**readings: Any) -> dict[str, str]:
        return levels(installation.neighbours(device(), FakeNvml(**({"pids": []} | readings))))

    assert found() == {"neighbours": "PASS"}
    assert found(pids=[4711], mig=[1, 1], limit_mw=400_000, persistence=0, margin=3, bits=0x40) == {
        **{"foreign processes": "FAIL", "mig": "FAIL", "power limit": "WARN", "persistence": "WARN"},
        **{"temperature": "WARN", "clocks": "WARN"},
    }
    for silent in (FakeNvml(initialised=False), FakeNvml(lost=True), FakeNvml(pids=None)):
        assert levels(installation.neighbours(device(), silent)) == {"neighbours": "WARN"}


def test_a_cpu_that_others_use_is_degraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherProcesses, "busy", lambda _: "other processes take 1.0 of 2 processors")
    assert levels(installation.neighbours(device("cpu"), root=tmp_path)) == {"load": "WARN"}


def test_if_no_worker_starts_nothing_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(self: WorkerSupervisor) -> None:
        raise WorkerDied("crashed", "the worker ended with exit code 1: No module named 'torch'")

    monkeypatch.setattr(WorkerSupervisor, "started", dead)
    checks = (installation.packages, lambda device: iter([passed("later", "Reached.")]))
    assert levels(report.findings(device("cpu"), "", checks)) == {"packages": "PASS", "worker": "FAIL"}


# ---- operators


def asked(*names: str) -> list[operators.Asked]:
    softmax = kernels.problem("softmax")
    problem = softmax(dtype="float32", direction="forward", rows=13, length=64)
    return [operators.Asked(name, problem) for name in names]


def test_each_implementation_has_a_small_case_of_the_usual_type() -> None:
    softmax = kernels.problem("softmax")
    examples = [
        softmax(dtype=dtype, direction="forward", rows=13, length=length)
        for dtype in ("float32", "float16")
        for length in (1, 64, 4096)
    ]
    found = list(operators.cases(device(), {"softmax": examples}))
    assert {case.implementation for case in found} == {"aten", "inductor", "triton"}
    assert {(case.problem.dtype, case.problem.parameters()["length"]) for case in found} == {
        ("float16", 4096)
    }
    relu = kernels.operator("activations").examples
    on_cpu = operators.cases(device("cpu"), {"softmax": examples, "activations": relu})
    assert [(case.implementation, case.problem.dtype) for case in on_cpu] == [
        *(("aten", "float32"), ("aten", "float32"), ("inductor", "float32")),
    ]


def test_cases_go_to_workers_until_the_time_is_up() -> None:
    times = iter(range(0, 1000, 10))
    stubs = [Stub({})]
    found = operators.answers(asked(*"abcdefghi"), stubs, lambda: float(next(times)))  # type: ignore[arg-type]
    assert list(found) == asked("a", "b") and stubs[0].closed
    several = operators.answers(asked(*"abcdefghi"), [Stub({}) for _ in range(3)], lambda: 0.0)  # type: ignore[arg-type, misc]
    assert set(several) == set(asked(*"abcdefghi"))


def test_an_interruption_stops_every_worker() -> None:
    stubs = [Stub({"a": KeyboardInterrupt()})]
    with pytest.raises(KeyboardInterrupt):
        operators.answers(asked("a"), stubs)  # type: ignore[arg-type]
    assert stubs[0].stopped


def test_a_wrong_result_and_a_crash_fail() -> None:
    bad = row("wrong", "relative error 1.0"), row("crashed", "SIGSEGV"), row("unsupported", "no nvmath")
    given = dict(zip(asked("aten", "triton", "quack", "cublaslt"), (OK, *bad), strict=True))
    found = operators.judged("softmax", given)
    assert levels([found]) == {"softmax": "FAIL"} and found.remedy == operators.REMEDY
    assert found.sentence == (
        "1 of 4 implementations are right (aten). Failing: triton wrong: relative error 1.0; "
        "quack crashed: SIGSEGV. Unsupported: cublaslt unsupported: no nvmath."
    )
    assert operators.judged("softmax", dict(zip(asked("aten"), [OK], strict=True))).level == "PASS"


# ---- faults


def test_every_fault_is_a_row_and_the_next_is_good() -> None:
    illegal = row("error", "AcceleratorError: CUDA error: an illegal memory access was encountered")
    right = {"illegal": illegal, "hang": row("timeout"), "kill": row("crashed"), "good": OK}

    def told(**changes: Any) -> str:
        found = faults.survived(Stub(right | changes))  # type: ignore[arg-type]
        assert list(levels([found])) == ["faults"]
        return found.level

    stub = Stub(right)
    assert faults.survived(stub).level == "PASS"  # type: ignore[arg-type]
    assert stub.graces == {"good": 60.0, "illegal": 60.0, "hang": 2.0, "kill": 60.0}
    assert stub.graces.keys() == {one.name for one in Fault.implementations}
    assert told(hang=OK) == "FAIL"
    assert told(illegal=row("error", "CompilationError: no compiler")) == "FAIL"
    assert told(good=[OK, row("error", "AcceleratorError: CUDA error")]) == "FAIL"


# ---- two clocks


@pytest.mark.parametrize(
    ("ratios", "cuda", "cpu"),
    [
        ([1.0, 1.01, 0.99], "PASS", "PASS"),
        ([1.03, 1.04, 1.05], "WARN", "WARN"),
        ([1.2, 1.49, 1.6], "FAIL", "WARN"),
        ([0.5, 0.6, 0.7], "FAIL", "WARN"),
        ([0.845, 0.966, 1.059], "WARN", "PASS"),  # a CPU's scatter leaves it open
    ],
)
def test_clocks_that_disagree_are_seen(ratios: list[float], cuda: str, cpu: str) -> None:
    turns = [(2e-4 * ratio, 2e-4) for ratio in ratios]
    for kind, level in (("cuda", cuda), ("cpu", cpu)):
        found = clocks.agreed(steadiness.anchors(kind)[0], turns, kind)  # type: ignore[arg-type]
        assert levels([found]) == {"two clocks": level}


def test_both_clocks_time_the_same_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "TURN_S", 0.01)
    parameters = {"dtype": "float32", "kind": "copy", "length": 1 << 20}
    turns = clocks.turns_of(make_bench("cpu", 1 << 20, 1), "stream", "aten", parameters)
    assert len(turns) == clocks.ROUNDS and all(1e-6 < second < 1.0 for pair in turns for second in pair)


# ---- steadiness

GEMM_S, COPY_S = 2 * 8192**3 / 989.4e12, 2 * 4 * (1 << 26) / 3.352e12
"""Seconds of the anchors at an H100's peaks."""
GRAPH = OK | {"clock": "graph", "late_samples": 0, "samples_s": [1.0] * 100}
FULL = GRAPH | dict.fromkeys(steadiness.COLUMNS, 0) | {"sm_clock_hz": 1.98e9}


def visited(kind: Any, copies: list[float], products: list[float], **facts: Any) -> list[Finding]:
    """The findings where copies and products run at these shares of a peak, in turns."""

    def at(peak_s: float, shares: list[float]) -> list[dict[str, Any]]:
        visits = itertools.islice(itertools.cycle(shares), steadiness.PROCESSES * steadiness.ROUNDS)
        return [FULL | facts | {"median_s": peak_s / share} for share in visits]

    library = "onednn" if kind == "cpu" else "cublas"
    worker = Stub({"aten": at(COPY_S, copies), library: at(GEMM_S, products)})
    return list(steadiness.visited(worker, device(kind), lambda: 0.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_steady_work_passes_and_scattered_work_is_said(kind: str) -> None:
    calm, restless = [0.8, 0.79, 0.81], [0.8, 0.84, 0.86, 0.9]
    assert set(levels(visited(kind, calm, calm)).values()) == {"PASS"}
    found = levels(visited(kind, restless, calm))
    assert (found["steady memory"], found["steady GEMM"]) == ("WARN", "PASS")
    assert levels(visited(kind, calm, restless))["steady GEMM"] == "WARN"


def test_a_slow_machine_has_fewer_visits() -> None:
    visits = [FULL | {"median_s": 1e-2}] * steadiness.LEAST_VISITS  # one more is not there to be asked for
    seconds = itertools.count(step=2 * steadiness.LONGEST_S)
    worker = Stub({"aten": visits, "onednn": visits})
    found = steadiness.visited(worker, device("cpu"), lambda: next(seconds))  # type: ignore[arg-type]
    assert [one.sentence[:8] for one in found] == [f"{steadiness.LEAST_VISITS} visits"] * 2


def test_rates_lie_between_60_and_105_percent_of_the_datasheet() -> None:
    for copy, gemm, memory, product in ((0.9, 0.5, "PASS", "WARN"), (1.1, 0.8, "FAIL", "PASS")):
        found = levels(visited("cuda", [copy], [gemm]))
        assert (found["steady memory"], found["steady GEMM"]) == (memory, product)
    unknown = device(datasheet=None)
    assert steadiness.steady(steadiness.anchors("cuda")[0], [1.0, 1.0], 1.0, unknown).level == "PASS"


@pytest.mark.parametrize(
    ("facts", "name", "level"),
    [
        ({"late_samples": 3}, "late samples", "PASS"),
        ({"late_samples": 20}, "late samples", "WARN"),
        ({"clock": "stream"}, "graphs", "WARN"),
        ({"power_w": None}, "NVML", "WARN"),
        ({"held_thermal": 0.4}, "clock", "WARN"),
        ({"held_thermal": 0.04}, "clock", "PASS"),
        ({"held_hardware": 0.4}, "clock", "WARN"),
    ],
)
def test_rows_tell_of_graphs_nvml_clock_and_late_samples(facts: Any, name: str, level: str) -> None:
    found = levels(visited("cuda", [0.8], [0.8], **facts))
    assert found[name] == level
    assert set(found.values()) - {level} <= {"PASS"}


def test_a_clock_that_moves_is_said() -> None:
    rows = [FULL | {"sm_clock_hz": hertz} for hertz in (1.98e9, 1.755e9)]
    moves = {one.name: one for one in steadiness.told(rows)}["clock"]
    assert moves.level == "WARN" and "1755 to 1980 MHz" in moves.sentence
    assert "clock" not in levels(steadiness.told([GRAPH])), "without NVML there is none to be told of"


def test_a_row_that_fails_ends_it() -> None:
    found = list(steadiness.visited(Stub({"aten": row("crashed")}), device("cpu"), lambda: 0.0))  # type: ignore[arg-type]
    assert levels(found) == {"steady memory": "FAIL"} and "crashed: it says so" in found[0].sentence


# ---- what is shown and written


@pytest.mark.parametrize(
    ("found", "code", "word"),
    [
        ([], 0, "healthy"),
        ([passed("a", "Good.")], 0, "healthy"),
        ([passed("a", "Good."), warned("c", "So so.", "See to it.")], 1, "degraded"),
        ([failed("b", "Bad.", "Mend it."), warned("c", "So so.", "See to it.")], 2, "unusable"),
    ],
)
def test_the_worst_line_is_the_exit_code(found: list[Finding], code: int, word: str) -> None:
    assert report.verdict(found).startswith(f"{word} (exit code {code})")


def test_a_check_that_raises_is_its_failure_alone_and_a_driver_without_gpu_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(device: Device) -> Iterator[Finding]:
        yield passed("before", "Reached.")
        raise KeyError("the cause")

    checks = (broken, lambda device: iter([passed("after", "Reached.")]))
    found = list(report.findings(device("cpu"), "cuInit answers 803", checks))
    assert levels(found) == {"GPU": "FAIL", "before": "PASS", "broken check": "FAIL", "after": "PASS"}
    assert "broken: KeyError: 'the cause'." in found[2].sentence and "Traceback" in capsys.readouterr().err
    says = "FAIL GPU: A CUDA driver is installed and gives no GPU: cuInit answers 803."
    assert list(report.lines(found[0])) == [says, f"     {report.GPU_REMEDY}"]
