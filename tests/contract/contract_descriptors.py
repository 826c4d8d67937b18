"""Descriptors that the host makes reach the kernel wherever the stack happens to lie
(kernels/gemm/descriptors.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch

from kernels.gemm import tma
from kernels.gemm.operands import operands
from kernels.gemm.operator import OPERATOR
from kernels.gemm.problem import Gemm
from kernels.gemm.tiles import Tile
from tests.contract.stand_in import GPUS, launches, triton_driver
from tests.kernels.tensors import uniform


def further_down(byte: int, call: Callable[[], object]) -> None:
    """Call it from C, with an argument of so many bytes on the stack before it, a multiple of 16."""

    class Pushed(ctypes.Structure):
        _fields_ = (("of_stack", ctypes.c_char * byte),)

    raised: list[Exception] = []

    def called_back(_: Pushed) -> None:
        try:
            call()
        except Exception as error:  # which C would swallow
            raised.append(error)

    ctypes.CFUNCTYPE(None, Pushed)(called_back)(Pushed())
    if raised:
        raise raised[0]


@pytest.mark.parametrize("persistent", [False, True])
def test_no_launch_is_refused_for_where_its_stack_is(
    persistent: bool, count: Callable[[str, int], None]
) -> None:
    """All places at multiples of 16 in 256 bytes, 8 launches each; three descriptors a launch, four with
    C."""
    before = launches()
    with triton_driver(GPUS[1]), torch.no_grad():
        for beta in (0, 1):
            problem = Gemm(m=256, n=128, k=128, dtype="float16", layout="TN", beta=beta)
            of = operands(problem, *OPERATOR.inputs(problem, uniform(problem, 1)))
            launch = tma.prepare(of, Tile(128, 128, 64, 8, 3), 132, persistent=persistent).launch()
            for byte in range(16, 257, 16):
                for _ in range(8):
                    further_down(byte, launch.call)
    assert launches() - before == 2 * 16 * 8
    count("launches with descriptors of the host", launches() - before)
