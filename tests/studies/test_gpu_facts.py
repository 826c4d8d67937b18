"""Open facts: how numbers are judged, and that the loops that ask a device can find it wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.device.detect import detect
from bench.errors import UserError
from bench.spec import Launch, Unsupported
from kernels.gemm.problem import Gemm
from studies.gpu import facts, on_device
from studies.gpu.facts import Refresh, refresh, tf32_operands

CPU = detect("cpu")


# ---- tf32


def products(*given: Any) -> tuple[float, float]:
    """Relative error and bias of a product whose operands were treated so."""
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.rand(shape, generator=generator) * 2 - 1 for shape in ((256, 2048), (2048, 256)))
    right = a.double() @ b.double()
    found = given[0](a).double() @ given[1](b).double()
    size = float(right.norm())
    return float((found - right).norm()) / size, float((found * right).sum()) / size**2 - 1


def same(values: torch.Tensor) -> torch.Tensor:
    return values


@pytest.mark.parametrize(
    ("treated", "how"),
    [
        ((on_device._rounded, on_device._rounded), "rounds"),
        ((on_device._cut, on_device._cut), "cuts off"),
        ((on_device._cut, on_device._rounded), "cuts off one operand of two"),
        ((same, same), "computes in float32"),
    ],
)
def test_what_became_of_the_operands_is_told_from_error_and_bias(treated: Any, how: str) -> None:
    assert tf32_operands(*products(*treated)) == how


def test_the_stated_errors_are_those_of_uniform_operands() -> None:
    found = products(on_device._cut, on_device._cut)
    assert found == pytest.approx((facts.CUT_ERROR, facts.CUT_BIAS), rel=0.05)
    error, bias = products(on_device._rounded, on_device._rounded)
    assert error == pytest.approx(facts.ROUNDED_ERROR, rel=0.05) and abs(bias) < 2e-5


def test_rounding_is_to_ten_bits_and_half_goes_up() -> None:
    step = 2.0**-10
    values = torch.tensor([1.0, 1 + 0.49 * step, 1 + 0.5 * step, 1 + 0.99 * step, -1 - 0.5 * step])
    assert on_device._rounded(values).tolist() == [1.0, 1.0, 1 + step, 1 + step, -1 - step]
    assert on_device._cut(values).tolist() == [1.0, 1.0, 1.0, 1.0, -1.0]


def test_one_odd_implementation_makes_no_answer() -> None:
    rounded, cut, odd = ({"error": e, "bias": b} for e, b in ((2.6e-4, 0.0), (6.9e-4, -6.3e-4), (5e-3, 1e-3)))
    assert facts.tf32({"cublas": rounded, "triton-tma": rounded}).answer == "yes"
    found = facts.tf32({"cublas": rounded, "triton-tma": cut})
    assert found.answer == "no" and found.sentence == "cublas rounds; triton-tma cuts off"
    assert facts.tf32({"cublas": odd}).answer == facts.tf32({}).answer == "unknown"


def test_candidates_that_do_not_compile_are_passed_over() -> None:
    tried: list[str] = []

    def preparing(of: object, candidate: str, sm_count: int) -> Any:
        tried.append(candidate)
        if candidate != "c":
            raise RuntimeError("at 27:17:") from ValueError(f"in the kernel\nno {candidate}")
        launch = Launch(lambda: torch.tensor([ord(candidate)]))
        return SimpleNamespace(compile=lambda: None, launch=lambda: launch)

    def module(*candidates: str) -> Any:
        return SimpleNamespace(__name__="kernels.gemm.x", candidates=lambda *_: candidates, prepare=preparing)

    device = replace(CPU, kind="cuda", capability=(9, 0))
    problem = Gemm(dtype="float32", m=8, n=8, k=8)
    inputs = [torch.zeros(8, 8)] * 2
    made = on_device.first_launch(module("a", "b", "c"), problem, inputs, device)
    assert tried == ["a", "b", "c"] and made.call().item() == ord("c")
    with pytest.raises(Unsupported, match="no candidate compiles; the last, a: ValueError: no a"):
        on_device.first_launch(module("a"), problem, inputs, device)
    with pytest.raises(Unsupported, match="no candidate for this device"):
        on_device.first_launch(module(), problem, inputs, device)


# ---- NVML


def test_how_often_a_counter_changes() -> None:
    times_s = [0.01 * step for step in range(100)]
    every_5 = refresh(times_s, [step // 5 for step in range(100)])
    assert every_5.changes == 19
    assert every_5.interval_s == pytest.approx(0.05) and every_5.longest_s == pytest.approx(0.05)
    assert refresh(times_s, [7.0] * 100) == Refresh(0, None, None)
    assert refresh(times_s, [None] * 100) == Refresh(0, None, None)
    with_gap = refresh([0, 1, 2, 3, 9], [1, None, 2, 3, 4])
    assert (with_gap.changes, with_gap.interval_s, with_gap.longest_s) == (3, 3.5, 6)


def test_the_energy_counter_decides() -> None:
    times_s = [0.01 * step for step in range(100)]
    quick = [float(step // 2) for step in range(100)]
    slow = [float(step // 30) for step in range(100)]
    still: list[float | None] = [1.0] * 100
    known = facts.nvml(times_s, {"energy": quick, "clock": still}, 0.1)
    assert known.sentence == "energy every 20 ms; clock never changed"
    assert facts.nvml(times_s, {"energy": slow}, 0.1).answer == "no"
    untold = facts.nvml(times_s, {"energy": [None] * 100}, 0.1)
    assert (untold.answer, untold.sentence) == ("unknown", "energy is unknown")


# ---- the command


@pytest.mark.parametrize("name", facts.QUESTIONS)
def test_every_question_can_be_asked_and_is_written(name: str) -> None:
    assert callable(getattr(on_device, name))


def test_a_rehearsal_says_so_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert facts.main(["nvml", "3", str(tmp_path / "fact.json")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2].endswith("(a rehearsal: this is a CPU)")
    assert said[-1].startswith("yes: energy every 20 ms")
    written = json.loads((tmp_path / "fact.json").read_text())
    assert written["rehearsal"] is True and written["answer"] == "yes"
    assert written["numbers"]["energy"]["changes"]


def test_a_question_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give one of tf32, gluon, held, narrow, nvml"):
        facts.main(["tf33", "3", str(tmp_path / "fact.json")])
