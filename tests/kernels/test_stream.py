"""STREAM: its counts, its reference, torch's passes, and our copy by processes of their own."""

import pytest
import torch

from bench.spec import parameters_text
from bench.worker.check import outputs_of
from kernels.stream.operator import OPERATOR, aten, tolerance
from kernels.stream.problem import Stream
from tests.kernels.tensors import relative_error, uniform


def stream(kind: str = "copy", length: int = 1000, dtype: str = "float32", programs: int = 0) -> Stream:
    return Stream(kind=kind, length=length, dtype=dtype, programs=programs)  # type: ignore[arg-type]


def test_a_pass_that_asks_for_no_number_is_the_case_it_always_was() -> None:
    """Rows of older files have no such parameter, and are to be compared."""
    text = '{"dtype":"float32","kind":"copy","length":1000}'
    assert parameters_text(stream().parameters()) == text
    asked = stream(programs=2)
    assert asked.parameters()["programs"] == 2 and str(asked).endswith("programs2")
    for problem in (stream(), asked):
        assert Stream(**problem.parameters()) == problem  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_sum_of_almost_nothing_is_right_and_one_that_leaves_half_out_is_not(dtype: str, seed: int) -> None:
    problem = stream("read", 20_000, dtype)
    half = uniform(problem, seed)(10_000).abs()
    x = torch.cat([half, -half.flip(0)])
    (y,) = outputs_of(aten(problem, x).call())
    assert relative_error(OPERATOR, problem, (x,), (y,)) <= tolerance(problem, "aten")
    wrong = half.sum(dim=0, keepdim=True)
    assert relative_error(OPERATOR, problem, (x,), (wrong,)) > tolerance(problem, "aten")


def test_a_triton_launch_fills_the_device_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    copying = pytest.importorskip("kernels.stream.copying")
    asked = []
    monkeypatch.setattr(copying, "launch_with", lambda programs, *_: asked.append(programs))
    properties = type("Properties", (), {"multi_processor_count": 132})()
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    x = torch.empty(1)
    for programs in (0, 1, 7):
        OPERATOR.implementations["triton"](stream(length=1, programs=programs), x)
    assert asked == [132, 1, 7]
