"""The sweeps of this checkout, and what becomes of a file changed at random."""

import json
import math
import random
from pathlib import Path

import pytest

import kernels
from bench.errors import UserError
from bench.model.quantization import tiles
from bench.sweep import expand
from bench.sweep import load as sweep
from bench.sweep.claims import Claim
from bench.sweep.grammar import Plot
from bench.sweep.load import SWEEPS, Case, Loaded
from tests.drawing import is_deep

PROBLEMS = [kernels.problem(name) for name in kernels.names()]


@pytest.fixture(scope="module")
def loaded() -> list[Loaded]:
    """All of them for an H100."""
    return sweep.load_all(SWEEPS, kernels.problem, sm_count=132)


@pytest.fixture(scope="module")
def cases(loaded: list[Loaded]) -> list[Case]:
    return [case for one in loaded for case in one.cases]


def test_our_sweeps_load_with_unique_cases(loaded: list[Loaded], cases: list[Case]) -> None:
    assert [one.name for one in loaded][:3] == ["ceilings/launch", "ceilings/stream", "ceilings/gemm"]
    assert len({c.name for c in cases}) == len({c.key for c in cases}) == len(cases)


def test_every_implementation_stands_in_some_sweep(cases: list[Case]) -> None:
    """One that stands in none is never measured, and nobody notices."""
    able = {
        (case.problem.operator, case.implementation)
        for case in cases
        if any(not case.missing(kind, capability) for kind, capability in (("cpu", None), ("cuda", (9, 0))))
    }
    assert {(kind.operator, each.name) for kind in PROBLEMS for each in kind.implementations} == able


def test_what_a_result_keeps_of_our_sweeps_is_plots_and_claims_to_the_letter(loaded: list[Loaded]) -> None:
    for one in loaded:
        kept = json.loads(json.dumps(one.sweep.declared))
        assert kept["title"] == one.sweep.title
        assert tuple(Plot.model_validate(plot) for plot in kept.get("plot", ())) == one.sweep.plot, one.name
        assert tuple(Claim.model_validate(claim) for claim in kept.get("claims", ())) == one.sweep.claims


@pytest.mark.parametrize("moving", ["m", "n", "k", "mnk"])
def test_alignment_sweeps_change_the_alignment_and_nothing_else(moving: str) -> None:
    """Every power of two that a tensor core asks for, and never one tile more; the rest stays as it is."""
    (path,) = sweep.select(f"gemm/alignment_{moving}")
    problems = [case.problem.parameters() for case in sweep.load(path, kernels.problem, 132).cases]
    others = [name for name in ("m", "n", "k") if name not in moving]
    sizes: dict[object, set[int]] = {}
    for problem in problems:
        size, *same = (int(problem[name]) for name in moving)
        assert all(other == size for other in same)
        sizes.setdefault(tuple(problem[name] for name in others), set()).add(size)
    assert len(sizes) == (1 if moving == "mnk" else 2)
    for found in sizes.values():
        divisors = {min(size & -size, 128) for size in found}
        assert divisors >= {1, 2, 4, 8, 16, 32, 128}
        assert all(len({math.ceil(size / tile) for size in found}) == 1 for tile in (64, 128, 192, 256))
    assert any(problem["pitch"] == "padded" for problem in problems)


@pytest.mark.parametrize("sm_count", [72, 80, 108, 114, 132, 144, 148])
def test_wave_sweeps_fill_the_device_exactly_and_nearly(sm_count: int) -> None:
    """One, two and three waves of any GPU's SMs, and less than a tenth of a wave below and above each."""
    (path,) = sweep.select("gemm/waves")
    loaded = sweep.load(path, kernels.problem, sm_count)
    given = [case.problem.parameters() for case in loaded.cases]
    count = {tiles(int(p["m"]), int(p["n"]), 256, 128) / sm_count for p in given}
    for wave in (1, 2, 3):
        assert wave in count
        assert any(wave - 0.1 < c < wave for c in count) and any(wave < c < wave + 0.1 for c in count)
    # 16-bit rows of B begin at multiples of 16 bytes: waves change, alignment does not.
    assert all(int(p["n"]) % 8 == 0 for p in given)
    (path,) = sweep.select("gemm/linear_waves")
    given = [case.problem.parameters() for case in sweep.load(path, kernels.problem, sm_count).cases]
    whole = {p["layout"] for p in given if tiles(int(p["m"]), int(p["n"]), 256, 128) % sm_count == 0}
    assert whole == {"TN", "NN"}


def test_nothing_but_a_sweep_error_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Valid files with characters and lines changed at random: each loads or is refused in one line."""
    monkeypatch.setattr(sweep, "MAX_CASES", 1_000)
    monkeypatch.setattr(expand, "MAX_CASES", 1_000)
    draw = random.Random(seed)
    good = [path.read_text() for path in sorted(SWEEPS.glob("*/**/*.yaml"))]
    pieces = [*"[]{}:,-=&*!|>'\"%@`#~?<\t\n 09.eE+\0\x85\ud7ff\u2028"]
    pieces += ["no", "null", "1e9", ": ", "- ", "per_sm", ".inf"]
    loaded = refused = 0
    for _ in range(5_000 if is_deep() else 400):
        text = draw.choice(good)
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            at = draw.randrange(len(text) + 1)
            lines = text.splitlines(keepends=True) or [""]
            line = draw.randrange(len(lines))
            text = draw.choice(
                [
                    text[:at] + draw.choice(pieces) + text[at:],
                    text[:at] + text[at + draw.randrange(1, 8) :],
                    text[:at] + draw.choice(pieces) + text[at + 1 :],
                    text[:at],
                    "".join(lines[:line] + lines[line + 1 :]),
                    "".join([*lines[:line], draw.choice(lines), *lines[line:]]),
                ]
            )
        path = tmp_path / "x.yaml"
        path.write_bytes(text.encode())
        try:
            sweep.load(path, kernels.problem, 132, root=tmp_path)
            loaded += 1
        except UserError as error:
            told = str(error)
            assert told.startswith(f"{tmp_path.name}/x.yaml:") and len(told.splitlines()) == 1, text
            refused += 1
    assert loaded > 0 and refused > 0
