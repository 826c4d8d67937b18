"""gpu-benches' printed tables: a rate for each pass beside the other, in an older form and a newer."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import kernels
from bench.interop.import_source import SourceOutcome, imported
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import described
from bench.store.schema import Measurement

NEWER = "{threads:>4} {threads:>9} {blocks:>7} {occupancy:>8}%     |  GB/s: {rates}"
OLDER = "{threads:>9} {threads:>11} {occupancy:>7} %  |  GB/s: {rates}"


def outcome_of(folder: Path, **files: str) -> SourceOutcome:
    for name, text in files.items():
        (folder / f"gpu-{name}.txt").write_text(text)
    return imported(described("gpu_benches"), folder, folder / "results", with_imported(kernels.problem))


def rows_of(outcome: SourceOutcome) -> list[Measurement]:
    return [row for each in outcome.rows for row in each.rows]


@pytest.mark.parametrize(
    ("form", "length", "kinds", "timed_by", "aside"),
    [
        (NEWER, 2**28 + 2, {"write", "read", "copy"}, "events", 3),
        (OLDER, 2**27 + 2, {"write", "read", "copy", "triad"}, "wall", 2),
    ],
)
def test_both_forms_of_a_stream_are_read_as_what_they_are(
    tmp_path: Path, form: str, length: int, kinds: set[str], timed_by: str, aside: int
) -> None:
    rates = [random.randint(100, 800) for _ in range(6)]
    line = form.format(threads=1024, blocks=2, occupancy=100.0, rates="   ".join(map(str, rates)))

    outcome = outcome_of(tmp_path, stream__v100=f"block threads | init read\n{line}\n")

    rows = rows_of(outcome)
    kinds_of = {json.loads(row.parameters)["kind"]: row for row in rows}
    assert set(kinds_of) == kinds
    for kind, rate in zip(("write", "read", "copy"), rates, strict=False):
        row = kinds_of[kind]
        assert row.median_s == pytest.approx(row.byte / rate / 1e9)
        assert row.byte == {"write": 8, "read": 8, "copy": 16}[kind] * length
    assert {row.timed_by for row in rows} == {timed_by}
    assert sum(outcome.aside.values()) == aside
    assert not [remark for remark in outcome.remarks if "left out" in remark]


def test_blocks_are_told_by_place_from_the_end_and_a_line_that_was_cut_off_is_none(tmp_path: Path) -> None:
    rates = [random.randint(20, 60) for _ in range(7)]
    lines = f"4096  64kB  {'  '.join(map(str, rates))}  \n8192  128kB  50  60\n"

    rows = rows_of(outcome_of(tmp_path, **{"small-kernels__v100": lines, "small-kernels__v100_pt": lines}))

    threads = [16, 32, 64, 128, 256, 512, 1024]
    for how, includes in (("launches", "launch, gaps"), ("pt", "synchronization")):
        found = {row.implementation: row for row in rows if row.implementation.startswith(how)}
        assert set(found) == {f"{how}-{number}-threads" for number in threads}
        for number, rate in zip(threads, rates, strict=True):
            row = found[f"{how}-{number}-threads"]
            assert row.median_s == pytest.approx(16 * 4096 / rate / 1e9)
            assert row.time_includes == includes


def test_a_latency_is_cycles_by_the_clock_and_a_footprint_whole_lines(tmp_path: Path) -> None:
    line = "  1000000  1380      2.1     20.2    28.0 27.5 27.0 30.0\n"

    (row,) = rows_of(outcome_of(tmp_path, latency__v100=f"clock: 1380 1380 \n{line}"))

    assert json.loads(row.parameters) == {"dtype": "float32", "footprint_byte": 17 * 128, "steps": 1_000_000}
    assert row.median_s == pytest.approx(27.5e6 / 1380e6)


def test_reads_from_caches_have_no_roof_and_a_rate_by_footprint(tmp_path: Path) -> None:
    text = "  512 kB   1536 kB   12ms   0.0%   4315.9 GB/s   0 GB/s   0 GB/s   0 GB/s   0 GB/s \n"

    (row,) = rows_of(outcome_of(tmp_path, **{"l2-cache__v100": text}))

    assert json.loads(row.parameters)["footprint_byte"] == 1536 * 1024
    assert row.median_s == pytest.approx(1536 * 1024 / 4315.9e9)
    assert row.arithmetic == "unbounded"
