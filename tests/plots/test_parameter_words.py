"""Words on axes: no figure of a sweep of this checkout has a bare parameter along an axis."""

import pytest

import kernels
from bench.sweep.grammar import whole_numbers
from plots.base.parameter_words import axis_words
from tests.our_sweeps import declared


@pytest.mark.parametrize("operator", kernels.names())
def test_every_number_of_an_operator_has_words(operator: str) -> None:
    numbers = whole_numbers(kernels.problem(operator))
    bare = {name for name in numbers if axis_words(name, operator) == name}

    # These names are words already; beta is 0 or 1.
    assert bare <= {"layers", "rows", "beta"}


def test_every_parameter_along_an_axis_of_a_sweep_has_words() -> None:
    plots = [plot for sweep in declared().values() for plot in sweep.get("plot", ())]
    along = {plot[axis] for plot in plots for axis in ("x", "y") if plot.get(axis)} - {"median_s", "rate"}
    operators = kernels.names()

    bare = {name for name in along if all(axis_words(name, operator) == name for operator in operators)}

    assert plots
    assert bare <= {"layers", "rows", "peak_byte"}
