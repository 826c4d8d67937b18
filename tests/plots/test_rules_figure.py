"""The figure of the guides' rules by GPUs, drawn from what `claims --by rule --json` prints."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from typer.testing import CliRunner

from bench.sweep.experiments import RULES
from plots.__main__ import app
from plots.figures.rules import FAILS, HOLDS, UNDECIDED, cells, draw
from tests.plots.drawn import figures

H100, A100, UNKNOWN = "nvidia-h100-80gb-hbm3", "nvidia-a100-sxm4-80gb", "no-such-gpu"


def verdicts(*counts: tuple[int, int]) -> list[list[str | int]]:
    return [["PARTLY", "MM-01", "2 of 5 pairs: 2 times", "a", hold, fail, ""] for hold, fail in counts]


def of_batch(*judged: list[str | int]) -> list[list[str | int]]:
    return [[*each[:-1], "batch"] for each in judged]


OPEN: list[list[str | int]] = [["UNDECIDED", "MM-01", "5 pairs undecided", "a", 0, 0, ""]]
OTHER = {UNKNOWN: verdicts((1, 0))}
RULES_OF = {
    "1": {H100: verdicts((5, 0)), A100: verdicts((1, 0)), **OTHER},
    "2": {H100: [*verdicts((99, 1)), *of_batch(*verdicts((0, 2)))], **OTHER},
    "3": {H100: of_batch(*verdicts((0, 5)), *OPEN), **OTHER},
    "4": {H100: verdicts((1, 3)), **OTHER},
    "5": {H100: OPEN},
    "6": {H100: verdicts((2, 0)), **OTHER},
}


def test_each_rule_that_is_decided_has_a_row_and_each_gpu_that_decides_enough_a_column() -> None:
    page = draw(cells(RULES_OF), "made up")
    (figure,) = figures([page])
    (axes,) = [axes for axes in figure.axes if axes.get_yticklabels()]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"{RULES[rule]}  {rule}" for rule in (1, 2, 3, 4, 6)
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["h100_sxm5"]
    widths = Counter[tuple[int, str]]()
    flat = {int(patch.get_y()) for patch in axes.patches if patch.get_height() < 0.5}
    assert flat == {2}, "only of rule 3 the alignment of nothing but batches was tested"
    for patch in axes.patches:
        widths[int(patch.get_y()), to_hex(patch.get_facecolor())] += round(patch.get_width() / 0.88, 3)
    blue, red, grey = HOLDS, FAILS, UNDECIDED
    assert [widths[row, blue] for row in range(5)] == [1.0, 0.495, 0.0, 0.25, 1.0]
    assert [widths[row, red] for row in range(5)] == [0.0, 0.505, 1.0, 0.75, 0.0]
    assert not any(widths[row, grey] for row in range(5))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rules": {}}', '{"rules": {"x": {}}}', '{"rules": {"1": 2}}']
)
def test_another_file_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text(text)
    done = CliRunner().invoke(app, ["rules", str(path), "-o", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {path}: not what `claims --by rule --json` prints")


def test_the_command_draws_it(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps({"commit": "0123456789ab", "rules": RULES_OF}))
    done = CliRunner().invoke(app, ["rules", str(path), "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "0123456789ab" in (tmp_path / "rules.svg").read_text()
