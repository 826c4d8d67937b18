"""The duel's picture: every pair a point at its ratio, goals where they are set, nothing if nobody met."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from bench.judge.frame import DeviceRun
from bench.judge.goals import goal_of
from bench.judge.standings import ALL_16_BIT, REGIONS, duels
from kernels.gemm.problem import BLOCK_SCALED, Gemm
from plots.base.page import Captioned
from plots.figures import duel
from tests.plots.drawn import described, heights, lines, loaded, opened, points, spans, titled
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
def figures(run: DeviceRun) -> dict[str, Captioned]:
    return opened(duel.draw(run))


def test_a_page_for_each_of_ours_and_a_panel_for_each_region(figures: dict[str, Captioned]) -> None:
    assert list(figures) == ["triton", "triton-split-k"]
    assert described(figures["triton"]) == DUEL


DUEL = """\
GEMM: triton against cublas
legend: float16 | bfloat16 | float64 | NN | NT | TN | TT | even | goal of the median | goal of the lowest
[16-bit large: median 0.989, n = 16] - x time of library / ours (log): 2 even, 2 goal, 2 least, 16 case, 16 \
interval
[16-bit small: median 1.004, n = 2] - x - (log): 2 even, 2 goal, 2 least, 2 case, 2 interval
[float64: median 0.973, n = 2] cases, sorted x time of library / ours (log): 2 even, 2 case, 2 interval
[unaligned: median 0.886, n = 2] cases, sorted x - (log): 2 even, 2 goal, 2 least, 2 case, 2 interval"""


@pytest.mark.parametrize("name", OURS)
def test_every_pair_is_a_point_at_its_ratio(run: DeviceRun, figures: dict[str, Captioned], name: str) -> None:
    rows = run.frame.assign(case=[tuple(of) for of in run.frame[["m", "n", "k", "dtype", "layout"]].values])
    median_s = rows.set_index(["implementation", "case"])["median_s"]
    for region, problems in (("16-bit large", LARGE), ("unaligned", ODD), ("float64", SMALL[1::2])):
        cases = [(each.m, each.n, each.k, each.dtype, each.layout) for each in problems]
        ratios = [median_s["cublas", case] / median_s[name, case] for case in cases]
        looks = [(duel.COLORS[case[3]].upper(), duel.MARKERS[case[4]]) for case in cases]
        found = sorted(
            (x, y, to_hex(line.get_color()).upper(), line.get_marker())
            for line in lines(titled(figures[name], f"{region}:"), "_case")
            for x, y in line.get_xydata()
        )
        assert [place for place, *_ in found] == list(range(1, len(cases) + 1))
        assert [ratio for _, ratio, *_ in found] == pytest.approx(sorted(ratios))
        wanted = sorted(zip(ratios, looks, strict=True))
        assert [tuple(look) for _, _, *look in found] == [look for _, look in wanted]


def test_intervals_are_the_judges(run: DeviceRun, figures: dict[str, Captioned]) -> None:
    found, doubtful = duels(run, "cold")
    assert doubtful == 0
    mine = [each for each in found if each.implementation == "triton" and each.region != ALL_16_BIT]
    wanted = sorted((one.low, one.high) for each in mine for one in each.figures)
    assert len(wanted) == 22 and np.ravel(spans(figures["triton"])) == pytest.approx(np.ravel(wanted))


def test_lines_at_1_and_at_the_goals(figures: dict[str, Captioned]) -> None:
    for region in ("16-bit large", "16-bit small", "float64", "unaligned"):
        goal = goal_of(region, H100.facts["device_name"])
        assert (goal is None) == (region == "float64")
        wanted = [] if goal is None else [goal.median, goal.least]
        axes = titled(figures["triton"], f"{region}:")
        assert [line.get_ydata()[0] for line in lines(axes, "_even")] == [1.0]
        assert [line.get_ydata()[0] for label in ("_goal", "_least") for line in lines(axes, label)] == wanted
        low, high = axes.get_ylim()
        assert low < min(1.0, *filter(None, wanted), *heights(axes, "_case")) and high > 1.0
        assert 1.0 in axes.get_yticks()


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
    (figure,) = opened(duel.draw(loaded(tmp_path, rows))).values()
    assert {axes.get_title("left").split(":")[0] for axes in figure.axes} >= {*REGIONS} - {"batched"}


def test_warm_pairs_have_a_page_of_their_own_and_where_nobody_met_is_none(tmp_path: Path) -> None:
    cold = list(paired(H100, "gemm/shapes", iter(LARGE), {"triton": 0.9}))
    warm = [dataclasses.replace(one, cache="warm") for one in cold[:2]]
    drawn = opened(duel.draw(loaded(tmp_path, [*cold, *warm])))
    cases = {name: len(points(figure, "_case")) for name, figure in drawn.items()}
    assert cases == {"triton": len(LARGE), "triton-warm": 1}
    assert not opened(duel.draw(loaded(tmp_path, [*ceilings(CPU), *gemms(CPU)])))
