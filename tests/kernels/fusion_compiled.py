"""What the fused chains promise of their compiled form: every block that a tuner may try, aligned and not."""

from collections.abc import Iterator

import torch
import triton

from bench.spec import Dtype
from kernels.fusion import norm, stream
from kernels.fusion.operands import Operands
from kernels.fusion.problem import Chain, Fusion
from tests.kernels.compiled import pointer
from tests.kernels.streaming import CAPABILITIES, Variant, everywhere, family

MOST = {"bias": 9.0, "residual": 6.0, "bias-gelu": 22.0, "bias-residual": 14.0}
"""Instructions for each element of a stream. At 4 bytes an element an H100 has issue slots for 40."""
ON_90 = (90,)


def streamed(
    chain: Chain,
    dtype: Dtype,
    block: stream.Block,
    rows: int,
    length: int,
    capabilities: tuple[int, ...] = CAPABILITIES,
) -> Variant:
    """The stream for a problem of this size. Its data moves 16 bytes at a time if its sizes allow it."""
    problem = Fusion(chain=chain, dtype=dtype, rows=rows, length=length)
    tensors = _tensors(problem, x=1, bias="bias", residual="residual", y=1)
    of = stream.operands(problem, Operands(torch.empty(0)), torch.empty(0))
    wide = of["ALIGN_N" if chain == "residual" else "ALIGN_LENGTH"] > 1
    straight = of["ALIGN_N"] > 1
    plain = wide and length >= block.elements and problem.elements < 1 << 31
    return Variant(
        name=f"{chain} {dtype} {rows}x{length} {block}",
        kernel=stream.chain,
        arguments={
            **{name: pointer(dtype) for name, there in tensors.items() if there},
            "n": "i64" if problem.elements >= 1 << 31 else "i32",
            "length": "i32",
        },
        constants={
            **{name: None for name, there in tensors.items() if not there},
            **{name: value for name, value in of.items() if name.isupper()},
            **{name: value for name, value in stream.meta(problem, block).items() if name.isupper()},
        },
        warps=block.warps,
        wide=wide,
        element=block.elements // (32 * block.warps) if straight else 0,
        most=MOST[chain] if plain else None,
        capabilities=capabilities,
    )


def normalized(
    chain: Chain,
    dtype: Dtype,
    rows: norm.Rows,
    length: int,
    capabilities: tuple[int, ...] = CAPABILITIES,
) -> Variant:
    """Layer norm of rows of this length, 16 bytes at a time where the length allows it."""
    problem = Fusion(chain=chain, dtype=dtype, rows=64, length=length)
    tensors = _tensors(problem, x=1, bias="bias", residual="residual", weight=1, shift=1, y=1, h=1)
    of = norm.operands(problem, Operands(torch.empty(0)), torch.empty(0), torch.empty(0))
    return Variant(
        name=f"{chain} {dtype} {length} {rows}",
        kernel=norm.chain,
        arguments={
            **{name: pointer(dtype) for name, there in tensors.items() if there},
            "rows": "i32",
            "length": "i32",
            "epsilon": "fp32",
        },
        constants={
            **{name: None for name, there in tensors.items() if not there},
            **{name: value for name, value in of.items() if name.isupper()},
            **{name: value for name, value in norm.meta(problem, rows).items() if name.isupper()},
        },
        warps=rows.warps,
        wide=of["ALIGN"] > 1,
        element=rows.rows * triton.next_power_of_2(length) // (32 * rows.warps),
        capabilities=capabilities,
    )


def _tensors(problem: Fusion, **needs: str | int) -> dict[str, bool]:
    """Names of pointers, and whether the chain has such a tensor: always, or for a step."""
    return {f"{name}_pointer": need == 1 or need in problem.steps for name, need in needs.items()}


def variants() -> Iterator[Variant]:
    """Each block everywhere in two forms, each other form once; layernorm's in its most laborious."""
    for block in stream.CANDIDATES:
        yield streamed("bias-gelu", "float16", block, 64, 4096)
        yield streamed("bias-residual", "float32", block, 64, 4096)
    some = stream.CANDIDATES[1]
    yield streamed("bias", "float16", some, 64, 4096, ON_90)
    yield streamed("residual", "float16", some, 64, 4096, ON_90)
    yield streamed("bias-gelu", "float32", some, 64, 4096, ON_90)
    yield streamed("bias-residual", "float16", some, 64, 4096, ON_90)
    yield streamed("bias-residual", "bfloat16", some, 64, 4096, (80, 90))
    yield streamed("bias-gelu", "float16", some, 64, 1024, ON_90)  # several rows in a block
    yield streamed("bias-gelu", "float16", some, 64, 4095, ON_90)  # rows begin anywhere
    yield streamed("bias-gelu", "float16", some, 65, 4095, ON_90)  # and the end is ragged
    yield streamed("residual", "float16", some, 65, 4095, ON_90)
    yield streamed("residual", "float16", some, 64, 4095, ON_90)
    yield streamed("bias-gelu", "float16", some, 1 << 20, 4096, ON_90)  # beyond 2^31 elements
    for rows in norm.candidates(4096):
        yield normalized("bias-residual-layernorm", "float16", rows, 4096)
    for rows in norm.candidates(1024):
        yield normalized("bias-residual-layernorm", "float32", rows, 1024, (70, 90))
    for dtype in ("float16", "float32"):
        yield normalized("bias-residual-layernorm", dtype, norm.candidates(16384)[0], 16384)
    for rows in norm.candidates(256):
        yield normalized("residual-layernorm", "bfloat16", rows, 256, ON_90)
    yield normalized("bias-residual-layernorm", "float16", norm.candidates(4095)[0], 4095, ON_90)
    yield normalized("bias-residual-layernorm", "float16", norm.candidates(16383)[0], 16383, (70,))


FAMILY = family(variants, lambda: everywhere(variants()))
