"""What the batch normalization kernels promise of their compiled form, with every configuration they may try.

Kernels that write nothing in bulk, or read one element of x with the bulk (the shift), promise 16-byte loads
here.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.spec import Dtype
from kernels.batchnorm import two_pass
from kernels.batchnorm.problem import BatchNorm
from tests.kernels.compiled import (
    CAPABILITIES,
    Built,
    Form,
    launched,
    narrow_faults,
    resource_faults,
    without_memory,
)

DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
MULTIPROCESSORS = 132


def two_passes(dtype: Dtype, aligned: bool) -> Iterator[Form]:
    """The four kernels with each candidate, for planes of whole 16 bytes or odd ones."""
    c, side = (256, 56) if aligned else (255, 7)
    problem = BatchNorm(n=32, c=c, h=side, w=side, dtype=dtype)
    for tile in two_pass.candidates(problem):
        for direction, count in (("forward", 3), ("backward", 5)):  # and how many tensors a launch reads
            way = problem.model_copy(update={"direction": direction})
            tensors = without_memory(way)[:count]
            for call in launched(two_pass.launch(way, *tensors, tile=tile, multiprocessors=MULTIPROCESSORS)):
                wide = aligned and call.kernel.fn.__name__ in ("normalize", "input_gradient")
                promises = (resource_faults, *((narrow_faults,) if wide else ()))
                yield Form(f"{call.kernel.fn.__name__} {problem} {tile}", call, promises)


def chosen() -> Iterator[Form]:
    """Every configuration of every kernel in float16 and float32, the rest in turns.

    Each is compiled for one architecture, so that each kernel and each configuration meets all of them.
    """
    for j, dtype in enumerate(DTYPES):
        for place, one in enumerate(two_passes(dtype, aligned=dtype != "bfloat16")):
            configuration, kernel = divmod(place, 4)
            turn = (configuration + kernel + 2 * j) % 4
            yield replace(one, capabilities=(CAPABILITIES[turn],))
    yield from readers()


def readers() -> Iterator[Form]:
    """Of each kernel that reads aligned data its first configuration, for sm_90, held to how it reads."""
    for dtype in ("float16", "float32"):
        aligned = tuple(two_passes(dtype, True))
        for kernel in ("statistics", "gradient_sums"):
            reader = next(form for form in aligned if form.name.startswith(kernel))
            shift = dtype == "float16" and kernel != "gradient_sums"  # a single element
            wide = partial(narrow_faults, stores=0, narrow=int(shift))
            yield replace(reader, capabilities=(90,), promises=(wide, no_maximum))


def no_maximum(built: Built) -> list[str]:
    """Whether a maximum of float32 is taken.

    On the GPU it returns the other operand for NaN, while the interpreter's returns NaN.
    """
    return ["a maximum of float32"] if re.search(r"max\.(NaN\.)?f32", built.ptx) else []


FAMILIES = {"batchnorm": chosen}
