"""Below a sweep's figures stands what its rows decide, by the claims that the result itself keeps."""

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import kernels
from bench.cli.claims import verdicts
from bench.device.datasheet import find_datasheet
from bench.judge.frame import load
from bench.store.parquet import read_sweeps, write
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base import style, verdict_lines
from plots.figures.every_figure import pages, sweep_pages
from tests.our_sweeps import declared
from tests.plots.synthetic import CPU, H100, NO_TIME, Machine, ceilings, only, quantized, row

NEAREST = {"of": {"k": "!%8"}, "to": {"k": "%8"}, "pair": "nearest k", "per": "flop"}
TILES = [Gemm(m=27648, n=n, k=4096, dtype="float16", layout="NT") for n in range(112, 1025, 16)]


def claim(experiment: str, expect: str = "above 1.03", **more: Any) -> dict[str, Any]:
    return {
        "id": experiment,
        "says": "K divisible by 8 is fastest",
        "expect": expect,
        "ratio": NEAREST,
    } | more


def aligned(machine: Machine = H100, sweep: str = "gemm/mine", **facts: Any) -> list[Measurement]:
    """Products of which those with an odd K take a quarter longer."""
    made = []
    for m, k, library in itertools.product((1024, 2048, 4096), range(4088, 4105), machine.libraries):
        problem = Gemm(m=m, n=4096, k=k, dtype="float32")
        seconds = 3e-3 * m * k / 2**24 * (1.25 if k % 8 else 1.0)
        times = {"median_s": seconds, "low_s": seconds * 0.999, "high_s": seconds * 1.001}
        made.append(row(machine, sweep, problem, library, **(times | facts)))
    return [*ceilings(machine), *made]


def drawn(
    folder: Path, rows: list[Measurement], sweeps: dict[str, Any], whole: bool = False
) -> dict[str, Figure]:
    """The figures of these sweeps of a result file with these rows; with `whole` all figures of the file."""
    path = write(folder / "run.parquet", rows, sweeps)
    (run,) = load([path], find_datasheet)
    stored = read_sweeps([path])[run.key]
    with style.look():
        figures = pages(run, stored) if whole else sweep_pages(only(run, sweeps), stored)
        return {stem: page.figure for stem, page in figures}


def below(figure: Figure) -> str:
    """All texts around the axes from the top down, line breaks undone."""
    top_down = sorted(figure.texts, key=lambda text: -text.get_position()[1])
    return " ".join(" ".join(text.get_text().replace(style.NO_BREAK, " ") for text in top_down).split())


def test_a_figure_says_what_the_command_says(tmp_path: Path) -> None:
    sweep = "gemm/aligned_k"
    figures = drawn(tmp_path, aligned(sweep=sweep), {sweep: declared()[sweep]}, whole=True)
    judged = verdicts([tmp_path], kernels.problem, lambda line: None, lambda line: None)
    (of,) = [each for each in judged if each.declared.name == sweep and each.claim.id == "MM-01"]
    assert of.verdict == "SUPPORTED" and of.effect is not None
    expected = (
        f"MM-01, rules 3, 7 and 13: SUPPORTED, {of.effect}, n = {of.effect.clusters}, expected above 1.03"
    )
    assert f"{expected}. {of.claim.says}." in below(figures[f"{sweep}-duration"])
    assert not [stem for stem, figure in figures.items() if sweep not in stem and "MM-01" in below(figure)]


def test_the_claims_of_the_result_count_and_not_those_of_the_checkout(tmp_path: Path) -> None:
    sweep = "gemm/aligned_k"
    other = {"title": "x", "claims": [claim("MM-01", "below 1.1", rules=[7])]}
    text = below(drawn(tmp_path, aligned(sweep=sweep), {sweep: other})[f"{sweep}-duration"])
    assert re.search(
        r"MM-01, rule 7: CONTRADICTED, 1\.2\d\d \[.*\], n = \d+, expected below 1\.1\. K div", text
    )


@pytest.mark.parametrize("kept", [{}, {"claims": [{"id": "MM-01", "says": "x"}]}], ids=["none", "no test"])
def test_an_old_result_gets_no_line(kept: dict[str, Any], tmp_path: Path) -> None:
    old = drawn(tmp_path / "old", aligned(), {"gemm/mine": {"title": "x"} | kept})
    new = drawn(tmp_path / "new", aligned(), {"gemm/mine": {"title": "x", "claims": [claim("MM-01")]}})
    heights = [of["gemm/mine-duration"].get_size_inches()[1] for of in (old, new)]
    assert "MM-01" not in below(old["gemm/mine-duration"]) and heights[0] < heights[1]


def test_few_missing_and_suspect_rows_and_other_devices_are_told(tmp_path: Path) -> None:
    claims = [
        claim("MM-01", least=50),
        claim("MM-02", device={"kind": "cpu"}),
        claim("MM-03", ratio=NEAREST | {"of": {"k": 1}}),
        claim("MM-04", where={"implementation": "triton-split-k"}),
    ]
    rows = aligned()
    rows[-3] = dataclasses.replace(rows[-3], settled=False)  # k = 4103
    no_such = row(H100, "gemm/mine", Gemm(m=4096, n=4096, k=4096, dtype="float32"), "triton-split-k")
    why = {"status": "unsupported", "reason": "needs another GPU"}
    rows.append(dataclasses.replace(no_such, **(NO_TIME | why)))  # type: ignore[arg-type]
    text = below(drawn(tmp_path, rows, {"gemm/mine": {"title": "x", "claims": claims}})["gemm/mine-duration"])
    assert re.search(r"TOO FEW rows to decide: MM-01 \d+ of 50 \(1 suspect row left out\)\.", text)
    assert "MM-03: NOT MEASURED (no two of" in text
    assert "MM-02, MM-04: NOT APPLICABLE (about cpu devices; needs another GPU)." in text


def boxes(figure: Figure) -> list[tuple[str, Any]]:
    """What every text around the axes, every panel with its labels, and the legend cover."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [(text.get_text(), text.get_window_extent(renderer)) for text in figure.texts]
    panels = [(f"panel {i}", axes.get_tightbbox(renderer)) for i, axes in enumerate(figure.axes)]
    return [*texts, *panels, *(("legend", each.get_window_extent(renderer)) for each in figure.legends)]


def test_many_claims_neither_collide_nor_leave_the_page(tmp_path: Path) -> None:
    says = "A statement of the documents that takes more than one line of a narrow figure to say in words"
    many = [claim("MM-01" + letter, says=says, rules=[3, 7, 13]) for letter in "abcdefghijkl"]
    heat = {"kind": "heatmap", "x": "n", "y": "k"}
    tiles = {"kind": "quantization", "x": "n"}
    sweeps = {
        "gemm/mine": {"title": "x", "claims": many},
        "gemm/tiles": {"title": "x", "claims": many, "plot": [tiles]},
        "gemm/map": {"title": "x", "claims": many, "plot": [heat]},
    }
    grid = [Gemm(m=4096, n=n, k=k, dtype="float32") for n in (512, 1024, 2048) for k in range(4088, 4097)]
    rows = [*aligned(), *quantized(H100, "gemm/tiles", iter(TILES))]
    figures = drawn(tmp_path, [*rows, *(row(H100, "gemm/map", each, "cublas") for each in grid)], sweeps)
    shown = [stem for stem in figures if stem.startswith(("gemm/mine", "gemm/tiles", "gemm/map"))]
    assert {stem.rpartition("-")[2] for stem in shown} >= {"duration", "rate", "quantization", "heatmap"}
    for stem in shown:
        text = below(figures[stem])
        if "tiles" in stem:  # their k is one, so there are no pairs
            assert "TOO FEW rows to decide: MM-01a 0 of " in text and text.count("TOO FEW") == 1, stem
        else:
            assert len(re.findall("MM-01[a-l], rules", text)) == verdict_lines.MOST, stem
            assert "7 further claims: 7 " in text and "`python -m bench claims` lists them." in text
        placed = boxes(figures[stem])
        width, height = figures[stem].get_size_inches() * figures[stem].dpi
        for name, box in placed:
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, (stem, name)
        for (name, box), (other, against) in itertools.combinations(placed, 2):
            if not (name.startswith("panel") and other.startswith("panel")):
                assert not box.overlaps(against), (stem, name, other)


def test_a_cpu_and_a_gpu_each_have_their_own_verdict(tmp_path: Path) -> None:
    kept = {"gemm/mine": {"title": "x", "claims": [claim("MM-01", device={"kind": "cuda"})]}}
    for machine, says in ((H100, "MM-01: SUPPORTED, "), (CPU, "MM-01: NOT APPLICABLE (about cuda devices).")):
        figures = drawn(tmp_path / machine.facts["device"], aligned(machine), kept)
        assert says in below(figures["gemm/mine-duration"])
