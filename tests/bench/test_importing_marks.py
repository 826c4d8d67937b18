"""Imported rows never mix with ours unasked; and the sample of public timings that is committed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.cli.compare import comparison_lines
from bench.device.datasheet import find_datasheet
from bench.judge.compare import compare
from bench.judge.flags import flags
from bench.model.ceilings import Ceilings
from bench.store.parquet import read_frame
from bench.store.schema import Measurement
from tests.bench.comparable import judged, runs_of, timed
from tests.bench.rows import stored

PUBLIC = Path(__file__).parents[2] / "results" / "reference" / "public"


def foreign(row: Measurement, who: str = "Doe 2026; doe.csv", **changes: object) -> Measurement:
    """The row as if somebody else had measured it: one time, and nothing known of how."""
    unknown = {"utc": "", "commit": "", "driver": "", "device_id": "", "protocol": "theirs", "fill": "theirs"}
    columns = "low_s high_s samples_s visits visit_samples stop settled sm_clock_hz regime"
    nothing = dict.fromkeys(columns.split())
    limits = dict.fromkeys(("power_limit_w", "ecc", "mig", "persistence"))
    how = {"cache": "warm", "clock": "stream", "source": who}
    return replace(row, **(unknown | nothing | limits | how | changes))  # type: ignore[arg-type]


def test_theirs_against_ours_is_not_comparable(chance: np.random.Generator) -> None:
    ours = timed(chance)
    for before, after in ((ours, foreign(ours)), (foreign(ours), ours)):
        found = judged(before, after)
        assert found.verdict == "NOT COMPARABLE" and "source" in found.reason
    found = judged(ours, foreign(ours))
    assert "source roofbench -> Doe 2026" in found.detail and "doe.csv" not in found.detail
    assert judged(timed(chance), timed(chance)).verdict == "SAME"


def test_across_source_waves_through_what_differs_by_nature(chance: np.random.Generator) -> None:
    ours = timed(chance)
    found = judged(ours, foreign(ours), "source")
    assert found.verdict == "UNDECIDED" and "no interval in B" in found.reason
    assert found.before_s == found.after_s == ours.median_s
    with_interval = foreign(ours, low_s=ours.low_s, high_s=ours.high_s)
    assert judged(ours, with_interval, "source").effect is not None
    # Another device is another matter, and is still said.
    assert judged(ours, foreign(ours, device="h200"), "source").verdict == "NOT COMPARABLE"
    assert judged(ours, foreign(ours, device="h200"), "source", "device").verdict == "UNDECIDED"
    # Each of the facts alone still blocks rows of one source.
    assert judged(ours, replace(ours, protocol="other")).verdict == "NOT COMPARABLE"


def test_the_comparison_says_what_is_imported(chance: np.random.Generator) -> None:
    ours = timed(chance)
    theirs = foreign(ours)
    for before, after, names in ((ours, theirs, "B"), (theirs, theirs, "AB"), (ours, ours, "")):
        lines = comparison_lines(compare(runs_of([before]), runs_of([replace(after, run_id="b")])))
        marked = [line for line in lines if "imported" in line]
        assert marked == [
            f"{name} holds imported rows, not measured by roofbench: Doe 2026" for name in names
        ]


@pytest.mark.parametrize("utc", ["", "2099-01-01"])
def test_what_was_imported_is_never_the_newest(chance: np.random.Generator, utc: str) -> None:
    ours = timed(chance)
    theirs = foreign(ours, utc=utc, cache=ours.cache, run_id="csv", median_s=9.0)
    for rows in ([ours, theirs], [theirs, ours]):
        found = compare(runs_of(rows), runs_of([replace(ours, run_id="b")]))
        (one,) = found.cases
        assert one.before_s == ours.median_s and one.verdict == "SAME"


def test_a_row_without_interval_and_samples_raises_no_flag(chance: np.random.Generator) -> None:
    # Above every roof, and quicker than a launch: a row of ours would be flagged.
    roofs = Ceilings(launch_s=None)
    row = foreign(timed(chance))
    assert flags(row, None) == flags(row, roofs) == []
    assert flags(*stored([row]), roofs) == []
    assert flags(replace(timed(chance), settled=False), None), "the test can fail"


# ---- the committed sample


@pytest.fixture(scope="module")
def sample() -> pd.DataFrame:
    return read_frame([PUBLIC])


def test_the_sample_says_whose_it_is(sample: pd.DataFrame) -> None:
    assert sample["source"].str.startswith("aiconfigurator-core 0.12.0, vLLM ").all()
    assert sample["source"].str.contains("Apache-2.0, NVIDIA; a sample: 364 of ").all()
    assert (sample["commit"] == "").all() and sample["samples_s"].isna().all()
    assert "Apache License 2.0" in (PUBLIC / "README.md").read_text()
    # Times are seconds: no linear layer of these beats the datasheet's peak, none takes a second.
    for name, some in sample.groupby("device_name"):
        sheet = find_datasheet(str(name))
        assert sheet is not None
        peak = sheet.peak_flop_per_s("matrix", "bfloat16")
        assert peak is not None
        reached = (some["flop"] / some["median_s"]).max() / peak
        assert 0.5 < reached < 1.0, name
        assert some["median_s"].between(1e-6, 1).all()
