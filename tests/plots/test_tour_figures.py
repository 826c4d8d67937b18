"""The figures of the tour on a GPU, drawn from simulated rows."""

from pathlib import Path

from matplotlib.lines import Line2D

from bench.sweep.suites import TOUR
from plots.figures import every_figure
from tests.bench.test_forecast import H100 as TWIN
from tests.bench.test_suites import chosen
from tests.our_sweeps import declared_of
from tests.plots.drawn import legend, loaded, opened, points
from tests.plots.synthetic import H100, row


def test_the_figures_of_the_tour_tell_ours_from_the_library(tmp_path: Path) -> None:
    """By simulated rows of an H100: in the roofline by a dot, in the curves by the colours of the lines."""
    _, _, cases = chosen(TOUR, TWIN)
    able = [case for case in cases if not case.missing("cuda", TWIN.capability)]
    run = loaded(tmp_path, [row(H100, case.sweep, case.problem, case.implementation) for case in able])
    figures = opened(every_figure.pages(run, declared_of(run)))
    for dtype, least in (("float16", 12 + 3 * 2 * 4), ("bfloat16", 12)):
        figure = figures[f"roofline-{dtype}"]
        ours = [case for case in able if (case.implementation, case.problem.dtype) == ("triton", dtype)]
        assert "ours, in Triton" in legend(figure)
        assert len(points(figure, "_ours")) == len(ours) >= least
    curves = {"gemm/square-rate": "cublas", "batchnorm/backward-duration": "cudnn"}
    curves |= {"batchnorm/spatial_persistent-duration": "cudnn", "pooling/normalised-duration": "aten"}
    curves |= {f"activations/{way}-duration": "aten" for way in ("forward", "backward")}
    for stem, library in curves.items():
        entries = [
            (text.get_text().split()[0], handle)
            for box in figures[stem].legends
            for handle, text in zip(box.legend_handles, box.get_texts(), strict=True)
            if isinstance(handle, Line2D)
        ]
        colours = {
            who: {one.get_color() for name, one in entries if name == who} for who in (library, "triton")
        }
        assert all(colours.values()) and colours[library].isdisjoint(colours["triton"]), stem
