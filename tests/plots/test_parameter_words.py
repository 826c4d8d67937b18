"""Words on axes: no figure of a sweep of this checkout has a bare parameter along an axis."""

import kernels
from plots.base.parameter_words import axis_words
from tests.our_sweeps import declared


def test_every_parameter_along_an_axis_of_a_sweep_has_words() -> None:
    plots = [plot for sweep in declared().values() for plot in sweep.get("plot", ())]
    along = {plot[axis] for plot in plots for axis in ("x", "y") if plot.get(axis)} - {"median_s", "rate"}
    operators = kernels.names()

    bare = {name for name in along if all(axis_words(name, operator) == name for operator in operators)}

    assert plots
    assert bare <= {"layers", "rows", "peak_byte"}
