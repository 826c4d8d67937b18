"""`compare --across device`: gains by operator and what bounds a case, of simulated and of public rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.store import parquet
from bench.store.schema import Measurement
from tests.bench.claims_made import timed
from tests.plots.synthetic import H100, ceilings

PUBLIC = Path(__file__).parents[2] / "results/reference/public"


def compare(*given: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["compare", *map(str, given), "--across", "device"])
    return done.exit_code, done.output


def device_rows(name: str, seconds_of: Mapping[int, float], **facts: Any) -> list[Measurement]:
    """The rows of a device: GEMMs of these sizes, and of the device `a` the ceilings of an H100."""
    changes = {"device": name, "run_id": name} | facts
    rows = [timed(seconds, m=m) for m, seconds in seconds_of.items()]
    rows += ceilings(H100) if name == "a" else []
    return [replace(row, **changes) for row in rows]


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Results of two devices; the second takes a half, a third or a quarter of the time."""
    sizes = [4096, 5120, 6144]
    a = device_rows("a", {m: 1.0 for m in sizes}, driver="1.1")
    b = device_rows("b", {m: 1.0 / n for m, n in zip(sizes, (2, 3, 4), strict=True)}, driver="2.2")
    parquet.write(tmp_path / "a.parquet", a)
    parquet.write(tmp_path / "b.parquet", b)
    return tmp_path / "a.parquet", tmp_path / "b.parquet"


def cells(text: str, *begin: str) -> list[str]:
    """The cells behind these first ones of the only line that begins with them."""
    (line,) = (words for words in map(str.split, text.splitlines()) if words[: len(begin)] == [*begin])
    return line[len(begin) :]


def test_a_device_is_as_many_times_as_fast(two: tuple[Path, Path]) -> None:
    code, text = compare(*two)
    assert code == 0 and "Speed of b relative to a\n" in text
    assert cells(text, "gemm", "float16", "compute") == ["3", "3.00", "2.20", "to", "3.80", "1.00"]
    assert "- driver: 1.1 (a); 2.2 (b)" in text
    code, text = compare(*reversed(two))  # no ceilings of b: its datasheet says what bounds a case
    assert code == 0 and cells(text, "gemm", "float16", "compute")[:2] == ["3", "0.33"]


def test_markdown_is_a_table(two: tuple[Path, Path]) -> None:
    code, text = compare(*two, "--markdown")
    assert code == 0 and "| gemm | float16 | compute | b | 3 | 3.00 | 2.20 to 3.80 | 1.00 |" in text
    assert text.startswith("### Speed of b relative to a\n") and "─" not in text


def test_devices_without_a_case_in_common_are_exit_code_3(tmp_path: Path) -> None:
    for name, m in (("a", 4096), ("b", 5120)):
        rows = [row for row in device_rows(name, {m: 1.0}) if row.role == "measurement"]
        parquet.write(tmp_path / f"{name}.parquet", rows)
    code, text = compare(tmp_path)
    assert code == 3 and "b has no sound case in common with a." in text


def test_public_gpus_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ("h100-80gb-hbm3", "h200", "a100-sxm4-80gb", "rtx-pro-6000-blackwell-server-edition")
    code, text = compare(*(PUBLIC / f"nvidia-{name}" for name in names))
    assert code == 0 and max(map(len, text.splitlines())) <= 80
    assert "Speed relative to nvidia-h100-80gb-hbm3\n" in text
    memory = text[text.index("bfloat16, bound by memory") : text.index("bfloat16, bound by cache")]
    assert cells(memory, "h200")[-1] == "1.43"  # 4.8 TB/s of 3.35
    compute = text[
        text.index("gemm in bfloat16, bound by compute") : text.index("gemm in bfloat16, bound by memory")
    ]
    assert cells(compute, "h200")[-1] == "1.00"
    assert float(cells(compute, "h200")[1]) == pytest.approx(1.0, abs=0.1)
    assert "vLLM 0.14.0 (nvidia-a100-sxm4-80gb)" in text.replace("\n  ", " ")


def test_all_shows_each_case_of_two_devices_too(two: tuple[Path, Path]) -> None:
    code, text = compare(*two, "--all", "--across", "driver")
    assert code == 0 and text.count("FASTER") >= 3 and "Speed of b relative to a" in text
