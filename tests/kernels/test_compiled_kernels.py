"""Our kernels compiled for every architecture, and what their promises are read from.

An ordinary run draws one compilation of each family; a deep run compiles every configuration in some form.
"""

import re

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

from tests.kernels.compile_table import families, few
from tests.kernels.compiled import Form, build
from tests.kernels.listing import listing, overwritten, register_operands

FEW = [pytest.param(*one, id=f"{one[0].name} {one[1]}") for of in families().items() for one in few(*of)]


@pytest.mark.parametrize(("form", "capability"), FEW)
def test_compiled_kernels_keep_their_promises(form: Form, capability: int) -> None:
    assert not form.faults(form.compiled(capability))


PROGRAM = """
        /*0100*/                   HGMMA.64x64x16.F32 R88, gdesc[UR8], R88, gsb0 ;   /* 0x0 */
        /*0110*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;                   /* 0x0 */
        /*0120*/                   F2FP.F16.F32.PACK_AB R120, R89, R88 ;             /* 0x0 */
        /*0130*/                   HGMMA.64x128x16.F32 R24, R120, gdesc[UR4].tnspB, R24, gsb0 ;
        /*0140*/                   LDSM.16.M88.4 R124, [R6+0x2000] ;                 /* 0x0 */
        /*0150*/              @!P4 BRA 0x100 ;                                       /* 0x0 */
        /*0160*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;                   /* 0x0 */
        /*0170*/                   MOV R120, RZ ;                                    /* 0x0 */
"""
"""A loop as ptxas makes it: a product from R120 to R123 is under way until the next wait, a turn later."""


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ("R124, [R6", "R124, [R6", 0),
        ("R124, [R6", "R121, [R6", 3),  # a load of four registers in the loop
        ("0x100", "0x120", 1),  # a jump past the wait
        ("R88, gdesc[UR8], R88", "R72, gdesc[UR8], R72", 0),  # another product, into R72 to R103
        ("R88, gdesc[UR8], R88", "R96, gdesc[UR8], R96", 4),  # and into R96 to R127
    ],
)
def test_a_register_that_a_matrix_instruction_may_still_read_is_not_written(
    before: str, after: str, count: int
) -> None:
    program = listing(PROGRAM.replace(before, after, 1))
    assert [registers for _, registers in register_operands(program)] == [{120, 121, 122, 123}]
    assert overwritten(program) == count


@triton.jit  # type: ignore[untyped-decorator]
def doubled(x_pointer, y_pointer, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """y = 2 x, with all that Triton can be told of the addresses."""
    x, y = tl.multiple_of(x_pointer, 32), tl.multiple_of(y_pointer, 32)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.max_contiguous(tl.multiple_of(at, BLOCK), BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)


def test_triton_has_no_accesses_of_32_bytes() -> None:
    """Blackwell loads and stores 32 bytes at once (PTX ISA, ld.global.v8.b32); Triton does not yet.

    As of 3.7.1 a thread's access to global memory is at most 16 bytes wide, whatever is known of addresses.
    If this fails, Triton has learned it: ask for it in
    kernels/activations/elementwise.py and kernels/fusion/stream.py.
    """
    pointers = dict.fromkeys(("x_pointer", "y_pointer"), "*fp16")
    built = build(doubled, pointers, {"BLOCK": 4096}, 100, {"num_warps": 4})
    widths = re.findall(r"(?:ld|st)\.global\S*\.(v\d\.b\d+)", built.ptx)
    assert set(widths) == {"v4.b32"} and len(widths) == 8
    assert all("256" not in name for name in built.instructions)
