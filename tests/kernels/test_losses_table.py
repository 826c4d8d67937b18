"""The command that shows what kernels lost: counts of made programs, rows that an old commit has not."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.drawing import drawn

pytest.importorskip("triton")

from tests.kernels import losses
from tests.kernels.compiled import Built
from tests.kernels.listing import listing
from tests.kernels.losses import Form, Row

PROGRAM = """
        /*0100*/                   LDG.E.128 R4, desc[UR4][R2.64] ;     /* 0x0 */
        /*0110*/                   MOV R8, RZ ;                         /* 0x0 */
        /*0120*/                   FADD R8, R8, R4 ;                    /* 0x0 */
        /*0130*/                   NOP ;                                /* 0x0 */
        /*0140*/              @!P0 BRA 0x120 ;                          /* 0x0 */
        /*0150*/               @P1 BRA 0x110 ;                          /* 0x0 */
        /*0160*/                   EXIT ;                               /* 0x0 */
        /*0170*/                   SYNCS R1, [R1] ;                     /* 0x0 */
        /*0180*/                   BRA 0x130 ;                          /* 0x0 */
"""
"""A loop of three instructions in one of six; a wait, past the end, that goes back into them."""


def built(program: str = PROGRAM, **names: int) -> Built:
    return Built(
        registers=32, stack_byte=0, spills=0, spills_in_loops=0, shared_byte=64, tensor_columns=0,
        instructions=Counter(names), register_operands=0, overwritten=0, program=listing(program), ptx="",
    )  # fmt: skip


def test_instructions_of_a_loop_are_those_of_the_longest_innermost_one() -> None:
    assert [len(body) for body in losses.loops(built())] == [3, 5]
    assert losses.in_loop(built(), elements=4) == 2 / 4
    assert losses.in_loop(built(PROGRAM.replace("@!P0 BRA 0x120", "ISETP R1, R2")), elements=4) == 4 / 4
    assert losses.in_loop(built("/*0100*/ EXIT ;"), elements=1) is None


def test_loads_are_shown_by_their_bytes() -> None:
    mixed = {"LDG.E.128": 4, "LDGSTS.E.BYPASS.128": 2, "LDG.E.U16": 1, "LDG.E": 3, "STG.E.128": 9}
    assert losses.loads(built(**mixed)) == "6x16 3x4 1x2"
    assert losses.loads(built(**{"LDG.E.ENL2.256": 2, "UTMALDG.2D": 1})) == "bulk 2x32"
    assert losses.loads(built(**{"STG.E": 1})) == "none"


def form(**more: object) -> Form:
    return replace(Form("a.kernel", "64x64 w4", build=lambda: built(**{"LDG.E.128": 2})), **more)  # type: ignore[arg-type]


def test_a_row_shows_what_was_compiled() -> None:
    shown = form(
        instructions=lambda b: b.registers / 4, in_flight=lambda b: 1024.4, passes=1.5, note=lambda b: "said"
    )
    found = losses.facts(Row("what", lambda: shown), "now", lambda: shown)
    assert found.numbers == ("32", "0", "64", "2x16", "1024", "8.0", "1.50")
    assert (found.kernel, found.note, found.failure) == ("a.kernel 64x64 w4", "said", "")
    nothing = form(build=None, note=lambda b: f"{b}")
    found = losses.facts(Row("what", lambda: nothing), "now", lambda: nothing)
    assert found.note == "None" and not any(found.numbers)


def test_what_this_checkout_cannot_compile_is_said_and_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Form:
        raise AttributeError("module has no statistics")

    monkeypatch.setattr(losses, "rows", lambda name: [Row("one", form, missing), Row("two", form)])
    assert losses.main(["turned"]) == 1
    shown = capsys.readouterr().out
    assert "before not there: AttributeError: module has no statistics" in shown
    assert shown.count("a.kernel 64x64 w4") == 2


TOY = """
from functools import partial
from kernels import toy
from tests.kernels.losses import Form, Row

def form(name):
    return Form("toy", str(getattr(toy, name)), build=None)

def losses():
    yield Row("same name", partial(form, "OLD"))
    yield Row("new name", partial(form, "NEW"), before=partial(form, "OLD"))
    yield Row("only now", partial(form, "NEW"))
    if hasattr(toy, "NEW"):
        yield Row("another candidate", partial(form, "NEW"))
"""


def test_before_is_what_the_kernels_of_a_commit_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This folder's modules, in a process of their own, on other kernels."""
    here, there = tmp_path / "here", tmp_path / "there"
    ours = losses.ROOT / "tests" / "kernels"
    (here / "tests" / "kernels").mkdir(parents=True)
    for name in ("__init__.py", "losses.py", "compiled.py", "listing.py", "streaming.py"):
        shutil.copy(ours / name, here / "tests" / "kernels" / name)
    (here / "tests" / "__init__.py").touch()
    (here / "tests" / "kernels" / "toy_losses.py").write_text(TOY)
    for folder, text in ((here, "OLD, NEW = 1, 2"), (there, "OLD = 7")):
        (folder / "kernels").mkdir(parents=True)
        (folder / "kernels" / "__init__.py").touch()
        (folder / "kernels" / "toy.py").write_text(text)
    (there / "tests").mkdir()
    (there / "tests" / "conftest.py").write_text("their own")

    @contextmanager
    def checked_out(commit: str, where: str) -> Iterator[Path]:
        assert (commit, where) == ("abc of --ref then", "--ref then")
        yield there

    from bench.cli import ab

    monkeypatch.setattr(ab, "checked_out", checked_out)
    monkeypatch.setattr(ab, "commit_of", lambda ref, where: f"abc of {where}")
    monkeypatch.setattr(losses, "ROOT", here)
    found = losses.at_commit("then", ["toy"])["toy"]
    assert [(one.what, one.kernel, one.failure) for one in found] == [
        ("same name", "toy 7", ""),
        ("new name", "toy 7", ""),
        ("only now", "", "AttributeError: module 'kernels.toy' has no attribute 'NEW'"),
    ]
    assert not (there / "tests" / "conftest.py").exists()
    now = [losses.Facts(one, "now") for one in ("same name", "new name", "only now", "another candidate")]
    beside = losses.beside([now[0], losses.Facts("new name", "before", "ours"), *now[1:]], found)
    assert [(one.what, one.side) for one in beside] == [
        (one.what, side) for one in now for side in ("before", "now")
    ]
    assert "ours" not in [one.kernel for one in beside]
    assert beside[-2].failure == "its candidates are others"


def test_some_rows_of_this_checkout_can_be_had_and_all_have_names_of_their_own() -> None:
    every = [(name, row) for name in losses.names() for row in losses.rows(name)]
    assert len({(name, row.what) for name, row in every}) == len(every) > 0
    for _, row in drawn(every, 4, "losses"):
        for side, asked in (("before", row.before), ("now", row.now)):
            if asked:
                found = losses.facts(row, side, asked)
                assert not found.failure and (any(found.numbers) or found.note), row.what
