"""A flag is seen in every kind of figure: hollow where it makes a time suspect, and by name and number."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from bench.judge.frame import DeviceRun
from bench.store.parquet import NO_SWEEPS, Sweeps
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.figures.every_figure import pages, sweep_pages
from tests.plots.drawn import legend, loaded, said
from tests.plots.synthetic import H100, NO_TIME, ceilings, only, paired, quantized, row

Facts = dict[str, Any]
SOUND: Facts = {"low_s": None, "high_s": None}
CONTENDED: Facts = {"pressure": 0.5}
UNSETTLED: Facts = {"settled": False}
UNCONVERGED: Facts = {"stop": "budget"}
CAPPED: Facts = {"held_power": 0.5}


def figures(run: DeviceRun, sweeps: Sweeps = NO_SWEEPS) -> dict[str, Figure]:
    with style.look():
        return {stem: page.figure for stem, page in pages(run, sweeps)}


def swept(run: DeviceRun, sweep: str, sweeps: Sweeps = NO_SWEEPS) -> dict[str, Figure]:
    """The figures of one sweep."""
    with style.look():
        return {stem: page.figure for stem, page in sweep_pages(only(run, [sweep]), sweeps)}


def points(figure: Figure, label: str) -> tuple[int, int]:
    """(solid, hollow) points of the lines of this label."""
    counts = [0, 0]
    for axes in figure.axes:
        for line in axes.get_lines():
            if line.get_label() == label:
                counts[line.get_markerfacecolor() == "white"] += len(line.get_xdata())
    return counts[0], counts[1]


def some(changes: dict[int, Facts]) -> list[Measurement]:
    """Ceilings, and eight sizes on one line, those of `changes` with these facts."""
    rows = list(ceilings(H100))
    rows = [dataclasses.replace(one, low_s=one.median_s, high_s=one.median_s) for one in rows]
    for place, size in enumerate(512 * i for i in range(1, 9)):
        one = row(H100, "gemm/mine", Gemm(m=size, n=size, k=size, dtype="float16"), "cublas", **SOUND)
        rows.append(dataclasses.replace(one, **changes.get(place, {})))
    return rows


def test_a_sweep_and_its_strip_and_the_roofline(tmp_path: Path) -> None:
    run = loaded(tmp_path, some({1: CONTENDED, 3: CONTENDED | UNSETTLED, 4: UNCONVERGED, 6: CAPPED}))
    drawn = figures(run)
    for stem in ("gemm/mine-duration", "gemm/mine-rate"):
        assert points(drawn[stem], "_measured") == (6, 2), stem
        told = "Flagged: 1 unsettled, 2 contended (hollow); 1 unconverged, 1 power_capped."
        assert told in said(drawn[stem]), stem
        assert "suspect (flagged)" in legend(drawn[stem])
    assert points(drawn["gemm/mine-duration"], "_ratio") == (6, 2)
    roofline = drawn["roofline-float16"]
    solid, hollow = points(roofline, "_measured")
    assert hollow == 2 and solid == int((run.frame["dtype"] == "float16").sum()) - 2
    assert "Flagged: 1 unsettled, 2 contended (hollow); 1 unconverged, 1 power_capped." in said(roofline)


def test_a_sweep_without_a_flag_says_so(tmp_path: Path) -> None:
    drawn = figures(loaded(tmp_path, some({})))
    for stem in ("gemm/mine-duration", "gemm/mine-rate", "roofline-float16"):
        assert points(drawn[stem], "_measured")[1] == 0
        assert "No point is flagged." in said(drawn[stem]) and "suspect (flagged)" not in legend(drawn[stem])


def test_flags_without_doubt_are_told_but_not_hollow(tmp_path: Path) -> None:
    figure = swept(loaded(tmp_path, some({0: UNCONVERGED, 2: UNCONVERGED})), "gemm/mine")["gemm/mine-rate"]
    assert points(figure, "_measured") == (8, 0)
    assert "Flagged: 2 unconverged." in said(figure) and "suspect (flagged)" not in legend(figure)


def test_the_lettered_cases_tell_their_flags(tmp_path: Path) -> None:
    """The quickest point of all may be the one that cannot be."""
    fast = {"median_s": 1e-5, "low_s": 1e-5, "high_s": 1e-5}
    told = said(figures(loaded(tmp_path, some({7: fast})))["roofline-float16"])
    assert "A: highest rate, gemm/mine-cublas-float16-" in told
    assert "of the roof, above_roof." in told and "B: farthest" in told
    assert "1 above_roof (hollow)" in told


@pytest.mark.parametrize("status", ["wrong", "escaped"])
def test_a_wrong_row_is_a_tick_and_not_a_hollow_point(tmp_path: Path, status: str) -> None:
    rows = some({2: NO_TIME | {"status": status}})
    run = loaded(tmp_path, rows)
    assert run.frame.loc[run.frame["status"] == status, "flags"].tolist() == [status]
    figure = swept(run, "gemm/mine")["gemm/mine-duration"]
    assert points(figure, "_measured") == (7, 0) and "suspect (flagged)" not in legend(figure)
    assert f"1 of 8 cases have no time (1 {status}): ticks at the bottom." in said(figure)
    assert "No point is flagged." in said(figure)


def test_quantization(tmp_path: Path) -> None:
    problems = [Gemm(m=3072, n=n, k=4096, dtype="float16", layout="NT") for n in range(1344, 3009, 64)]
    rows = [
        dataclasses.replace(one, low_s=one.median_s, high_s=one.median_s)
        for one in quantized(H100, "gemm/waves", iter(problems))
    ]
    rows = [
        dataclasses.replace(one, **CONTENDED) if one.implementation == "cublas" and place < 25 else one
        for place, one in enumerate(rows)
    ]
    asked = {"gemm/waves": {"plot": [{"x": "n", "kind": "quantization"}]}}
    drawn = swept(loaded(tmp_path, rows), "gemm/waves", asked)
    for tile in ("gemm/waves-quantization", "gemm/waves-quantization-2"):
        _, hollow = points(drawn[tile], "_measured")
        assert hollow == 2 * 5, "in the panel of rates and in that of durations"
        assert "Flagged: 5 contended (hollow)." in said(drawn[tile])
        assert "suspect (flagged)" in legend(drawn[tile])


def test_a_duel_leaves_doubt_out_says_how_many_and_tells_the_other_flags(tmp_path: Path) -> None:
    problems = [
        Gemm(m=4096, n=8192, k=k, dtype="float16", layout=layout)  # type: ignore[arg-type]
        for k, layout in itertools.product((1024, 4096), ("NN", "NT", "TN", "TT"))
    ]
    rows = list(paired(H100, "gemm/shapes", iter(problems), {"triton": 0.9}))
    rows = [dataclasses.replace(one, stop="converged", settled=True) for one in rows]
    places = [place for place, one in enumerate(rows) if one.implementation == "triton"]
    rows[places[0]] = dataclasses.replace(rows[places[0]], **CONTENDED)
    rows[places[1]] = dataclasses.replace(rows[places[1]], **UNCONVERGED)
    figure = figures(loaded(tmp_path, rows))["duel-triton"]
    assert points(figure, "_case") == (7, 0)
    assert "Left out: 1 pair with a suspect time." in said(figure)
    assert "Flagged: 1 unconverged." in said(figure)
    # The same problem again in another sweep, in doubt there: the sound row is the one that is drawn.
    again = dataclasses.replace(rows[places[2]], sweep="gemm/more", **CONTENDED)
    figure = figures(loaded(tmp_path / "again", [*rows, again]))["duel-triton"]
    assert points(figure, "_case") == (7, 0)
    assert "Flagged: 1 unconverged." in said(figure) and "n = 14 measured" in said(figure)
