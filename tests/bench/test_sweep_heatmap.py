"""A sweep that asks for a heatmap: two numbers that it sweeps, and nothing that a heatmap does not have."""

from pathlib import Path

import pytest

from bench.errors import UserError
from bench.sweep import load as sweep
from bench.sweep.json_schema import schema
from tests.bench.test_sweep import HEAD, Toy, find

CASES = "cases:\n  - {m: [1, 2], n: 64, k: [3, 4], dtype: float32}\n"


def read(folder: Path, plot: str) -> sweep.Loaded:
    (folder / "x.yaml").write_text(f"{HEAD}plot: {plot}\n{CASES}")
    return sweep.load(folder / "x.yaml", find, 1, root=folder)


MISTAKES = {
    "{kind: heatmap, x: m}": "kind: heatmap needs y, the parameter along the vertical axis",
    "{kind: heatmap, x: m, y: m}": "a heatmap has two parameters; x and y are both m",
    "{kind: heatmap, x: m, y: median_s}": "toy has no number 'median_s'; it has m, n, k",
    "{kind: heatmap, x: m, y: layout}": "toy has no number 'layout'; it has m, n, k",
    "{kind: heatmap, x: causal, y: m}": "toy has no number 'causal'; it has m, n, k",
    "{kind: heatmap, x: m, y: kk}": "toy has no number 'kk'; it has m, n, k",
    "{kind: heatmap, x: m, y: k, log: x}": "kind: heatmap is drawn one way: leave out log",
    "{kind: heatmap, x: m, y: k, per: n, lines: n}": "kind: heatmap is drawn one way: leave out lines, per",
    "{kind: heatmap, x: m, y: k, panels: o}": "a plot of toy has no column 'o'; it has",
    "{kind: accuracy, x: m, panels: n}": "kind: accuracy is drawn one way: leave out panels",
    "{kind: quantization, x: m, y: rate}": "kind: quantization is drawn one way: leave out y",
    "{x: m, y: k}": "y cannot be 'k'; it is one of median_s, rate",
    "{x: m, y: rat}": "y cannot be 'rat' (did you mean rate?); it is one of median_s, rate",
}


@pytest.mark.parametrize("plot", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(plot: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, plot)
    told = str(refused.value)
    assert "\n" not in told and "/x.yaml:4: " in told and told.split(":4: ")[1].startswith(MISTAKES[plot])


def test_editors_are_told_both_axes() -> None:
    (then,) = [one["then"] for one in schema([Toy])["allOf"]]
    plot = then["properties"]["plot"]["else"]["properties"]
    assert plot["y"] == {"enum": ["median_s", "rate", "m", "n", "k"]}
