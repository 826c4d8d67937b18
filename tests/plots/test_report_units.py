"""The section on units of the report: which units it is about, what it names and draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plots.report.section import Results
from plots.report.units import section
from tests.bench.fleet_made import Gpu, gpus, written

Chance = np.random.Generator


def results(*folders: Path) -> Results:
    return Results(folders, [], [])


def test_a_fleet_has_a_table_of_the_slow_and_a_figure_of_each_kind(tmp_path: Path, chance: Chance) -> None:
    units = [*gpus(3, 8), Gpu("b", 0, "b200"), Gpu("b", 1, "b200"), Gpu("c", 0, "one-of-its-kind")]
    units[5].slow = {"memory": 1.3}
    for unit in units[16:24]:
        unit.slow = {"all": 1.2}
    written(tmp_path, units, chance, together=True)
    (tmp_path / "expected.txt").write_text("node000 8\nnode009 8\n")
    shown = section(results(tmp_path))
    assert shown is not None and shown.anchor == "units"
    assert "node000 0000:5b:00.0</th>" in shown.html and "node002 (whole node)" in shown.html
    assert "MISSING node009 (8 units)" in shown.html and "b200: too few units" in shown.html
    assert shown.html.count("data-svg=") == shown.html.count("<h3>") == 1, "b200 has too few to compare"


def test_one_unit_of_each_kind_is_no_fleet(tmp_path: Path, chance: Chance) -> None:
    assert section(results(written(tmp_path, [Gpu("a", 0), Gpu("b", 0, "b200")], chance))) is None
