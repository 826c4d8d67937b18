"""Our kernels compiled for every architecture, and what their promises are read from.

An ordinary run draws one compilation of each family; a deep run compiles every configuration in some form.
"""

import pytest

pytest.importorskip("triton")

from tests.kernels.compile_table import families, few
from tests.kernels.compiled import Form
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
