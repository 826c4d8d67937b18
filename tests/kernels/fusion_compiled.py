"""What the fused chains promise of their compiled form: every block that a tuner may try, aligned and not."""

from collections.abc import Iterator
from functools import partial

from bench.spec import Dtype
from kernels.activations.elementwise import Tile
from kernels.fusion import stream
from kernels.fusion.problem import Chain, Fusion
from tests.kernels.compiled import (
    CAPABILITIES,
    Form,
    Promise,
    launched,
    length_faults,
    narrow_faults,
    resource_faults,
    without_memory,
)

MOST = {"bias": 9.0, "residual": 6.0, "bias-gelu": 22.0, "bias-residual": 14.0}
"""Instructions for each element of a stream. At 4 bytes an element an H100 has issue slots for 40."""
ON_90 = (90,)


def form(
    chain: Chain,
    dtype: Dtype,
    configuration: Tile,
    rows: int,
    length: int,
    capabilities: tuple[int, ...] = CAPABILITIES,
) -> Form:
    """A problem of this size. Its data moves 16 bytes at a time if its sizes allow it."""
    problem = Fusion(chain=chain, dtype=dtype, rows=rows, length=length)
    (call,) = launched(stream.launch(problem, *without_memory(problem), chosen=configuration))
    promises: list[Promise] = [resource_faults]
    straight = call.arguments["ALIGN_N"] > 1
    element = configuration.block // (32 * configuration.warps) if straight else 0
    wide = call.arguments["ALIGN_N" if chain == "residual" else "ALIGN_LENGTH"] > 1
    if wide and length >= configuration.block and problem.elements < 1 << 31:
        promises.append(partial(length_faults, element=element, most=MOST[chain]))
    promises += [narrow_faults] if wide else []
    return Form(f"{problem} {configuration}", call, tuple(promises), capabilities)


def chosen() -> Iterator[Form]:
    """Each block everywhere in two forms, each other form once."""
    for block in stream.CANDIDATES:
        yield form("bias-gelu", "float16", block, 64, 4096)
        yield form("bias-residual", "float32", block, 64, 4096)
    some = stream.CANDIDATES[1]
    yield form("bias", "float16", some, 64, 4096, ON_90)
    yield form("residual", "float16", some, 64, 4096, ON_90)
    yield form("bias-gelu", "float32", some, 64, 4096, ON_90)
    yield form("bias-residual", "float16", some, 64, 4096, ON_90)
    yield form("bias-residual", "bfloat16", some, 64, 4096, (80, 90))
    yield form("bias-gelu", "float16", some, 64, 1024, ON_90)  # several rows in a block
    yield form("bias-gelu", "float16", some, 64, 4095, ON_90)  # rows begin anywhere
    yield form("bias-gelu", "float16", some, 65, 4095, ON_90)  # and the end is ragged
    yield form("residual", "float16", some, 65, 4095, ON_90)
    yield form("residual", "float16", some, 64, 4095, ON_90)
    yield form("bias-gelu", "float16", some, 1 << 20, 4096, ON_90)  # beyond 2^31 elements


FAMILIES = {"fusion": chosen}
