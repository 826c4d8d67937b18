"""Bytes in flight: of listings written by hand, whose answer is plain, and of small kernels compiled."""

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

from tests.kernels.compiled import build
from tests.kernels.in_flight import in_flight, needed, of_thread, resident
from tests.kernels.listing import Line, listing


def program(*lines: str, first: int = 0) -> list[Line]:
    """Instructions at 0x10, 0x20 and so on: what cuobjdump would print of them."""
    return listing(
        "\n".join(f"        /*{16 * (first + i):04x}*/    {line} ;" for i, line in enumerate(lines, 1))
    )


LOADS = [f"@P1 LDG.E.128 R{r}, desc[UR4][R2.64+{r:#x}]" for r in (8, 12, 16, 20)]
USES = [f"FADD R0, R0, R{r}" for r in (8, 12, 16, 20)]
AGAIN, END = "@P0 BRA 0x10", "EXIT"


def test_loads_before_the_first_use_are_in_flight_together() -> None:
    assert of_thread(program(*LOADS, *USES, AGAIN, END)) == 64
    assert (
        of_thread(program(*(line for pair in zip(LOADS, USES, strict=True) for line in pair), AGAIN, END))
        == 16
    )
    # Two at a time; and three, of which the last is used before the fourth is issued.
    assert of_thread(program(*LOADS[:2], *USES[:2], *LOADS[2:], *USES[2:], AGAIN, END)) == 32
    assert of_thread(program(*LOADS[:3], USES[2], LOADS[3], USES[3], AGAIN, END)) == 32


def test_a_load_of_the_next_iteration_is_in_flight_while_this_one_is_used() -> None:
    # Each register is used, and loaded anew, one iteration after it was loaded.
    ahead = [line for r in range(4) for line in (USES[r], LOADS[r])]
    assert of_thread(program(*ahead, AGAIN, END)) == 64
    assert of_thread(program(*LOADS, *ahead, "@P0 BRA 0x50", END)) == 64
    # Used in another register: the copy waits.
    assert of_thread(program(LOADS[0], "MOV R4, R8", "FADD R0, R0, R4", AGAIN, END)) == 16


def test_a_register_written_while_its_load_is_under_way_waits() -> None:
    assert of_thread(program(*LOADS[:2], "MOV R15, RZ", *LOADS[2:], "FADD R0, R8, R23", AGAIN, END)) == 32
    assert of_thread(program(*LOADS[:2], "CS2R R24, SRZ", *LOADS[2:], "FADD R0, R8, R23", AGAIN, END)) == 64
    wide = ["LDG.E R9, desc[UR4][R2.64]", "IMAD.WIDE R8, R2, R3, R4", LOADS[3], USES[3]]
    assert of_thread(program(*wide, AGAIN, END)) == 10


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_groups_of_asynchronous_copies(stages: int) -> None:
    copies = ["LDGSTS.E.BYPASS.128 [R7], desc[UR4][R2.64]", "LDGSTS.E.128 [R7+0x800], desc[UR4][R2.64]"]
    group = [*copies, "LDGDEPBAR"]
    loop = [f"DEPBAR.LE SB0, {stages - 1:#x}", "LDS.128 R8, [R9]", "FADD R0, R0, R8", *group]
    text = [*group * stages, *loop, f"@P0 BRA {16 * (3 * stages + 1):#x}", END]
    assert of_thread(program(*text)) == 32 * stages
    with pytest.raises(ValueError, match="never waits"):
        of_thread(program(*group, AGAIN, END))


@pytest.mark.parametrize(
    ("name", "byte"),
    [("U8", 1), ("S8", 1), ("U16", 2), ("CONSTANT", 4), ("64", 8), ("LTC128B.64", 8), ("EF.128", 16)],
)
def test_sizes(name: str, byte: int) -> None:
    load = f"LDG.E.{name} R8, desc[UR4][R2.64]"
    assert of_thread(program(load, USES[0], AGAIN, END)) == byte


def test_loads_of_32_bytes_fill_eight_registers() -> None:
    load = "LDG.E.ENL2.256 R8, R4, desc[UR4][R2.64]"
    for last in (4, 7, 8, 11):
        assert of_thread(program(load, f"FADD R0, R0, R{last}", LOADS[3], USES[3], AGAIN, END)) == 24
    assert of_thread(program(load, "FADD R0, R0, R12", LOADS[3], USES[3], AGAIN, END)) == 48


def test_the_loop_with_the_most_counts_and_sums_left_by_others_do_not() -> None:
    small = [LOADS[0], USES[0], "@P0 BRA 0x10"]
    large = [*LOADS[:2], *USES[:2], "@P0 BRA 0x40"]
    partial = [*(load.replace("128", "128.STRONG.GPU") for load in LOADS), *USES, "@P0 BRA 0x90"]
    assert of_thread(program(*small, *large, *partial, END)) == 32
    outer = [*LOADS, *small[:2], "@P0 BRA 0x50", *USES, AGAIN, END]
    assert of_thread(program(*outer)) == 16
    with pytest.raises(ValueError, match="loads nothing"):
        of_thread(program("MOV R0, R1", END))


def test_of_two_ways_through_a_loop_one_is_taken() -> None:
    # 0x10 branches to the masked half at 0x50, both meet at 0x70.
    both = ["@P2 BRA 0x50", *LOADS[:2], "BRA 0x70", *LOADS[2:], *USES, AGAIN, END]
    assert of_thread(program(*both)) == 32
    # The way that loads less does not count: a branch may skip all loads.
    skip = ["BRA.U UP0, 0x60", *LOADS, *USES, AGAIN, END]
    assert of_thread(program(*skip)) == 64
    # Of two ways that load as much the slower one counts.
    slow = ["@P2 BRA 0x50", *LOADS[:2], "BRA 0x80", LOADS[2], USES[2], LOADS[3], *USES, AGAIN, END]
    assert of_thread(program(*slow)) == 16


def test_a_program_without_a_loop_runs_once() -> None:
    assert of_thread(program("@P3 EXIT", *LOADS, *USES, "STG.E [R2.64], R0", END, "BRA 0xc0", "NOP")) == 64
    assert of_thread(program(LOADS[0], "IADD3 R2, R2, R8, RZ", *LOADS[1:], *USES, END)) == 32


def test_what_it_cannot_read_it_refuses() -> None:
    with pytest.raises(ValueError, match="UTMALDG"):
        of_thread(program("UTMALDG.2D [UR8], [UR4]", *LOADS, *USES, AGAIN, END))
    with pytest.raises(ValueError, match="no instructions"):
        of_thread([])


@triton.jit(do_not_specialize=["steps"])  # type: ignore[untyped-decorator]
def _sums(x_pointer, y_pointer, steps, BLOCK: tl.constexpr, STAGES: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        total += tl.load(x_pointer + step * BLOCK + i)
    tl.store(y_pointer + i, total)


@pytest.mark.parametrize(("capability", "stages"), [(80, 1), (90, 3)])
def test_compiled_loops(capability: int, stages: int) -> None:
    """A thread's share of a block, 32 bytes, as often as the loop has copies under way."""
    built = build(
        _sums,
        {"x_pointer": "*fp32", "y_pointer": "*fp32", "steps": "i32"},
        {"BLOCK": 1024, "STAGES": stages},
        capability,
        {"num_warps": 4},
    )
    found = in_flight(built, capability, warps=4)
    assert found.threads == 128 * resident(built, capability, warps=4)
    assert in_flight(built, capability, warps=4, programs=2).threads == 256
    if stages == 1:
        assert not built.count("LDGSTS") and 32 <= found.thread_byte <= 128  # ptxas unrolls it by up to 4
    else:
        assert built.count("LDGSTS") and found.thread_byte == 32 * (stages - 1)


@pytest.mark.parametrize(
    ("capability", "registers", "shared_byte", "warps", "blocks"),
    [
        (90, 32, 0, 4, 16),
        (90, 40, 0, 4, 12),
        (90, 16, 0, 1, 32),
        (90, 80, 0, 1, 24),
        (90, 255, 0, 8, 1),
        (90, 168, 0, 4, 3),
        (90, 32, 100 * 1024, 4, 2),
        (100, 32, 227 * 1024, 8, 1),
        (80, 64, 40 * 1024, 4, 4),
        (75, 32, 0, 4, 8),
    ],
)
def test_blocks_of_a_multiprocessor(
    capability: int, registers: int, shared_byte: int, warps: int, blocks: int
) -> None:
    """As NVIDIA's occupancy calculator has it."""
    from types import SimpleNamespace

    built = SimpleNamespace(registers=registers, shared_byte=shared_byte)
    assert resident(built, capability, warps) == blocks  # type: ignore[arg-type]


def test_needed_by_the_law_of_little() -> None:
    assert needed(8e12, 148, latency_ns=800) == pytest.approx(43_243, abs=1)
    assert needed(3.35e12, 132, latency_ns=800) == pytest.approx(20_303, abs=1)
