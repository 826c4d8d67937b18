"""Sources that are documents: tables in Markdown, and the same gathered as JSON."""

from __future__ import annotations

import json
import random
from pathlib import Path

import kernels
from bench.interop.import_source import SourceOutcome, imported
from bench.interop.imported_problems import with_imported
from bench.interop.source_file import described


def outcome_of(source: str, folder: Path) -> SourceOutcome:
    outcome = imported(described(source), folder, folder / "results", with_imported(kernels.problem))
    outcome.rows = list(outcome.rows)
    return outcome


def times_of(outcome: SourceOutcome) -> dict[str, float | None]:
    """The seconds of each row, by implementation and parameters."""
    rows = [row for each in outcome.rows for row in each.rows]
    return {f"{row.implementation} {row.parameters}": row.median_s for row in rows}


def document(tables: list[dict[str, object]]) -> str:
    """Markdown with these tables, and what is none: a fenced shell script and a line with a bar."""
    lines = ["# Timings", "", "```sh", "# no heading", "a | b", "--- | ---", "```", "x | y", ""]
    for table in tables:
        header, rows = table["header"], table["rows"]
        assert isinstance(header, list) and isinstance(rows, list)
        lines += [f"## {table['section']}", "", "| " + " | ".join(f"**{name}**" for name in header) + " |"]
        lines += ["|" + " ---: |" * len(header), *("| " + " | ".join(row) + " |" for row in rows), ""]
    return "\n".join(lines)


def test_markdown_is_read_as_the_same_tables_gathered_as_json(tmp_path: Path) -> None:
    rates = [random.randint(100, 400) for _ in range(3)]  # beyond 430 the small product beats the memory
    tables: list[dict[str, object]] = [
        {
            "section": "Normal GEMMs",
            "header": ["M", "N", "K", "Computation", "Speedup"],
            "rows": [["64", "2112", "7168", f"{rates[0]} TFLOPS", "2x"], ["64", "64", "64", "not run", ""]],
        }
    ]
    for layout, rate in zip(("contiguous", "masked"), rates[1:], strict=True):
        header = ["#Groups", "M per group", "N", "K", "Computation"]
        rows = [["4", "256", "4096", "7168", f"{rate} TFLOPS"]]
        tables.append({"section": f"Grouped GEMMs ({layout} layout)", "header": header, "rows": rows})
    for name, content in (("README.md", document(tables)), ("tables.json", json.dumps(tables))):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(content)

    outcomes = [outcome_of("deepgemm", tmp_path / name) for name in ("README.md", "tables.json")]

    assert times_of(outcomes[0]) == times_of(outcomes[1])
    flops = [2 * 64 * 2112 * 7168, *[2 * 4 * 256 * 4096 * 7168] * 2]
    expected = [1e-12 * flop / rate for flop, rate in zip(flops, rates, strict=True)]
    for time, right in zip(
        sorted(filter(None, times_of(outcomes[0]).values())), sorted(expected), strict=True
    ):
        assert abs(time - right) <= 1e-9 * right
    for outcome in outcomes:
        assert {aside.reason: n for aside, n in outcome.aside.items()} == {"no time of a product": 1}


def test_a_table_reads_the_tables_with_its_headings_alone(tmp_path: Path) -> None:
    step = {"header": ["NUM_NODES", "TPS/GPU"], "rows": [["4", "10000"]], "section": "Results"}
    versions = {"header": ["repo", "commit"], "rows": [["torch", "1234567"]], "section": "Versions"}
    (tmp_path / "nodes.md").write_text(document([step, versions]))

    outcome = outcome_of("torchtitan", tmp_path)

    assert list(times_of(outcome).values()) == [1e-4]
    assert {aside.reason for aside in outcome.aside} == {"versions of the programs, no times"}
    assert not [remark for remark in outcome.remarks if "left out" in remark]
