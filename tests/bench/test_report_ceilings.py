"""`table --role ceiling`: every ceiling with its interval, and a GPU's two calibrations side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.case_name import row_name
from bench.cli.findings import reached_sentence
from bench.cli.result_tables import ceilings_lines, rate_text, reached_text
from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.format import amount_text
from bench.judge.read_runs import load, read, runs
from plots.figures import roofline
from plots.report import machine
from tests.bench.comparable import CPU, NOTHING, row, runs_of, still

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def test_a_cpu_has_its_ceilings_with_intervals_and_no_calibration() -> None:
    path = next((REFERENCE / "cpu-intel-xeon-2-core").glob("20261121T221019Z*"))
    lines = list(ceilings_lines(read([path])))
    assert [line for line in lines if not line.startswith(" ")] == [
        f"cpu-intel-xeon-2-core {path.stem}: cold",
        f"cpu-intel-xeon-2-core {path.stem}: cold, one thread",
    ]
    (copy,) = [line for line in lines[:12] if "memory copy" in line]
    assert "24.76 GB/s" in copy and "21.68 to 24.76 GB/s" in copy  # of this very run
    assert not any("calibration" in line for line in lines)


def test_a_rate_whose_interval_has_no_upper_end_is_so_much_or_more() -> None:
    """A copy so short that the launch floor is all of the lower end of its time."""
    text = "\n".join(ceilings_lines(read([REFERENCE / "core"])))
    assert "(201.3 GB/s at best)   41.58 GB/s, unknown above\n" in text and "inf" not in text


def test_without_a_ceiling_it_is_refused_in_a_sentence() -> None:
    (run,) = read([REFERENCE / "public" / "nvidia-h200"])
    with pytest.raises(UserError, match="no row among these is a ceiling"):
        list(ceilings_lines(runs(row for row in run.rows if row.sweep == "imported/aiconfigurator")))


def test_memory_with_two_speeds_is_said_and_shares_of_it_are_ranges(chance: np.random.Generator) -> None:
    """Copies at one of two speeds in turn, a factor apart; the roof is the quickest visit."""
    factor = chance.uniform(1.4, 2.0)

    def seen(speeds: Sequence[float]) -> tuple[str, str]:
        """(what the run says of copies, the share of the roof of a case at 60 % of the first speed)."""
        visits = [still(chance, "memory", 60)._replace(samples=np.full(60, 1 / speed)) for speed in speeds]
        copy = row(0, visits, "memory", sweep="ceilings/stream", device_kind="cpu", **CPU)
        case = row(1, [still(chance, "memory", 60)] * 3, "memory", 1 / 0.6, device_kind="cpu", **CPU)
        copy = replace(copy, byte_written=copy.byte // 2)
        floor = row(2, [still(chance, "core", 60)], scale=1e-6, sweep="ceilings/launch", device_kind="cpu")
        floor = replace(floor, **NOTHING, operator="launch")
        (run,) = runs_of([floor, copy, replace(case, byte_written=case.byte // 2, operator="softmax")])
        return reached_sentence(run), reached_text(run.rows[2], run.roof_of(run.rows[2]))

    sentence, share = seen([1.0, factor, 1.0, factor])
    assert "its memory has two speeds" in sentence and " to " in share
    low, high = (float(end) for end in share.removesuffix(" %").split(" to "))
    assert low == pytest.approx(60 / factor, abs=2) and high / low == pytest.approx(factor, rel=0.1)
    sentence, share = seen([1.0, 1.01, 1.0, 1.02])
    assert "two speeds" not in sentence and " to " not in share
    sentence, share = seen([1.0, 1.1, 1.2, 1.3])  # no two groups, but no single number either
    assert "two speeds" not in sentence and " at best)" in sentence and " to " in share


def test_a_rate_is_one_number_in_sentence_card_table_curve_and_roofline_with_a_word_for_the_best() -> None:
    """Of a committed tour in a restless hour, in which the best and the median of a roof differ by half."""
    (run,) = load([next((REFERENCE / "tours").rglob("20261126T041024Z*"))], find_datasheet)
    sentence, names = reached_sentence(run), {row_name(row): rate_text(row) for row in run.rows}
    listed = {each.name: each for each in run.roof("cold").listed()}
    listing = [line for line in ceilings_lines([run]) if line.startswith("  ")]
    cards = dict(machine._numbers(run))
    rates = dict(zip(map(row_name, run.rows), run.frame["rate_per_s"], strict=True))  # what curves draw
    drawn = dict(roofline.draw(run))
    for ceiling, what, figure in (
        ("memory copy", "memory bandwidth", "float32"),
        *(
            (f"peak matrix {of}", f"matrix multiplications in {of}", of)
            for of in ("float32", "bfloat16", "int8")
        ),
    ):
        table = names[listed[ceiling].row]
        unit = table.split()[1].removeprefix("G").removeprefix("T")
        best = amount_text(listed[ceiling].value, unit)
        assert best != table == amount_text(rates[listed[ceiling].row], unit)
        assert f"{table} ({best} at best)" in sentence
        assert any(ceiling in line and f"{table} ({best} at best)" in line for line in listing)
        value, beside = cards[what]
        assert value == table and f"{best} at best" in beside
        assert any(
            text.get_text().startswith(f"{best} at best") for text in drawn[figure].figure.axes[0].texts
        )
