"""Custom kernels: from FILE:FUNCTION to rows, and what is refused before anything is timed."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.cli.run_command import cases_of
from bench.device.detect import Device, detect
from bench.errors import UserError
from bench.runner import supervisor, worker_process
from bench.runner.custom_kernel import Untimed, checked_kernels, kernel_of
from bench.runner.supervisor import WorkerSupervisor
from bench.store.parquet import read_rows
from bench.worker import custom_kernel
from bench.worker.__main__ import make_bench, respond
from tests.bench import several
from tests.processes import pytested

KERNELS = """
import ctypes, pathlib, time
import torch

def right(x):
    return torch.softmax(x, 1)

def fills(x, out):
    torch.softmax(x, 1, out=out)

def knows(x, problem):
    assert problem.length == x.shape[1]
    return torch.softmax(x, 1)

def wrong(x):
    return torch.softmax(x, 0)

def nothing(x, out):
    pass

def fresh(x):
    return torch.empty_like(x)

def behind(x, out):
    torch.softmax(x, 1, out=out)
    ctypes.memset(out.data_ptr() + out.nbytes, 0, 64)

def before(x, out):
    torch.softmax(x, 1, out=out)
    ctypes.memset(out.data_ptr() - 8, 0, 8)

def scribbles(x):
    y = torch.softmax(x, 1)
    x.zero_()
    return y

def raises(x):
    raise ValueError("odd")

def even(x):
    if x.shape[1] % 2:
        raise NotImplementedError("even lengths only")
    return torch.softmax(x, 1)

def wide(x):
    return torch.softmax(x.double(), 1)

def none(x):
    torch.softmax(x, 1)

def hangs(x):
    pathlib.Path(__file__).with_name("hangs").touch()
    time.sleep(1e4)
"""
RIGHT = ("right", "fills", "knows")
REFUSED = {
    "wrong": r"wrong at softmax float32-forward-rows13-length1, .*relative error 9\.\d+e-01 of an untimed",
    "nothing": "wrong at .*holds NaN or infinity or was not written",
    "fresh": "wrong at ",
    "behind": "error at softmax float32-forward-rows13-length1, .*it writes 64 bytes behind its output",
    "before": "it writes 8 bytes before its output",
    "scribbles": "error at softmax float32-forward-rows13-length1, .*it changes input 1",
    "raises": r"mine\.py:\d+: ValueError: odd",
    "wide": r"its output is float64 \[13, 1\]; the operator's is float32 \[13, 1\]",
    "none": "it returns NoneType, no tensor",
    "nosuch": "mine.py has no function 'nosuch'; it has right, ",
}


class InProcess:
    """As Worker, but it answers in this process."""

    def __init__(self, kind: str, cache_byte: int, seed: int, *_: object, **__: object) -> None:
        self.bench = make_bench(kind, 1 << 20, seed)

    def ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        with torch.no_grad():
            return json.loads(json.dumps(respond(self.bench, request)))  # type: ignore[no-any-return]

    def close(self) -> None:
        """Nothing is to be ended."""


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs measure in this process, no ceilings, and hardly sample."""
    several.quick(monkeypatch)
    monkeypatch.setattr(supervisor, "Worker", InProcess)
    monkeypatch.setattr("bench.runner.cases.needed_ceilings", lambda *_: [])
    monkeypatch.setattr("bench.cli.pytest_fixture.SAMPLING_S", 0.05)
    monkeypatch.setattr("bench.judge.flags.OFF_PROCESSOR", 0.0)  # a busy machine's times will do
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def worker(device: Device) -> WorkerSupervisor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "Worker", InProcess)
        made = WorkerSupervisor(device)
        made.started()
    return made


@pytest.fixture(scope="module")
def device() -> Device:
    return detect("cpu")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(KERNELS)
    return path


def checked(text: str, worker: Any, device: Device, *words: str) -> list[str]:
    cases = cases_of("run", words or ("softmax", "rows=64", "length=64"), device, kernel=[text])
    return list(checked_kernels(cases, worker, device))


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_is_checked_at_odd_and_prime_sizes(
    name: str, mine: Path, worker: Any, device: Device
) -> None:
    (line,) = checked(f"{mine}:{name}", worker, device)
    said = rf"mine:{name} agrees with float64 at 8 small awkward sizes, at float32-\S+ with uniform\[-1,1\], "
    assert re.match(said + r"uniform\[-100,100\], .*, zeros, denormal$", line)


@pytest.mark.parametrize("name", REFUSED)
def test_a_kernel_that_is_none_is_refused_in_one_sentence(
    name: str, mine: Path, worker: Any, device: Device
) -> None:
    """However often the process met it: what a kernel does to its inputs is no matter to later ones."""
    for _ in range(2):
        with pytest.raises(UserError, match=rf"^--kernel mine:{name}: .*{REFUSED[name]}") as refused:
            checked(f"{mine}:{name}", worker, device)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "import nosuch\n",
            r"broken\.py:1: cannot be imported: ModuleNotFoundError: No module named 'nosuch'",
        ),
        ("x = 1\n\ndef f(x:\n", r"broken\.py:3: cannot be imported: SyntaxError"),
        ("raise SystemExit(3)\n", r"broken\.py:1: cannot be imported: SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_its_line(
    text: str, says: str, tmp_path: Path, worker: Any, device: Device
) -> None:
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(UserError, match=f"^--kernel broken:f: {says}"):
        checked(f"{tmp_path / 'broken.py'}:f", worker, device)


def test_what_a_kernel_does_not_do_is_passed_over(mine: Path, worker: Any, device: Device) -> None:
    (line,) = checked(f"{mine}:even", worker, device)
    assert "at 3 small awkward sizes" in line and line.endswith("; it does not do 5 others")


def test_a_kernel_that_is_right_near_zero_only_is_refused(
    tmp_path: Path, worker: Any, device: Device
) -> None:
    (tmp_path / "near.py").write_text("def f(x):\n    e = x.exp()\n    return e / e.sum(1, keepdim=True)\n")
    with pytest.raises(UserError, match=r"wrong at softmax .* before anything .* inputs uniform\[-100,100\]"):
        checked(f"{tmp_path / 'near.py'}:f", worker, device)


def test_a_kernel_is_checked_at_windows_that_it_can_know(tmp_path: Path, worker: Any, device: Device) -> None:
    """Its inputs do not show the window: it is that of the command unless it takes `problem`."""
    words = ("pooling", "n=1", "c=4", "h=w=12", "window=2", "stride=2", "kind=average")
    fixed = tmp_path / "fixed.py"
    fixed.write_text("import torch.nn.functional as f\ndef pool(x):\n    return f.avg_pool2d(x, 2, 2)\n")
    operator = kernels.operator("pooling")
    (case,) = cases_of("run", words, device, kernel=[f"{fixed}:pool"])
    problem = operator.problem(**case.problem.parameters())
    loaded = custom_kernel.load(f"{fixed}:pool")
    alike = custom_kernel.awkward(operator, loaded, [problem], torch.device("cpu"))
    knowing = loaded._replace(takes=frozenset({"problem"}))
    every = custom_kernel.awkward(operator, knowing, [problem], torch.device("cpu"))
    assert {(one.window, one.stride) for one in alike} == {(2, 2)} and len({one.h for one in alike}) > 1
    assert {one.window for one in every} - {2} and {one.kind for one in every} == {"average"}
    assert checked(f"{fixed}:pool", worker, device, *words)


@pytest.mark.parametrize("operator", ["softmax", "gemm", "layernorm", "quantize", "pooling", "batchnorm"])
def test_the_file_to_begin_with_is_right(operator: str, tmp_path: Path, worker: Any, device: Device) -> None:
    found = worker.ask({"do": "example_file", "operator": operator, "given": {}})
    (tmp_path / "begun.py").write_text(found["text"])
    words = re.search(rf"bench run ({operator} .*) --kernel", found["text"])
    assert words and checked(f"{tmp_path / 'begun.py'}:{operator}", worker, device, *words[1].split())


def test_the_file_to_begin_with_names_the_axes(worker: Any) -> None:
    given = {"dtype": "float32", "m": 16, "n": 16, "k": 16, "layout": "NT"}
    text = worker.ask({"do": "example_file", "operator": "gemm", "given": given})["text"]
    assert "inputs: a float32 [16, 16] = [k, m], b float32 [16, 16] = [k, n]" in text
    assert "output: float32 [16, 16] = [n, m]" in text and "def gemm(a, b, problem):" in text


@pytest.mark.parametrize("beta", [0, 1])
def test_a_product_without_a_third_matrix_is_right_where_beta_is_0(
    beta: int, tmp_path: Path, worker: Any, device: Device
) -> None:
    (tmp_path / "plain.py").write_text("def gemm(a, b):\n    return b @ a\n")
    words = ("gemm", "m=n=k=64", "layout=NN", "dtype=float32", f"beta={beta}")
    if beta:
        with pytest.raises(UserError, match="takes 2 positional arguments but 3 were given"):
            checked(f"{tmp_path / 'plain.py'}:gemm", worker, device, *words)
    else:
        assert "small awkward sizes" in checked(f"{tmp_path / 'plain.py'}:gemm", worker, device, *words)[0]


def test_a_kernel_that_hangs_is_killed_and_named_with_its_line(
    mine: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline passes as soon as it hangs."""

    def monotonic() -> float:
        return time.monotonic() + 1e6 * mine.with_name("hangs").exists()

    monkeypatch.setattr(worker_process, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(worker_process, "LOOK_S", 0.05)
    with closing(WorkerSupervisor(device)) as worker:
        with pytest.raises(UserError, match=r"timeout at softmax .* stopped in hangs \(.*mine\.py:\d+\)"):
            checked(f"{mine}:hangs", worker, device)
        assert worker.restart_s > 0, "it is gone"


# --- the command ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mine.py", "give FILE:FUNCTION, such as mine.py:softmax"),
        ("mine.py:1", "give FILE:FUNCTION"),
        ("nosuch.py:f", "there is no file nosuch.py"),
        ("a|b.py:f", "use letters, digits"),
    ],
)
def test_a_kernel_that_names_no_function_is_refused(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a|b.py").write_text("")
    with pytest.raises(UserError, match=re.escape(f"--kernel {text}: ") + f".*{says}"):
        kernel_of(text, kernels.problem("softmax"))


def run_of(kernel: str, results: Path, *more: str, length: str = "64") -> tuple[Any, list[Any]]:
    """What a run of this kernel beside the library says, and its rows."""
    words = ["run", "softmax", "rows=64", f"length={length}", "--bench-device", "cpu"]
    words += ["--kernel", kernel]
    words += ["--bench-budget", "inf", "--bench-precision", "99%", "--bench-results", str(results)]
    done = CliRunner().invoke(app, [*words, *more])
    rows = [row for path in results.rglob("*.parquet") for row in read_rows(path)]
    return done, [row for row in rows if row.role == "measurement"]


@pytest.mark.usefixtures("quickly")
def test_a_run_shows_it_beside_the_library(mine: Path, tmp_path: Path) -> None:
    """Rows as any other, which explain, compare and figures take."""
    done, rows = run_of(f"{mine}:fills", tmp_path)
    assert done.exit_code == 0, done.output
    assert "mine:fills agrees with float64 at 8 small awkward sizes" in done.output
    assert {row.implementation: row.status for row in rows} == {"mine:fills": "ok", "aten": "ok"}
    own = next(row for row in rows if row.implementation == "mine:fills")
    assert re.fullmatch("mine.py [0-9a-f]{16}", own.configuration)
    (path,) = tmp_path.rglob("*.parquet")
    name = "softmax-mine:fills-float32-forward-rows64-length64-cold"
    said = CliRunner().invoke(app, ["explain", name, str(path)]).output
    assert "mine:fills: a custom kernel" in said and "--kernel mine.py:fills" in said
    assert "python -m bench run softmax direction=forward dtype=float32 length=64 rows=64" in said


KEEPS = """
import torch
kept = {}
def keeps(x):
    return kept.setdefault((x.data_ptr(), x.shape), torch.softmax(x, 1))
def large(x):
    y = torch.softmax(x, 1)
    y[60:] = y[:4] if x.shape[0] == 64 else y[60:]
    return y
"""


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    ("name", "status", "says"),
    [("keeps", "escaped", "no time for no work: relative error"), ("large", "wrong", "before timing")],
)
def test_a_kernel_without_a_time_fails_a_gate_although_the_library_beside_it_has_one(
    name: str, status: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(KEEPS)
    done, rows = run_of(f"{tmp_path / 'mine.py'}:{name}", tmp_path, "--cache", "warm")
    assert done.exit_code == 2 and says in " ".join(done.output.split()), done.output
    assert {row.implementation: row.status for row in rows} == {f"mine:{name}": status, "aten": "ok"}


SLOW = """
import time, torch
def slow(x):
    began = time.perf_counter()
    while x.shape[0] == 64 and time.perf_counter() < began + 0.03:
        pass
    return torch.softmax(x, 1)
"""


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(("lengths", "status"), [("64", "ok"), ("64,65,66", "skipped")])
def test_four_cases_that_are_asked_for_run_however_long_a_launch_takes(
    lengths: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch takes 30 ms: of many cases one may take 10 ms here, of four as long as the budget holds.

    However busy the machine, two readings are enough and agree.
    """
    monkeypatch.setattr("bench.worker.too_slow.AGREE", math.inf)
    monkeypatch.setattr("bench.worker.too_slow.LOOK_S", 0.0)
    monkeypatch.setattr("bench.runner.limits.SHORT_RUNS_MOST_S", 0.01)
    monkeypatch.setattr("bench.runner.limits.LAUNCH_SHARE", 0.0)
    (tmp_path / "mine.py").write_text(SLOW)
    done, rows = run_of(f"{tmp_path / 'mine.py'}:slow", tmp_path, "--bench-budget", "600", length=lengths)
    own = [row for row in rows if row.implementation == "mine:slow"]
    assert {row.status for row in own} == {status}, done.output
    assert all("the budget allows 0.01 s" in row.reason for row in own) is (status == "skipped")


@pytest.mark.usefixtures("quickly")
def test_a_kernel_and_the_library_are_timed_with_the_inputs_that_are_asked_for(
    mine: Path, tmp_path: Path
) -> None:
    done, rows = run_of(f"{mine}:fills", tmp_path, "--data", "zeros")
    assert done.exit_code == 0 and "inputs are zeros: such rows are compared with none" in done.output
    assert {row.fill for row in rows} == {"zeros"}


@pytest.mark.usefixtures("quickly")
def test_a_time_above_the_roof_is_no_number_for_a_gate(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.judge.flags._least_s", lambda row, ceilings: 1.0)
    done, _ = run_of(f"{mine}:fills", tmp_path)
    assert done.exit_code == 3 and "no number for a verdict: softmax" in done.output, done.output


TRITON = """
import triton
import triton.language as tl

@triton.jit
def doubled(x, y, length: tl.constexpr, scale: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    here = at < length
    values = tl.load(x + tl.program_id(0) * length + at, mask=here, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + tl.program_id(0) * length + at, scale * powers / tl.sum(powers, 0), mask=here)

def right(x, out):
    doubled[(x.shape[0],)](x, out, x.shape[1], 1.0, triton.next_power_of_2(x.shape[1]))

def wrong(x, out):
    doubled[(x.shape[0],)](x, out, x.shape[1], 2.0, triton.next_power_of_2(x.shape[1]))
"""
NOT_TIMED = (
    "in Triton's interpreter nothing is timed: mine:right ran in Triton's interpreter; a time needs a GPU"
)


@pytest.mark.parametrize(
    ("kernel", "interpret", "dtype", "code", "says"),
    [
        ("right", "", "float32", 2, "a Triton kernel needs a GPU; TRITON_INTERPRET=1 checks it without one"),
        ("right", "1", "float32", 0, NOT_TIMED),
        ("wrong", "1", "float16", 2, "wrong at softmax float16-forward-rows13-length1, .* relative error 1"),
        ("right", "1", "bfloat16", 2, "interpreter computes bfloat16 wrongly .* dtype=float16,float32"),
    ],
)
def test_a_triton_kernel_is_checked_without_a_gpu_and_never_timed(
    kernel: str, interpret: str, dtype: str, code: int, says: str, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    (tmp_path / "mine.py").write_text(TRITON)
    words = ["run", "softmax", "rows=64", "length=64", f"dtype={dtype}", "--bench-device", "cpu"]
    words += ["--kernel", f"{tmp_path / 'mine.py'}:{kernel}", "--bench-results", str(tmp_path / "r")]
    done = CliRunner().invoke(app, words, env={"TRITON_INTERPRET": interpret})
    assert done.exit_code == code, done.output
    assert re.search(says, " ".join(f"{done.output} {done.exception}".split())), done.output
    assert not list((tmp_path / "r").rglob("*.parquet"))


# --- one launch, and profilers ----------------------------------------------------------------------


def test_once_launches_a_case_in_this_process_and_says_how_to_profile_it(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "softmax", "rows=4", "length=4", "--kernel", f"{mine}:fills", "--once")
    monkeypatch.setattr("sys.argv", ["bench", *words])
    said = CliRunner().invoke(app, [*words, "--bench-device", "cpu"]).output
    launched = r"softmax-mine:fills-\S+: launched once, \S+ \ws by the wall clock\n"
    again = f"-m bench run softmax rows=4 length=4 --kernel {mine}:fills --once\n"
    began = "ncu .*--clock-control none .*"
    assert re.fullmatch(f"{launched}under a profiler: {began}{re.escape(again)}", said), said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["softmax", "rows=4", "length=4"], "3 cases are asked for (softmax-aten-"),
        (["gemm/square"], "cases are asked for (gemm/square-"),
        (["softmax", "rows=4", "length=4", "--implementation", "triton"], "triton runs on cuda, not on cpu"),
    ],
)
def test_once_takes_one_case_that_can_run_here(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["run", *words, "--once", "--bench-device", "cpu"])
    assert done.exit_code == 2 and says in done.output


# --- the fixture ------------------------------------------------------------------------------------

TEST = """
import os, torch

def mine(x, out):
    torch.softmax(x, 1, out=out)

def test_mine(roofbench):
    row = roofbench(mine, "softmax", rows=64, length=64)
    assert row["library"] == "aten" and row["library_s"] > 0
    assert row["rate_per_s"] == 2 * 64 * 64 * 4 / row["median_s"]
    assert (row["of_roof"], row["bound_by"]) == (None, "") or HAS_EARLIER
    assert not HAS_EARLIER or (row["of_roof"] > 0 and row["bound_by"] == "launch")
    assert isinstance(row["flags"], list)

def test_wrong(roofbench):
    roofbench(f"{os.path.dirname(__file__)}/mine.py:wrong", "softmax", rows=64, length=64)
"""


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("has_earlier", [False, True])
def test_the_fixture_measures_a_function_of_the_users_own_test_file(
    mine: Path, device: Device, has_earlier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an earlier run of the device its ceilings are the roof."""
    results = mine.with_name("results")
    results.mkdir()
    monkeypatch.setattr("bench.runner.run.RESULTS", results)
    if has_earlier:
        (results / device.slug).symlink_to(Path("results/reference/tour/cpu-amd-epyc-2-core").absolute())
    mine.with_name(f"test_mine_{has_earlier}.py").write_text(f"HAS_EARLIER = {has_earlier}\n{TEST}")
    words = ("-p", "bench.pytest_plugin", "--bench-device", "cpu", "--import-mode", "importlib")
    code, said = pytested(str(mine.parent), *words)
    assert code == 1 and "1 failed, 1 passed" in said, said
    assert re.search(r"^test_mine .* \d", said, re.MULTILINE)  # pytest-benchmark's table
    assert "--kernel mine:wrong: wrong at softmax" in said


@pytest.mark.usefixtures("quickly")
def test_the_fixture_skips_what_is_right_and_cannot_be_timed_here(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(*_: object) -> None:
        raise Untimed("nothing is timed: a time needs a GPU")

    monkeypatch.setattr("bench.cli.pytest_fixture.checked_kernels", checked)
    mine.with_name("test_untimed.py").write_text(TEST)
    words = ("-p", "bench.pytest_plugin", "--bench-device", "cpu", "--import-mode", "importlib", "-rs")
    code, said = pytested(str(mine.parent), *words)
    assert code == 0 and "2 skipped" in said and "nothing is timed: a time needs a GPU" in said, said
