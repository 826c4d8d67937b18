"""The page's section on several nights: what moved stands in it, one night has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.store.parquet import write
from plots.report.nights import section
from plots.report.section import Results
from tests.bench.test_gathering import case, run_id

NIGHTS = Path(__file__).parents[2] / "results" / "reference" / "nights"


def results(*files: Path) -> Results:
    return Results(files=files, runs=[], judged=[])


def test_what_moved_on_the_committed_nights_is_told_and_drawn() -> None:
    found = section(results(NIGHTS))
    assert found is not None and found.anchor == "nights"
    html = str(found.html)
    assert html.count("<td>SLOWER</td>") == 1 and "<td>FASTER</td>" not in html
    assert "relu" in html and "+7.5 %" in html and "on the last night 1 slower and 0 faster" in html
    assert html.count("data-svg=") == 2, "the machine, and what moved"


@pytest.fixture
def night(tmp_path: Path, chance: np.random.Generator) -> Callable[..., None]:
    def add(number: int, **facts: object) -> None:
        rows = [
            case(c, 1e-3 * float(np.exp(0.002 * chance.standard_normal())), run_id=run_id(number), **facts)
            for c in range(4)
        ]
        write(tmp_path / "h100" / f"{run_id(number)}.parquet", rows)

    return add


def test_one_night_has_no_section_and_a_new_driver_is_told(
    tmp_path: Path, night: Callable[..., None]
) -> None:
    night(0)
    assert section(results(tmp_path)) is None
    night(1, driver="<b>560")
    html = str(section(results(tmp_path)))
    assert "&lt;b&gt;560" in html and "<b>560" not in html and "in 2 segments" in html
