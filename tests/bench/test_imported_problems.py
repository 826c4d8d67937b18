"""Counts of the problems that exist as imported rows alone."""

import random

import pytest

from bench.interop.imported_problems import GatedActivation, QuantizedLinear


@pytest.mark.parametrize(("implementation", "tensors"), [("aten", 5), ("vllm", 3), ("a kernel of theirs", 3)])
def test_two_kernels_of_a_gated_activation_move_five_tensors(
    implementation: str, tensors: int, seed: int
) -> None:
    rows, length = random.randint(1, 4096), random.randint(1, 4096)
    gated = GatedActivation(dtype="bfloat16", function="silu", direction="forward", rows=rows, length=length)
    of_tensor = rows * length * 2
    assert gated.byte == 3 * of_tensor
    assert gated.byte_moved(implementation) == tensors * of_tensor
    assert gated.moved_written(implementation) == (tensors - 1) // 2 * of_tensor


@pytest.mark.parametrize(("scaling", "reads"), [("tensor", 2), ("row", 0), ("block", 0)])
def test_a_linear_layer_writes_the_quantized_x_and_reads_it_again(
    scaling: str, reads: int, seed: int
) -> None:
    batch, inputs = random.randint(1, 4096), random.randint(1, 4096)
    layer = QuantizedLinear.model_validate(
        {"dtype": "float8_e4m3", "scaling": scaling, "batch": batch, "inputs": inputs, "outputs": 64}
    )
    kernel = "CutlassFP8ScaledMMLinearKernel"
    assert layer.moved_written(kernel) == layer.byte_written + batch * inputs
    assert layer.byte_moved(kernel) == layer.byte + (2 + reads) * batch * inputs
