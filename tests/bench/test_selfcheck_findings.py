"""The doctor's groups that ask what is there and what is right, each broken once.

Those that watch the device at work are in test_selfcheck_device.py.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import kernels
from bench.device.datasheet import derive_datasheet
from bench.device.other_processes import OtherProcesses
from bench.environment.dependencies import Requirement
from bench.launching import tuning
from bench.runner.supervisor import WorkerSupervisor
from bench.runner.worker_process import WorkerDied
from bench.selfcheck import installation, operators, rows, tuner
from bench.selfcheck.finding import Finding
from bench.spec import Launch
from tests.bench.nvml_fake import FakeNvml
from tests.bench.selfcheck_stubs import OK, Stub, device, levels, row

ROOT = Path(__file__).parents[2]

# ---- driver, device and neighbours

WHEEL = {"__version__": "2.13.0+cu130", "cuda": "13.0"}


@pytest.mark.parametrize(
    ("torch", "speaks", "level", "says"),
    [
        (WHEEL, 13000, "PASS", "Driver 580.82.07 speaks CUDA 13.0; torch was built for CUDA 13.0."),
        (WHEEL, 13020, "PASS", "speaks CUDA 13.2"),
        ({**WHEEL, "cuda": "12.8"}, 12040, "PASS", "speaks CUDA 12.4"),  # minor versions are compatible
        (WHEEL, 12080, "FAIL", "580.65 or later, or install a torch wheel built for CUDA 12.8"),
        ({**WHEEL, "cuda": "14.1"}, 13000, "FAIL", "Update the driver to one that speaks CUDA 14, or"),
        (WHEEL, 0, "FAIL", "does not say which CUDA it speaks"),
        ({"__version__": "2.13.0+cpu", "cuda": None}, 13000, "FAIL", "built without CUDA"),
        ({}, 13000, "FAIL", "torch is not installed. Install it: make setup."),
    ],
)
def test_the_driver_must_speak_the_cuda_of_the_wheel(
    torch: dict[str, Any], speaks: int, level: str, says: str
) -> None:
    found = installation.compatible(torch, speaks, "580.82.07")
    assert found.level == level and says in f"{found.sentence} {found.remedy}"


def test_what_torch_was_built_for_is_read_without_importing_it() -> None:
    assert installation.torch_built_for()["__version__"] == metadata.version("torch")
    assert installation.driver_cuda("libnowhere.so") == 0


def test_a_gpu_without_a_file_is_said() -> None:
    assert installation.datasheet(device()).level == "PASS"

    def derived(name: str, capability: tuple[int, int]) -> Finding:
        sheet = derive_datasheet(name, capability, 100, 1.98e9, 2.6e9, 5120, 50 << 20, 80 << 30)
        return installation.datasheet(device(datasheet=sheet, name=name, slug="some-gpu"))

    assert derived("NVIDIA H100 NVL", (9, 0)).level == "WARN"
    unknown = derived("Unheard of", (99, 0))
    assert unknown.level == "WARN" and "peaks are unknown" in unknown.sentence
    assert "bench/device/datasheets/some-gpu.yaml" in unknown.remedy


def test_neighbours_and_states_that_refuse_fail_and_others_warn() -> None:
    def found(**readings: Any) -> dict[str, str]:
        return levels(installation.neighbours(device(), FakeNvml(**({"pids": []} | readings))))

    assert found() == {"neighbours": "PASS"}
    assert found(pids=[4711], mig=[1, 1], limit_mw=400_000, persistence=0, margin=3, bits=0x40) == {
        **{"foreign processes": "FAIL", "mig": "FAIL", "power limit": "WARN", "persistence": "WARN"},
        **{"temperature": "WARN", "clocks": "WARN"},
    }


def test_where_nvml_is_silent_nobody_is_not_claimed() -> None:
    for silent in (FakeNvml(initialised=False), FakeNvml(lost=True), FakeNvml(pids=None)):
        (found,) = installation.neighbours(device(), silent)
        assert (found.level, found.name) == ("WARN", "neighbours") and "NVML" in found.remedy


def test_a_cpu_that_others_use_is_degraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherProcesses, "busy", lambda _: "other processes take 1.0 of 2 processors")
    assert levels(installation.neighbours(device("cpu"), root=tmp_path)) == {"load": "WARN"}


def test_a_driver_that_gives_no_gpu_is_a_failure_even_where_the_cpu_is_measured() -> None:
    why = "its CUDA driver answers cuInit with error 803"
    first = next(installation.driver(device("cpu"), {"unusable_gpu": why}))
    assert (first.level, first.name) == ("FAIL", "GPU") and "error 803" in first.sentence


# ---- packages


def test_a_hidden_package_and_an_old_one_are_named_with_their_remedy() -> None:
    found = installation.required([Requirement("surely-not-there", ">=2.7"), Requirement("numpy", ">=999")])
    assert found.level == "FAIL" and "surely-not-there>=2.7, numpy>=999 (here is " in found.sentence
    assert "-m pip install" in found.remedy and found.remedy.endswith("'surely-not-there>=2.7' 'numpy>=999'")
    assert installation.required([]).level == "PASS"


def test_without_nvmath_the_cost_is_said() -> None:
    (found,) = installation.optional([Requirement("nvmath-python", ">=1.0")])
    assert found.level == "WARN" and "every case of cublaslt" in found.sentence
    assert found.remedy.endswith("'nvmath-python>=1.0'")
    (there,) = installation.optional([])
    assert there.level == "PASS" and "cublaslt" in there.sentence


def test_a_worker_with_other_packages_than_the_parent_is_a_failure() -> None:
    parent = {"python": "3.12.3", "torch": "2.11.0", "triton": "3.6.0"}
    hello = parent | {"torch": "2.13.0", "libraries": "CUDA 13.0, cuDNN 92000"}
    assert installation.agreement(parent, parent).level == "PASS"
    found = installation.agreement(hello, parent)
    assert found.level == "FAIL" and "torch 2.11.0 and 2.13.0" in found.sentence
    assert "PYTHONPATH" in found.remedy
    assert "CUDA 13.0, cuDNN 92000" in installation.worker(hello, 2.0).sentence


def test_a_worker_that_does_not_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(self: WorkerSupervisor) -> None:
        raise WorkerDied("crashed", "the worker ended with exit code 1: No module named 'torch'")

    monkeypatch.setattr(WorkerSupervisor, "started", dead)
    found = levels(installation.packages(device("cpu"), {}))
    assert found == {"packages": "PASS", "worker": "FAIL"}


# ---- operators


def questions(count: int) -> list[operators.OperatorCheck]:
    examples = kernels.problem("softmax")
    problem = examples(dtype="float32", direction="forward", rows=13, length=64)
    return [operators.OperatorCheck(f"number-{number}", problem) for number in range(count)]


def test_each_implementation_is_asked_once_before_any_for_a_second_type() -> None:
    softmax = kernels.problem("softmax")
    examples = [
        softmax(dtype=dtype, direction="forward", rows=13, length=length)
        for dtype in ("float16", "float32", "float64")
        for length in (1, 64, 4096)
    ]
    asked, refused = operators.combinations(device(), {"softmax": examples})
    names = [question.implementation for question in asked]
    assert set(names[:4]) == set(names) == {"aten", "inductor", "quack", "triton"}
    lengths = {(q.problem.dtype, q.problem.parameters()["length"]) for q in asked}
    assert lengths == {("float16", 4096), ("float32", 64), ("float64", 64)}  # 4 KiB at least
    assert refused["softmax"]["aten has no example of bfloat16"] == 1
    on_cpu, refused = operators.combinations(device("cpu"), {"softmax": examples})
    # What takes seconds to compile is asked once.
    assert [question.implementation for question in on_cpu].count("inductor") == 1
    assert {question.implementation for question in on_cpu} == {"aten", "inductor"}
    assert refused["softmax"]["triton runs on cuda, not on cpu"] == 3


def test_questions_go_to_workers_until_the_time_is_up() -> None:
    times = iter(range(1000))
    stub = Stub({}, OK)
    found = operators.answers(questions(9), lambda: stub, 1, 10.0, lambda: float(next(times)))
    names = [f"softmax number-{number} float32" for number in range(len(found))]
    assert [str(one.question) for one in found] == names
    assert 0 < len(found) < 9 and stub.closed and all(request["quick"] for request in stub.asked)
    several = operators.answers(questions(9), lambda: Stub({}, OK), 3, 10.0, lambda: 0.0)
    assert [one.question.implementation for one in several] == [f"number-{n}" for n in range(9)]


def test_a_check_that_the_end_cuts_short_is_no_hang() -> None:
    def worker() -> Stub:
        return Stub({}, row("timeout", "no answer"))

    assert not operators.answers(questions(1), worker, 1, 19.0, lambda: 0.0)
    times = iter((0.0, 0.0, 0.0, 99.0, 99.0))
    (hung,) = operators.answers(questions(1), worker, 1, 20.0, lambda: next(times))
    assert hung.row["status"] == "timeout"


def test_a_wrong_result_a_crash_and_what_was_not_reached_are_said() -> None:
    asked = questions(5)
    wrong, unsupported = row("wrong", "relative error 1.0"), row("unsupported", "no nvmath")
    given = [OK, wrong, unsupported, row("crashed", "SIGSEGV")]
    answered = [operators.CheckedRow(asked[n], given[n], 0.5) for n in range(4)]
    found = list(operators.judged(answered, asked, {"softmax": Counter({"aten is elsewhere": 2})}))
    assert levels(iter(found)) == {"softmax": "FAIL", "not reached": "WARN"}
    assert "1 of 4 combinations are right" in found[0].sentence and found[0].seconds == 2.0
    failing = "number-1 float32 wrong: relative error 1.0; number-3 float32 crashed: SIGSEGV"
    assert failing in found[0].sentence
    assert found[0].numbers["answers"][1]["status"] == "wrong"
    assert "softmax number-4 float32" in found[1].sentence
    (healthy,) = operators.judged(answered[0::2], asked[0:3:2], {"softmax": Counter()})
    assert healthy.level == "PASS" and "Unsupported: number-2: no nvmath (1)" in healthy.sentence


def test_a_library_that_is_wrong_or_nowhere_available_has_its_remedy() -> None:
    for name, remedy in operators.REMEDIES.items():
        softmax = questions(1)[0].problem
        asked = [operators.OperatorCheck(name, softmax) for _ in range(2)]
        statuses = {"WARN": ["unsupported"] * 2, "PASS": ["unsupported", "ok"], "FAIL": ["error"]}
        for level, given in statuses.items():
            pairs = zip(asked, given, strict=False)
            answered = [operators.CheckedRow(ask, row(status), 0.1) for ask, status in pairs]
            (found,) = operators.judged(answered, asked[: len(given)], {"softmax": Counter()})
            assert (found.level, found.remedy) == (level, "" if level == "PASS" else remedy)
    known = {each.name for operator in kernels.names() for each in kernels.problem(operator).implementations}
    assert set(operators.REMEDIES) <= known


# ---- the tuner


class Tuner:
    """Says its versions; `build` asks the device unless a choice lies in the folder."""

    def __init__(self, folder: Path, writes: bool = True, reads: bool = True, asks: bool = True) -> None:
        self.folder, self.writes, self.reads, self.asks = folder, writes, reads, asks
        self.forgotten = 0
        self.passed_over: list[str] = []

    def versions(self) -> str:
        return "triton 3.7.1, ptxas 13.0, CUDA driver 13.0"

    def forget(self) -> None:
        self.forgotten += 1

    def build(self) -> Launch:
        path = self.folder / "gpu.json"
        if not self.asks or (self.reads and path.exists()):
            return Launch(lambda: ())
        if self.writes:
            answer: dict[str, Any] = {"configuration": "2048 w4", "median_us": 12.5, "of": 5}
            answer |= {"passed_over": self.passed_over} if self.passed_over else {}
            path.write_text(json.dumps({"versions": {"activations 12": {"question": answer}}}))
        return Launch(lambda: (), tuning_s=1.5)

    def looked(self) -> dict[str, Finding]:
        found = list(tuner.looked(self, self.build, self.forget, self.folder))
        assert levels(iter(found))
        return {one.name: one for one in found}


def test_a_question_is_asked_written_and_read(tmp_path: Path) -> None:
    made = Tuner(tmp_path)
    found = [(one.name, one.level) for one in made.looked().values()]
    assert found == [(f"tuner {word}", "PASS") for word in ("versions", "asks", "remembers")]
    assert made.forgotten == 2


def test_candidates_that_do_not_compile_are_named(tmp_path: Path) -> None:
    made = Tuner(tmp_path)
    made.passed_over = ["4096 w8: CompilationError: None has no dtype"]
    found = made.looked()
    asks, remembers = (found[f"tuner {word}"] for word in ("asks", "remembers"))
    assert (asks.level, remembers.level) == ("WARN", "PASS") and "None has no dtype" in asks.sentence


def test_a_tuner_that_forgets_or_never_asks_is_seen(tmp_path: Path) -> None:
    assert Tuner(tmp_path, writes=False).looked()["tuner remembers"].level == "WARN"
    assert Tuner(tmp_path, reads=False).looked()["tuner remembers"].level == "FAIL"
    assert Tuner(tmp_path, asks=False).looked()["tuner asks"].level == "FAIL"


def test_a_name_that_torch_lacks_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tuner, "versions", lambda self: "triton 3.7.1, ptxas 13.0, CUDA driver 0.0")
    assert Tuner(tmp_path).looked()["tuner versions"].level == "FAIL"

    def broken(self: Tuner) -> str:
        raise AttributeError("module 'torch._C' has no attribute '_cuda_getDriverVersion'")

    monkeypatch.setattr(Tuner, "versions", broken)
    versions = Tuner(tmp_path).looked()["tuner versions"]
    assert versions.level == "FAIL" and "_cuda_getDriverVersion" in versions.sentence
    assert "Traceback" in versions.error


def test_runs_keep_their_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tuning.TUNED
    monkeypatch.setattr(tuning, "TUNED", before)
    tuner.choose_in(tmp_path)
    assert tuning.TUNED == tmp_path and tuning._choices.cache_info().currsize == 0


# ---- forecast


def test_a_run_of_hours_is_said_and_one_of_nothing_fails() -> None:
    def told(**facts: Any) -> Finding:
        values = {"cases": 17_000, "runnable": 14_000, "planned": 1_700, "seconds": 590.0, "budget_s": 600.0}
        return operators.forecast_finding(values | facts)

    assert told().level == "PASS" and "1700 of the 14000 cases" in told().sentence
    hours = told(seconds=9 * 3600.0, budget_s=None)
    assert hours.level == "WARN" and "9 h 00 min" in hours.sentence and "--bench-budget" in hours.remedy
    assert told(runnable=0).level == "FAIL"


# ---- words


def named_in(path: Path) -> Iterator[str]:
    """Names of findings that a module makes, where they stand in its text."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        first: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id in ("passed", "warned", "checked", "failed", "guarded"):
                first = node.args[0]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                first = next((v for t, v in pairs if isinstance(t, ast.Name) and t.id == "name"), None)
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value


def test_the_page_explains_every_line_and_no_other() -> None:
    names = {name for path in (ROOT / "bench" / "selfcheck").glob("*.py") for name in named_in(path)}
    names |= {*installation.REMEDIES, *(name for name, _ in rows.FAULTS.values())}
    for anchor in rows.anchors("cpu"):
        names |= {anchor.name, f"{anchor.short} rate"}
        names |= {f"{kind}, {anchor.short}" for kind in ("clocks", "profiler")}
    assert {"worker", "spin", "NVML", "unfinished", "failed capture", "forecast"} < names
    page = (ROOT / "docs" / "doctor.md").read_text()
    explained = {
        name
        for line in page.splitlines()
        if line.startswith("| ") and (found := re.match(r"\| (`.*?`) \|", line))
        for name in re.findall(r"`(.*?)`", found[1])
    }
    assert explained == names | {"OPERATOR"}


def test_an_operator_that_nothing_here_runs_is_no_fault_and_says_why() -> None:
    refused = {"fma": Counter({"triton runs on cuda, not on cpu": 1})}
    (finding,) = operators.judged([], [], refused)
    assert finding.level == "PASS"
    assert finding.sentence == "Nothing of it runs on this device: triton runs on cuda, not on cpu."
