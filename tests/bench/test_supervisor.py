"""Which answers replace the worker, and what is asked again: real answers of a simulated GPU's process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bench.runner import supervisor
from bench.runner.run import Run
from bench.runner.supervisor import WorkerSupervisor, visit_to
from bench.runner.worker_process import WorkerDied
from bench.sampling.protocol import protocol
from bench.sweep.grammar import Role
from bench.sweep.load import Case
from bench.worker.__main__ import respond
from bench.worker.visit import Visit
from tests.bench.several import begun, gpu, small
from tests.bench.simulated import COLD_S, Doubling, SimulatedCuda, doubling, simulated_bench
from tests.drawing import is_deep


class SimulatedWorker:
    """As Worker, but the process is a simulated device here: a new one is as good as new."""

    made: ClassVar[list[SimulatedWorker]] = []
    cuda_settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, *_: object, **__: object) -> None:
        self.cuda = SimulatedCuda()
        for name, value in self.cuda_settings.items():
            setattr(self.cuda, name, value)
        self.bench = simulated_bench(self.cuda)
        self.asked: list[dict[str, Any]] = []
        self.closed = False
        self.made.append(self)

    def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        assert not self.closed
        if request["do"] == "hello":
            return {"torch": "simulated"}
        self.asked.append(request)
        if request["implementation"] == "dying":
            raise WorkerDied("crashed", "the worker ended with SIGSEGV")
        operator = doubling(self.cuda)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bench.worker.__main__.kernels.operator", lambda name: operator)
            return respond(self.bench, request)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[SimulatedWorker]:
    monkeypatch.setattr(SimulatedWorker, "made", made := [])
    monkeypatch.setattr(SimulatedWorker, "cuda_settings", {})
    monkeypatch.setattr(supervisor, "Worker", SimulatedWorker)
    return made


def measure(implementation: str, size: int = 4096) -> Visit:
    return Visit("doubling", implementation, {"dtype": "float32", "size": size}, "cold", 0.5, 1.0)


def test_an_error_that_leaves_the_device_well_keeps_the_worker(workers: list[SimulatedWorker]) -> None:
    device = WorkerSupervisor(gpu(0))
    for _ in range(4):
        answer = device.visit(measure("raising"))
        assert (answer.status, answer.reason) == ("error", "RuntimeError: no tile fits")
    assert device.visit(measure("good")).status == "ok"
    assert len(workers) == 1 and not device.renewed


def test_after_an_illegal_address_the_next_case_has_a_new_worker(workers: list[SimulatedWorker]) -> None:
    device = WorkerSupervisor(gpu(0))
    answer = device.visit(measure("faulting"))
    assert answer.status == "error" and "illegal memory access" in answer.reason
    assert device.visit(measure("good")).status == "ok"
    assert [worker.closed for worker in workers] == [True, False]
    ((cause, times),) = device.renewed.items()
    assert "illegal memory access" in cause and times == 1


def test_a_kernel_that_gets_stuck_costs_workers_once_and_no_row(workers: list[SimulatedWorker]) -> None:
    device = WorkerSupervisor(gpu(0))
    for size in (4096, 1024):
        answer = device.visit(measure("stuck_at_first", size))
        assert answer.status == "ok"
        assert (
            answer.passed_over == "young: young has not ended after 30 s; new: new has not ended after 30 s"
        )
    assert len(workers) == 3 and [len(worker.asked) for worker in workers] == [1, 1, 2]
    assert [worker.closed for worker in workers] == [True, True, False]
    assert device.renewed == {f"{name} has not ended after 30 s": 1 for name in ("young", "new")}
    problem = Doubling(dtype="float32", size=64)
    assert device.check("stuck_at_first", problem).status == "ok" and len(workers) == 3


def test_a_kernel_without_others_gets_stuck_three_times(workers: list[SimulatedWorker]) -> None:
    device = WorkerSupervisor(gpu(0))
    for made, size in ((2, 4096), (3, 1024)):  # at its first problem it is asked twice
        answer = device.visit(measure("stuck", size))
        assert (answer.status, answer.reason) == ("timeout", "young has not ended after 30 s")
        assert len(workers) == made and workers[-1].closed
    for size in (512, 2048):
        answer = device.visit(measure("stuck", size))
        assert answer.status == "error" and "young got stuck 3 times in this run" in answer.reason
    assert device.visit(measure("good")).status == "ok"
    assert len(workers) == 4, "nothing was launched that could spoil it"


def test_what_cannot_be_captured_is_asked_again_of_a_new_worker_by_the_stream(
    workers: list[SimulatedWorker],
) -> None:
    device = WorkerSupervisor(gpu(0))
    answer = device.visit(measure("uncapturable"))
    assert (answer.status, answer.clock) == ("ok", "stream")
    assert [[request.get("clock") for request in worker.asked] for worker in workers] == [[None], ["stream"]]
    assert workers[0].closed and workers[0].cuda.stream == "capture", "the first process is spoilt"
    assert workers[1].cuda.stream == "default"
    # Another visit of the same case knows, and so does every case after three that failed.
    assert device.visit(measure("uncapturable")).clock == "stream"
    assert len(workers) == 2
    for size, so_far in ((1024, 3), (2048, 4), (512, 4), (8192, 4)):
        assert device.visit(measure("uncapturable", size)).clock == "stream"
        assert len(workers) == so_far
    assert device.visit(measure("good")).clock == "graph"
    assert len(workers) == 4 and sum(device.renewed.values()) == 3


@pytest.mark.parametrize(
    ("budget_s", "grace_s"), [(600.0, 120.0), (3000.0, 300.0), (1e5, 600.0), (None, 600.0)]
)
def test_one_hang_does_not_take_a_gpus_whole_budget(
    tmp_path: Path, budget_s: float | None, grace_s: float
) -> None:
    assert Run(gpu(0), tmp_path, budget_s).worker.grace_s == grace_s


@pytest.mark.parametrize(("cases", "grace_s"), [(1, 3000.0), (4, 750.0), (5, 300.0)])
def test_one_of_a_few_cases_may_take_its_share_of_the_budget_before_it_counts_as_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: int, grace_s: float
) -> None:
    run = begun(tmp_path, monkeypatch, small(tmp_path, list(range(1, cases + 1))), budget="3000")
    run.interrupted()  # which gives the device back
    assert run.worker.grace_s == grace_s


@pytest.mark.parametrize(("role", "data"), [("measurement", "zeros"), ("roof", "uniform")])
def test_a_ceiling_has_the_inputs_that_it_always_has(role: Role, data: str) -> None:
    problem = Doubling(dtype="float32", size=8)
    case = Case("simulated", "slow", problem, "cold", series="", role=role)
    assert visit_to(case, protocol("cuda"), 0.5, None, first=True, data="zeros").data == data


@pytest.mark.parametrize("broken", ["", "operation failed due to a previous error during capture"])
def test_out_of_memory_in_a_capture_is_a_row_and_spoils_the_process_only_if_it_broke_the_capture(
    workers: list[SimulatedWorker], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(SimulatedWorker, "cuda_settings", {"broken_by_shortage": broken})
    device = WorkerSupervisor(gpu(0))
    answer = device.visit(measure("exhausting"))
    assert answer.status == "out_of_memory" and "Tried to allocate 2.00 GiB" in answer.reason
    assert device.visit(measure("good")).status == "ok"
    assert len(workers) == (2 if broken else 1)
    assert [request.get("clock") for request in workers[0].asked] == [None] * (1 if broken else 2)


def test_a_capture_that_fails_after_the_timing_costs_the_worker_and_not_the_row(
    workers: list[SimulatedWorker],
) -> None:
    """GraphClock.kernels captures once more to read the kernels' names."""
    device = WorkerSupervisor(gpu(0))
    device.visit(measure("good"))
    (worker,) = workers
    worker.cuda.keeps_graphs = True
    kernels = type(worker.bench.clock).kernels

    def spoilt(self: Any, call: Any) -> str:
        return kernels(self, worker.cuda.refuse)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(worker.bench.clock), "kernels", spoilt)
        answer = device.visit(measure("good"))
    assert answer.status == "ok" and answer.median_s and answer.kernels == ""
    assert worker.closed and "stream is capturing" in "".join(device.renewed)


def test_a_broken_capture_of_anybody_is_noticed(workers: list[SimulatedWorker]) -> None:
    """Not only our clock captures: the tuner does, by Triton. Stream and generator tell of it."""
    for spoil in ({"stream": "capture"}, {"generator_capturing": True}):
        device = WorkerSupervisor(gpu(0))
        assert device.visit(measure("good")).status == "ok"
        for name, value in spoil.items():
            setattr(workers[-1].cuda, name, value)
        device.visit(measure("declining"))
        assert workers[-1].closed and sum(device.renewed.values()) == 1


def test_whatever_is_asked_in_whatever_order_good_work_is_timed_by_the_graph(
    workers: list[SimulatedWorker], seed: int
) -> None:
    draw = random.Random(seed)
    device = WorkerSupervisor(gpu(0))
    expected = {"good": "ok", "raising": "error", "faulting": "error", "uncapturable": "ok", "wrong": "wrong"}
    expected |= {"exhausting": "out_of_memory", "declining": "unsupported", "dying": "crashed"}
    for _ in range(100 if is_deep() else 5):
        name = draw.choice([*expected])
        answer = device.visit(measure(name, draw.choice([64, 1024, 4096])))
        assert answer.status == expected[name], (name, answer)
        assert name != "good" or (
            answer.clock == "graph" and answer.median_s == pytest.approx(COLD_S, rel=0.01)
        )
