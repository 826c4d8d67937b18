"""Choosing among configurations: what is timed, passed over, kept, and given up because it got stuck.

The compiler is Triton's own, without a device: it compiles for compute capability 9.0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from bench.autotune import choices, ending, inductor
from bench.autotune.ending import TRIED, Stuck, passing_over
from bench.autotune.tuning import TIMED, tuned
from bench.causes import cause
from bench.spec import Unsupported
from kernels.stream.problem import Stream
from tests.kernels.devices import Gpu

pytest.importorskip("triton")
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.errors import OutOfResources


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return Gpu(monkeypatch, tmp_path / "tuned")


def fails(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> None:
        raise error

    return call


NO_ROOM = fails(OutOfResources(300_000, 232_448, "shared memory"))


@pytest.mark.parametrize("lost_per_s", [0.0, 0.4])
@pytest.mark.parametrize("best", [0, 5])
@pytest.mark.parametrize("best_s", [20e-6, 1e-3])
def test_the_quickest_is_chosen_though_the_clock_rises_and_falls(
    gpu: Gpu, best: int, best_s: float, lost_per_s: float
) -> None:
    names = [str(place) for place in range(TIMED)]
    gpu.seconds = {name: best_s * 1.1 for name in names} | {names[best]: best_s}
    gpu.lost_per_s = lost_per_s
    launch = gpu.tuned(names)
    assert launch.configuration == names[best] and launch.tuning_s > 0
    assert 0.05 < gpu.worked_s < 1.0


def test_six_that_run_are_timed_and_the_answer_is_kept_for_other_processes(gpu: Gpu) -> None:
    names = ["large", *"abcdefgh"]
    gpu.calls = {"large": NO_ROOM, "c": NO_ROOM}
    gpu.seconds = {"d": 1e-7, "h": 0.0}
    compiled: list[str] = []
    first = gpu.tuned(names, compile=compiled.append)
    assert compiled == names[:TIMED], "before any is tried"
    assert gpu.timed == set("abdefg") and first.configuration == "d"
    assert [text.split(":")[0] for text in first.passed_over] == ["large", "c"]
    assert gpu.tuned(names).tuning_s == 0
    gpu.start()
    again = gpu.tuned(names)
    assert (again.configuration, again.passed_over, again.tuning_s) == ("d", first.passed_over, 0)
    (answers,) = gpu.written.values()
    assert answers[f"stream {choices.sources('stream')} one"] == {
        "configuration": "d",
        "of": 6,
        "passed_over": list(first.passed_over),
    }
    assert gpu.tuned(["e", "f"]).configuration in "ef", "what is no longer listed is not taken"
    assert gpu.tuned(["x"], "single").tuning_s == 0, "nothing to choose"


def test_a_choice_does_not_outlive_the_sources_of_its_kernels(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of other operators do not count, unless the operator's own name them."""
    files = {name: tmp_path / "kernels" / name / "copying.py" for name in ("stream", "layernorm", "gemm")}
    for name, path in files.items():
        path.parent.mkdir(parents=True)
        path.write_text("from kernels.layernorm import rows\n" if name == "stream" else "")
    monkeypatch.setattr(choices, "_ROOT", tmp_path)

    def asked_anew(edited: str) -> bool:
        files[edited].write_text(files[edited].read_text() + "# edited\n")
        gpu.start()
        return gpu.tuned("ab").tuning_s > 0

    assert gpu.tuned("ab").tuning_s > 0
    assert [asked_anew(name) for name in files] == [True, True, False]
    (versions,) = gpu.written
    assert len(gpu.written[versions]) == 3, "what other sources chose is kept beside it"
    assert versions.startswith(f"triton {triton.__version__}, ptxas ")


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00"])
def test_a_file_that_is_no_longer_whole_is_made_anew(gpu: Gpu, text: str) -> None:
    gpu.folder.mkdir()
    (gpu.folder / "nvidia-h200-132-sm.json").write_text(text)
    gpu.tuned("ab")
    assert len(gpu.written) == 1


def test_a_folder_that_cannot_be_written_to_costs_the_memory_of_a_process(gpu: Gpu) -> None:
    gpu.folder.write_text("not a folder")
    assert gpu.tuned("ab").tuning_s > 0 == gpu.tuned("ab").tuning_s


def test_without_a_clock_the_first_that_runs_is_taken_and_nothing_kept(gpu: Gpu) -> None:
    gpu.calls = {"large": NO_ROOM}
    launch = tuned(("stream", "one"), ["large", "a", "b"], gpu.launch)
    assert launch.configuration == "a" and launch.tuning_s == 0 and len(launch.passed_over) == 1
    with pytest.raises(
        Unsupported, match=r"none of 2 configurations can run on this device; .*shared memory"
    ):
        tuned(("stream", "one"), ["large", "large"], gpu.launch)
    assert not gpu.timed and not gpu.folder.exists()


# ---- what does not run


@triton.jit  # type: ignore[untyped-decorator]
def good(x):  # type: ignore[no-untyped-def]
    tl.store(x, 1.0)


@triton.jit  # type: ignore[untyped-decorator]
def adds_nothing(x):  # type: ignore[no-untyped-def]
    tl.store(x, None + 1.0)


@triton.jit  # type: ignore[untyped-decorator]
def unknown_instruction(x):  # type: ignore[no-untyped-def]
    value = tl.inline_asm_elementwise(
        "no.such $0, $1;", "=r,r", [tl.load(x)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(x, value)


def compiled(kernel: Any) -> Callable[[], object]:
    source = ASTSource(fn=kernel, signature={"x": "*fp32"})
    return lambda: triton.compile(source, target=GPUTarget("cuda", 90, 32))


def test_what_the_compiler_refuses_is_passed_over_and_said(gpu: Gpu) -> None:
    gpu.calls = {
        "source": compiled(adds_nothing),
        "assembler": compiled(unknown_instruction),
        "runs": compiled(good),
    }
    launch = gpu.tuned(gpu.calls)
    assert launch.configuration == "runs"
    source, assembler = launch.passed_over
    assert source.startswith("source: ") and "NoneType" in source
    assert assembler.startswith("assembler: PTXASError: ptxas, line ")


def test_if_none_runs_the_reason_is_given(gpu: Gpu) -> None:
    gpu.calls = {"a": compiled(adds_nothing), "b": compiled(adds_nothing)}
    with pytest.raises(RuntimeError, match="none of 2 configurations compiles") as raised:
        gpu.tuned("ab")
    assert cause(raised.value).startswith("TypeError: unsupported operand")
    gpu.calls = dict.fromkeys("ab", fails(Unsupported("needs Triton 3.7")))
    with pytest.raises(Unsupported, match=r"none of 2 configurations .* needs Triton 3\.7"):
        gpu.tuned("ab")


DEVICE_ERRORS = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ValueError("a (4, 4) has rows that do not begin at multiples of 16 bytes"),
]


@pytest.mark.parametrize("error", DEVICE_ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_the_device_or_of_ours_condemns_no_candidate(gpu: Gpu, error: Exception) -> None:
    gpu.calls = {"a": fails(error)}
    with pytest.raises(type(error)) as raised:
        gpu.tuned("ab")
    assert raised.value is error and not gpu.folder.exists()


def test_a_full_disk_condemns_no_candidate(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.compiler.compiler, "get_cache_manager", fails(OSError(28, "No space left")))
    gpu.calls = {"a": compiled(good)}
    with pytest.raises(OSError, match="No space left"):
        gpu.tuned("ab")


# ---- launches that never end


class Configuration(NamedTuple):
    """Of a kernel that has a name."""

    kernel: str
    size: int

    def __str__(self) -> str:
        return f"{self.kernel} {self.size}"


YOUNG = [Configuration("young", 1), Configuration("young", 2)]
OLD = [Configuration("old", 1), Configuration("old", 2)]


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (lambda: False, "timeout", "young 1 has not ended after 0 s"),
        (fails(DEVICE_ERRORS[0]), "error", "young 1: RuntimeError: CUDA error: an illegal memory access"),
    ],
    ids=["hangs", "breaks"],
)
def test_a_launch_that_gets_stuck_is_told_by_its_kernel(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, answer: Callable[[], bool], status: str, says: str
) -> None:
    monkeypatch.setattr(ending, "HANG_S", 0.0)
    gpu.has_ended = answer
    with pytest.raises(Stuck, match=says) as stuck:
        gpu.tuned([*YOUNG, *OLD])
    assert (stuck.value.kernel, stuck.value.status) == ("young", status)
    assert gpu.launched == YOUNG[:1], "nothing may be asked of the device any more"
    assert not gpu.folder.exists()


def test_what_takes_a_while_is_waited_for(gpu: Gpu) -> None:
    answers = iter([False, False, True])
    gpu.has_ended = lambda: next(answers, True)
    assert gpu.tuned(YOUNG).passed_over == () and next(answers, None) is None


def test_a_kernel_that_got_stuck_is_passed_over_in_this_run_alone(gpu: Gpu) -> None:
    for _ in range(2):
        with passing_over({"young": ["young 1 has not ended"]}):
            launch = gpu.tuned([*YOUNG, *OLD])
        assert launch.passed_over == ("young: young 1 has not ended",)
        assert {one.kernel for one in gpu.launched} == {"old"}
    assert not gpu.folder.exists(), "no choice for other runs"
    gpu.seconds = {"young 1": 1e-8}
    assert gpu.tuned([*YOUNG, *OLD]).configuration == "young 1"
    with passing_over({"young": ["broke"]}):
        assert gpu.tuned([*YOUNG, *OLD]).configuration.startswith("old"), "though it was chosen before"


def test_where_there_is_no_other_it_is_tried_a_few_times(gpu: Gpu) -> None:
    with passing_over({"young": ["broke"] * (TRIED - 1)}):
        assert gpu.tuned(YOUNG).passed_over == ()
    with passing_over({"young": ["young 7 has not ended", *["broke"] * (TRIED - 1)]}):
        with pytest.raises(RuntimeError) as given_up:
            gpu.tuned(YOUNG, "two")
        assert str(given_up.value) == "young got stuck 3 times in this run, first: young 7 has not ended"
        assert gpu.tuned([*YOUNG, *OLD], "two").passed_over == ("young: young 7 has not ended",)


# ---- torch.compile


def doubled(problem: Stream, x: torch.Tensor) -> torch.Tensor:
    return x * 2 + problem.length


def test_every_problem_of_a_long_sweep_is_compiled_and_none_falls_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dynamo compiles a function for eight shapes and refuses the ninth."""
    seen: list[Any] = []

    def backend(module: Any, _: Any) -> Any:
        seen.append(module)
        return module

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *a, **k: compile_(*a, **k, backend=backend))
    for length in range(1, 11):
        problem = Stream(dtype="float32", kind="copy", length=length)
        for _ in range(3):  # as slots of a ring ask
            x = torch.ones(length)
            assert torch.equal(inductor.compiled(doubled, problem)(x), x * 2 + length)
        assert len(seen) == length
    inductor.compiled.cache_clear()
