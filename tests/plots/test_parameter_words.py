"""Words on axes: no figure of a sweep of this checkout names a bare parameter."""

import pytest

import kernels
from bench.sweep.grammar import QUANTITIES
from plots.base.parameter_words import axis_words
from tests.our_sweeps import declared


@pytest.mark.parametrize("operator", kernels.names())
def test_every_parameter_of_an_operator_has_words(operator: str) -> None:
    bare = {name for name in kernels.problem(operator).model_fields if axis_words(name, operator) == name}

    # These names are words already.
    assert bare <= {"cell", "direction", "function", "kind", "layers", "optimizer", "rows"}


def test_every_column_that_a_sweep_plots_has_words() -> None:
    plots = [plot for sweep in declared().values() for plot in sweep.get("plot", ())]
    columns = {column for plot in plots for column in (plot["x"], plot.get("y", "median_s"), *QUANTITIES)}
    operators = kernels.names()

    bare = {name for name in columns if all(axis_words(name, operator) == name for operator in operators)}

    assert plots
    assert bare <= {"kind", "layers", "rate", "rows"}
