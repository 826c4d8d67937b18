"""The duel's picture: every pair a point at its ratio, goals where they are set, nothing if nobody met."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from bench.judge.frame import DeviceRun
from bench.judge.goals import goal_of
from bench.judge.standings import ALL_16_BIT, REGIONS, duels
from kernels.gemm.problem import BLOCK_SCALED, Gemm
from plots.base import style
from plots.figures import duel
from plots.figures.every_figure import pages
from tests.our_sweeps import declared_of
from tests.plots.drawn import lines, loaded
from tests.plots.synthetic import CPU, H100, ceilings, gemms, paired

LARGE = [
    Gemm(m=4096, n=8192, k=k, dtype=dtype, layout=layout)  # type: ignore[arg-type]
    for k, dtype, layout in itertools.product((1024, 4096), ("float16", "bfloat16"), ("NN", "NT", "TN", "TT"))
]
SMALL = [Gemm(m=s, n=s, k=64, dtype=dtype) for s in (64, 512) for dtype in ("float16", "float64")]
ODD = [Gemm(m=4095, n=4096, k=4096, dtype="float16", layout=layout) for layout in ("NN", "TN")]
OURS = {"triton": 0.97, "triton-split-k": 0.8}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> DeviceRun:
    rows = paired(H100, "gemm/shapes", iter([*LARGE, *SMALL, *ODD]), OURS)
    return loaded(tmp_path_factory.mktemp("duel"), list(rows))


@pytest.fixture(scope="module")
def figures(run: DeviceRun) -> dict[str, Figure]:
    with style.look():
        return {name: page.figure for name, page in duel.draw(run)}


def panel(figure: Figure, region: str) -> Axes:
    (axes,) = [axes for axes in figure.axes if axes.get_title("left").split(":")[0] == region]
    return axes


def points(axes: Axes) -> list[tuple[float, float, str, str]]:
    """(place, ratio, colour, marker) of every case, by place."""
    return sorted(
        (x, y, to_hex(line.get_color()).upper(), line.get_marker())
        for line in lines(axes, "_case")
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    )


def test_a_page_for_each_of_ours_and_a_panel_for_each_region(figures: dict[str, Figure]) -> None:
    assert list(figures) == ["triton", "triton-split-k"]
    for name, figure in figures.items():
        titles = [axes.get_title("left").split(":")[0] for axes in figure.axes]
        assert titles == ["16-bit large", "16-bit small", "float64", "unaligned"]
        said = " ".join(text.get_text() for text in figure.texts).replace(style.NO_BREAK, " ")
        assert f"GEMM: {name} against cublas" in said and "n = 44 measured" in said


@pytest.mark.parametrize("name", OURS)
def test_every_pair_is_a_point_at_its_ratio(run: DeviceRun, figures: dict[str, Figure], name: str) -> None:
    rows = run.frame.set_index(["implementation", "parameters"])["median_s"]
    wanted: dict[str, list[tuple[float, str, str]]] = {}
    for region, problems in (("16-bit large", LARGE), ("unaligned", ODD), ("float64", SMALL[1::2])):
        for problem in problems:
            text = json.dumps(problem.parameters(), sort_keys=True)
            (key,) = [p for i, p in rows.index if i == name and json.loads(p) == json.loads(text)]
            ratio = rows["cublas", key] / rows[name, key]
            look = duel.COLORS[problem.dtype].upper(), duel.MARKERS[problem.layout]
            wanted.setdefault(region, []).append((ratio, *look))
    for region, some in wanted.items():
        found = points(panel(figures[name], region))
        assert [place for place, *_ in found] == list(range(1, len(some) + 1))
        assert [ratio for _, ratio, *_ in found] == pytest.approx([ratio for ratio, *_ in sorted(some)])
        assert [tuple(look) for _, _, *look in found] == [tuple(look) for _, *look in sorted(some)]


def test_intervals_are_the_judges(run: DeviceRun, figures: dict[str, Figure]) -> None:
    found, doubtful = duels(run, "cold")
    assert doubtful == 0
    mine = [each for each in found if each.implementation == "triton" and each.region != ALL_16_BIT]
    wanted = sorted((one.low, one.high) for each in mine for one in each.figures)
    bars = [c for axes in figures["triton"].axes for c in axes.collections if c.get_label() == "_interval"]
    spans = sorted((low[1], high[1]) for bar in bars for low, high in bar.get_segments())  # type: ignore[attr-defined]
    assert len(wanted) == 22 and np.ravel(spans) == pytest.approx(np.ravel(wanted))


def test_lines_at_1_and_at_the_goals(figures: dict[str, Figure]) -> None:
    for region in ("16-bit large", "16-bit small", "float64", "unaligned"):
        set_ = goal_of(region, H100.facts["device_name"])
        assert (set_ is None) == (region == "float64")
        wanted = () if set_ is None else (set_.median, set_.least)
        assert None not in wanted
        axes = panel(figures["triton"], region)
        assert [line.get_ydata()[0] for line in lines(axes, "_even")] == [1.0]
        drawn = [line.get_ydata()[0] for label in ("_goal", "_least") for line in lines(axes, label)]
        assert tuple(drawn) == wanted
        low, high = axes.get_ylim()
        assert low < min(1.0, *wanted, *(y for _, y, *_ in points(axes))) and high > 1.0
        assert 1.0 in axes.get_yticks() and axes.get_yscale() == "log"


def test_every_type_that_a_kernel_of_ours_multiplies_has_a_colour_and_every_region_a_panel(
    tmp_path: Path,
) -> None:
    ours = {dtype for each in Gemm.implementations if each.name.startswith("triton") for dtype in each.dtypes}
    problems = [
        Gemm.model_validate({"m": m, "n": m, "k": m, "dtype": dtype, "layout": layout})
        for dtype, m in itertools.product(sorted(ours), (4096, 512))
        for layout in (("TN",) if dtype in BLOCK_SCALED else ("TN", "NN"))
    ]
    problems += [*SMALL, *ODD, *(LARGE[0].model_copy(update={"k": k}) for k in (256, 768))]
    problems += [Gemm(m=m, n=n, k=4096, dtype="float16") for m, n in ((16, 4096), (2048, 2048), (512, 4096))]
    rows = list(paired(H100, "gemm/shapes", iter(problems), {"triton": 0.9}))
    with style.look():
        ((_, page),) = duel.draw(loaded(tmp_path, rows))
    assert {axes.get_title("left").split(":")[0] for axes in page.figure.axes} >= {*REGIONS} - {"batched"}


def test_warm_pairs_have_a_page_of_their_own(tmp_path: Path) -> None:
    cold = list(paired(H100, "gemm/shapes", iter(LARGE), {"triton": 0.9}))
    warm = [one.__class__(**{**vars(one), "cache": "warm"}) for one in cold[:2]]
    with style.look():
        drawn = {name: page.figure for name, page in duel.draw(loaded(tmp_path, [*cold, *warm]))}
    assert {n: sum(len(points(axes)) for axes in f.axes) for n, f in drawn.items()} == {
        "triton": len(LARGE),
        "triton-warm": 1,
    }


def test_it_is_drawn_wherever_two_met_and_nowhere_else(run: DeviceRun, tmp_path: Path) -> None:
    with style.look():
        whole = itertools.takewhile(lambda page: "/" not in page[0], pages(run, declared_of(run)))
        stems = [stem for stem, _ in whole if stem.startswith("duel")]
        assert stems == ["duel-triton", "duel-triton-split-k"]
        alone = loaded(tmp_path, [*ceilings(CPU), *gemms(CPU)])
        assert not list(duel.draw(alone))
