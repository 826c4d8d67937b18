"""Measured over predicted in cells: the median of the cell's cases, the same colour for the same number."""

import dataclasses
import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure

from bench.judge.frame import DeviceRun
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.base import style
from plots.base.plot_spec import MOST_GUESSED, Section, sections
from plots.figures import heatmap
from plots.figures.every_figure import pages
from tests.drawing import run_seed
from tests.plots.drawn import loaded, said
from tests.plots.synthetic import H100, NO_TIME, ceilings, row, with_frame

SEED = run_seed()


def run_of(folder: Path, rows: list[Measurement]) -> DeviceRun:
    run = loaded(folder, [*ceilings(H100), *rows])
    run.frame["structured_s"], run.frame["structured_limiter"] = np.nan, ""
    return run


def drawn(run: DeviceRun, section: Section) -> list[Figure]:
    with style.look():
        rows = run.frame[run.frame["sweep"] == "gemm/x"]
        return [page.figure for page in heatmap.draw(run, rows, section)]


def cells(figure: Figure, panel: int = 0) -> np.ma.MaskedArray[Any, Any]:
    (mesh,) = [c for c in figure.axes[panel].collections if c.get_label() == "_cells"]
    array = mesh.get_array()
    assert array is not None
    return np.ma.asarray(array)


def labels(figure: Figure, axis: str, panel: int = 0) -> list[str]:
    axes = figure.axes[panel]
    ticks = axes.get_xticklabels() if axis == "x" else axes.get_yticklabels()
    return [tick.get_text() for tick in ticks]


def grid(ms: tuple[int, ...], ks: tuple[int, ...], ns: tuple[int, ...] = (512,)) -> list[Measurement]:
    problems = [Gemm(m=m, n=n, k=k, dtype="float16") for m in ms for k in ks for n in ns]
    return [row(H100, "gemm/x", problem, "cublas") for problem in problems]


MAP = Section("k", kind="heatmap", y="m")


def test_a_cell_is_the_median_of_measured_over_predicted(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    ms, ks, ns = (256, 512, 1024), (512, 2048, 4096, 8192), (128, 512, 1024)
    run = run_of(tmp_path, grid(ms, ks, ns))
    rows = run.frame
    rows["median_s"] = rows["predicted_s"] * [2 ** chance.uniform(-2, 2) for _ in range(len(rows))]
    some = [chance.random() < 0.5 for _ in range(len(rows))]
    rows["structured_s"] = np.where(some, rows["predicted_s"] * 1.3, np.nan)
    (figure,) = drawn(run, MAP)
    assert labels(figure, "x") == [str(k) for k in ks] and labels(figure, "y") == [str(m) for m in ms]
    (mesh,) = [c for c in figure.axes[0].collections if c.get_label() == "_cells"]
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-1.0, 1.0), "one colour for one number in every figure"
    best = rows["structured_s"].fillna(rows["predicted_s"])
    here = rows[rows["sweep"] == "gemm/x"].assign(ratio=rows["median_s"] / best)
    numbers = {t.get_position(): t.get_text() for t in figure.axes[0].texts}
    for (i, m), (j, k) in itertools.product(enumerate(ms), enumerate(ks)):
        wanted = float(np.median(here[(here["m"] == m) & (here["k"] == k)]["ratio"]))
        assert cells(figure)[i, j] == pytest.approx(math.log2(wanted))
        assert float(numbers[(j, i)]) == pytest.approx(wanted, abs=0.006)
    assert "3 cases a cell" in said(figure).replace("3 to 3", "3")


STATUSES = ("skipped", "unsupported", "out_of_memory", "timeout", "crashed")


def test_cells_without_a_time_are_hatched_by_their_reason(tmp_path: Path) -> None:
    rows = grid((64, 128, 256, 512, 1024, 2048), (512, 1024))
    lost = {i: s for i, s in zip((0, 3, 4, 7, 8), STATUSES, strict=True)}
    rows = [
        dataclasses.replace(r, **(NO_TIME | {"status": lost[i]})) if i in lost else r
        for i, r in enumerate(rows)
    ]
    (figure,) = drawn(run_of(tmp_path, rows), MAP)
    hatched = {p.get_label(): p for p in figure.axes[0].patches}
    assert set(hatched) == {f"_{status}" for status in STATUSES}
    for i, status in lost.items():
        x, y = hatched[f"_{status}"].get_xy()  # type: ignore[attr-defined]
        assert (x + 0.5, y + 0.5) == (i % 2, i // 2)
    hatches = [hatched[f"_{status}"].get_hatch() for status in STATUSES]
    assert len(set(hatches[:3])) == 3 and hatches[3] == hatches[4] not in hatches[:3]
    words = [text.get_text() for one in figure.legends for text in one.get_texts()]
    assert words == ["out of memory", "skipped", "unsupported", "crashed", "timeout"]
    assert cells(figure).mask.sum() == 5
    assert "5 cases have no time (" in said(figure)


def test_a_cell_with_one_time_shows_it(tmp_path: Path) -> None:
    rows = grid((256, 512), (512, 1024), (128, 256))
    rows[0] = dataclasses.replace(rows[0], **NO_TIME)
    (figure,) = drawn(run_of(tmp_path, rows), MAP)
    assert not figure.axes[0].patches and not np.ma.getmaskarray(cells(figure)).any()
    assert "1 to 2 cases a cell" in said(figure)


def test_a_time_without_a_prediction_is_neither_neutral_nor_hatched(tmp_path: Path) -> None:
    run = run_of(tmp_path, grid((256, 512), (512, 1024)))
    at = (run.frame["sweep"] == "gemm/x") & (run.frame["m"] == 256) & (run.frame["k"] == 512)
    rows = run.frame.assign(predicted_s=run.frame["predicted_s"].mask(at))
    (figure,) = drawn(with_frame(run, rows), MAP)
    (patch,) = figure.axes[0].patches
    assert patch.get_label() == "_unpredicted" and not patch.get_hatch()
    words = [text.get_text() for one in figure.legends for text in one.get_texts()]
    assert words == ["no prediction"] and np.ma.getmaskarray(cells(figure))[0, 0]


def test_nothing_predicted_is_no_figure(tmp_path: Path) -> None:
    run = run_of(tmp_path, grid((256, 512), (512, 1024)))
    rows = run.frame.assign(predicted_s=np.nan)
    assert drawn(with_frame(run, rows), MAP) == []


def test_ways_of_running_are_panels(tmp_path: Path) -> None:
    rows = grid((256, 512), (512, 1024))
    rows += [
        row(H100, "gemm/x", Gemm(m=m, n=512, k=k, dtype=d), "triton")
        for m in (256, 512)
        for k in (512, 1024)
        for d in ("float16", "tf32")
    ]
    run = run_of(tmp_path, rows)
    (section,) = sections(run.frame[run.frame["sweep"] == "gemm/x"], asked("{kind: heatmap, x: k, y: m}"))
    assert section == Section("k", panels=("implementation", "dtype"), kind="heatmap", y="m")
    (figure,) = drawn(run, section)
    titles = [axes.get_title(loc="left") for axes in figure.axes[:-1]]
    assert titles == ["cublas, float16", "triton, float16", "triton, tf32"]
    for i, (name, dtype) in enumerate((("cublas", "float16"), ("triton", "float16"), ("triton", "tf32"))):
        here = run.frame[
            (run.frame["implementation"] == name)
            & (run.frame["dtype"] == dtype)
            & (run.frame["sweep"] == "gemm/x")
        ]
        wanted = np.log2(here["median_s"] / here["predicted_s"])
        assert sorted(cells(figure, i).compressed()) == pytest.approx(sorted(wanted))


def asked(plot: str) -> dict[str, Any]:
    return {"plot": [yaml.safe_load(plot)]}


@pytest.mark.parametrize("plot", ["{kind: heatmap, x: k, y: dtype}", "{kind: heatmap, x: k, y: n}"])
def test_a_map_without_two_swept_numbers_is_not_drawn(plot: str, tmp_path: Path) -> None:
    run = run_of(tmp_path, grid((256, 512), (512, 1024)))
    found = sections(run.frame[run.frame["sweep"] == "gemm/x"], asked(plot))
    assert [one.kind for one in found] == ["curve"]


def test_more_panels_than_fit_are_more_pages(tmp_path: Path) -> None:
    run = run_of(tmp_path, grid((256, 512), (512, 1024), tuple(range(64, 64 * 9, 64))))
    found = drawn(run, dataclasses.replace(MAP, panels=("n",)))
    assert [len(figure.axes) - 1 for figure in found] == [6, 2]
    assert "(page 2 of 2)" in said(found[1])


# --- many rows --------------------------------------------------------------------------------------


def many(folder: Path, count: int) -> DeviceRun:
    """This many scattered products, as a table of somebody's has them."""
    chance = random.Random(SEED)
    problems: set[Gemm] = set()
    while len(problems) < count:
        m, k = (2 ** chance.randint(5, 12) * chance.choice((1, 3)) for _ in range(2))
        n = int(2 ** chance.uniform(0, 12))  # in every cell of a map are some
        problems.add(Gemm(m=m, n=n, k=k, dtype="float16"))
    ordered = sorted(problems, key=str)
    return run_of(folder, [row(H100, "gemm/x", problem, "cublas") for problem in ordered])


def test_thousands_of_problems_are_maps_not_panels(tmp_path: Path) -> None:
    run = many(tmp_path, 900)
    found = sections(run.frame[run.frame["sweep"] == "gemm/x"], {})
    assert {(one.kind, frozenset((one.x, one.y))) for one in found} == {
        ("heatmap", frozenset(pair)) for pair in (("k", "m"), ("k", "n"), ("m", "n"))
    }
    with style.look():
        here = [stem for stem, _ in pages(run, {}) if stem.startswith("gemm/")]
    assert here == [f"gemm/x-{i}-heatmap" for i in (1, 2, 3)]


def test_sizes_without_end_share_cells_by_powers_of_two(tmp_path: Path) -> None:
    run = many(tmp_path, 900)
    rows = run.frame[run.frame["sweep"] == "gemm/x"]
    (figure,) = drawn(run, Section("n", kind="heatmap", y="k"))
    first, last = (int(math.log2(n)) for n in (rows["n"].min(), rows["n"].max()))
    assert labels(figure, "x") == [str(2**i) for i in range(first, last + 1)]
    assert "A cell of n reaches from its label to below twice it." in said(figure)
    ys = sorted(set(rows["k"]))
    assert labels(figure, "y") == [str(int(k)) for k in ys]
    line = ys.index(rows["k"].mode()[0])
    for column, power in enumerate(labels(figure, "x")):
        some = rows[(rows["k"] == ys[line]) & (rows["n"] >= int(power)) & (rows["n"] < 2 * int(power))]
        if some.empty:
            assert np.ma.getmaskarray(cells(figure))[line, column]
        else:
            wanted = math.log2(float(np.median(some["median_s"] / some["predicted_s"])))
            assert cells(figure)[line, column] == pytest.approx(wanted)


@pytest.mark.parametrize("full", [True, False])
def test_a_map_that_would_be_mostly_empty_has_coarser_cells(full: bool, tmp_path: Path) -> None:
    sizes = tuple(2**i + j for i in range(6, 12) for j in (0, 8))
    pairs = itertools.product(sizes, sizes) if full else zip(sizes, sizes, strict=True)
    problems = [Gemm(m=m, n=512, k=k, dtype="float16") for m, k in pairs]
    (figure,) = drawn(run_of(tmp_path, [row(H100, "gemm/x", one, "cublas") for one in problems]), MAP)
    wanted = sizes if full else tuple(2**i for i in range(6, 12))
    assert labels(figure, "x") == labels(figure, "y") == [str(size) for size in wanted]
    assert np.ma.count(cells(figure)) == (144 if full else 6)


def test_neighbouring_sizes_share_equal_cells(tmp_path: Path) -> None:
    run = run_of(tmp_path, grid(tuple(range(1000, 1100, 2)), (512, 1024)))
    (figure,) = drawn(run, Section("m", kind="heatmap", y="k"))
    assert len(labels(figure, "x")) == 16 and labels(figure, "x")[0] == "1000"
    assert np.ma.count(cells(figure)) == 32 and "reaches from its label to the next" in said(figure)


@pytest.mark.parametrize("count", [2, 40])
def test_a_few_scattered_problems_are_no_figure(count: int, tmp_path: Path) -> None:
    assert count < MOST_GUESSED
    run = many(tmp_path, count)
    found = sections(run.frame[run.frame["sweep"] == "gemm/x"], {})
    assert [one.kind for one in found] == (["curve"] if count == 2 else [])
