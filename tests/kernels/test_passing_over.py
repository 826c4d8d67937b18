"""A candidate that does not compile is passed over; an error of the device never is.

The compiler is Triton's own, without a device: it compiles for compute capability 9.0.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.spec import Launch, Unsupported, cause
from tests.kernels.devices import Tuner

tuning = pytest.importorskip("bench.launching.tuning")
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402


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


def compiled(kernel: Any) -> None:
    triton.compile(ASTSource(fn=kernel, signature={"x": "*fp32"}), target=GPUTarget("cuda", 90, 32))


class Candidates(Tuner):
    """With a cache of what was compiled of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "cache"))
        super().__init__(monkeypatch, folder / "tuned")
        monkeypatch.setattr(tuning.timing, "quickest", lambda makers: (0, 1e-6))

    def forget(self) -> None:
        """As if the question had never been asked."""
        shutil.rmtree(self.folder)
        self.start()

    def first(self, **calls: Any) -> Launch:
        """The launch of the first of these that runs."""
        self.calls = calls
        return self.tuned(list(calls))


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Candidates:
    return Candidates(monkeypatch, tmp_path)


def fails(error: Exception) -> Any:
    def call(*_: object) -> None:
        raise error

    return call


def test_what_the_compiler_refuses_is_passed_over_and_said(candidates: Candidates) -> None:
    calls = {
        "source": lambda: compiled(adds_nothing),
        "assembler": lambda: compiled(unknown_instruction),
        "runs": lambda: compiled(good),
        "room": fails(tuning.OutOfResources(300_000, 232_448, "shared memory")),
    }
    said = candidates.first(**calls).passed_over
    assert [text.split(":")[0] for text in said] == ["source", "assembler", "room"]
    assert "NoneType" in said[0] and "at 3:" not in said[0]
    assert said[1].startswith("assembler: PTXASError: ptxas, line ") and "known instruction: 'no'" in said[1]
    assert "shared memory" in said[2]
    (by_operator,) = candidates.written.values()
    (answers,) = by_operator.values()
    assert answers["one"]["configuration"] == "runs" and answers["one"]["passed_over"] == list(said)
    candidates.start()
    assert candidates.first(**calls).passed_over == said  # read back, for the rows of later processes


def test_passes_of_the_compiler_raise_a_plain_runtime_error(candidates: Candidates) -> None:
    """So does a failed launch: the class says nothing."""

    def failing_pass() -> None:
        real = triton.compiler.compiler.make_backend

        def broken(target: Any) -> Any:
            backend = real(target)
            stages = backend.add_stages

            def add_stages(found: Any, *more: Any) -> None:
                stages(found, *more)
                found["ttgir"] = fails(RuntimeError("PassManager::run failed"))

            backend.add_stages = add_stages
            return backend

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(triton.compiler.compiler, "make_backend", broken)
            compiled(good)

    said = candidates.first(fails=failing_pass, runs=lambda: None).passed_over
    assert said == ("fails: RuntimeError: PassManager::run failed",)


def test_an_error_that_is_kept_keeps_no_tensors(candidates: Candidates) -> None:
    """Triton 3.7 raises the same error again for as long as the process lives (FutureKernel)."""
    kept: list[Exception] = []

    def call() -> None:
        try:
            if kept:
                raise kept[0]
            compiled(adds_nothing)
        except triton.CompilationError as error:
            kept.append(error)
            raise

    for _ in range(2):
        assert len(candidates.first(fails=call, runs=lambda: None).passed_over) == 1
        assert kept[0].__traceback__ is not None
        assert kept[0].__traceback__.tb_frame.f_code is triton.compile.__code__
        candidates.forget()
    assert len(kept) == 2


DEVICE_ERRORS = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("Triton Error [CUDA]: misaligned address"),
    ValueError("a (4, 4) has rows that do not begin at multiples of 16 bytes"),
]


@pytest.mark.parametrize("error", DEVICE_ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_the_device_is_no_fault_of_the_compiler(candidates: Candidates, error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        candidates.first(a=fails(error), b=lambda: None)
    assert raised.value is error
    assert not candidates.folder.exists()


def test_a_full_disk_condemns_no_candidate(candidates: Candidates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.compiler.compiler, "get_cache_manager", fails(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        candidates.first(a=lambda: compiled(good), b=lambda: None)


class StandIn:
    """In the place of Triton's CUDA driver, as JITFunction.run and CompiledKernel._init_handles use it.

    Checked against triton/runtime/jit.py and triton/compiler/compiler.py of 3.6.0 and 3.7.1.
    """

    def __init__(self, load: Any) -> None:
        self.launched: list[str] = []
        properties = {"max_shared_mem": 232_448}
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: properties,
            load_binary=lambda *_: load() or (None, None, 16, 0, 1024),
        )

    def launcher_cls(self, src: Any, metadata: Any) -> Any:
        return lambda *_: self.launched.append(metadata.name)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def is_active(self) -> bool:
        return True


def through_the_jit(monkeypatch: pytest.MonkeyPatch, load: Any) -> tuple[Launch, StandIn]:
    """The tuned launch of two kernels, of which one compiles, both compiled side by side before."""
    driver = StandIn(load)
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    x = torch.zeros(4)
    kernels = {"fails": adds_nothing, "runs": good, "runs too": good}
    for kernel in kernels.values():
        kernel.device_caches.clear()

    def launch(name: str) -> Launch:
        def call() -> torch.Tensor:
            kernels[name][(1,)](x)
            return x

        return Launch(call)

    made: Launch = tuning.tuned(
        ("stream", "jit"), list(kernels), launch, lambda name: kernels[name].warmup(x, grid=(1,))
    )
    return made, driver


def test_what_failed_beside_others_fails_again_when_it_is_tried(candidates: Candidates) -> None:
    """Triton 3.6 compiles it again, 3.7 raises what it has kept."""
    made, driver = through_the_jit(candidates.monkeypatch, lambda: None)
    assert len(made.passed_over) == 1 and "NoneType" in made.passed_over[0]
    assert driver.launched == ["good", "good"]


def test_a_program_that_cannot_be_loaded_says_something_of_the_device(candidates: Candidates) -> None:
    error = RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")
    with pytest.raises(RuntimeError) as raised:
        through_the_jit(candidates.monkeypatch, fails(error))
    assert raised.value is error


def test_if_none_compiles_the_compiler_s_words_are_the_cause(candidates: Candidates) -> None:
    with pytest.raises(RuntimeError, match="none of 2 configurations compiles") as raised:
        candidates.first(a=lambda: compiled(adds_nothing), b=lambda: compiled(adds_nothing))
    assert cause(raised.value).startswith("TypeError: unsupported operand")


def test_if_each_is_refused_while_it_is_built_that_is_the_reason(candidates: Candidates) -> None:
    with pytest.raises(Unsupported, match=r"none of 2 configurations .* needs Triton 3\.7"):
        candidates.first(a=fails(Unsupported("needs Triton 3.7")), b=fails(Unsupported("needs Triton 3.7")))
