"""Ours beside other harnesses: what the table says of known turns, and that no turn is taken twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.device import detect
from studies import peers
from studies.__main__ import app
from studies.peers import OTHERS, OURS, Told, Turn, peers_lines

MEDIANS_S = (1.0, 1.02, 1.01)


def turn(tool: str, number: int, median_s: float, **more: float | bool) -> Turn:
    return Turn("a cpu", 10.0, number, tool, 9.0 + number, {"gemm {}": {"median_s": median_s, **more}})


def cells(made: Sequence[Turn]) -> dict[str, list[str]]:
    """Tool -> its cells of the table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in peers_lines(made)]
    assert len({len(row) for row in rows}) == 1, "a table"
    return {row[0]: row[1:] for row in rows[2:]}


def test_the_table_says_how_far_rounds_are_apart_and_what_the_intervals_hold() -> None:
    made = [turn("blocked_autorange", number, median_s) for number, median_s in enumerate(MEDIANS_S)]
    for number, median_s in enumerate(MEDIANS_S):
        ends = {"low_s": median_s / 1.015, "high_s": median_s * 1.015}
        within = {"run_low_s": median_s / 1.001, "run_high_s": median_s * 1.001, "next_visit": number > 0}
        made.append(turn(OURS, number, median_s, **ends, **within))
    found = cells(made)
    # 1.0 and 1.02, 1.0 and 1.01, 1.01 and 1.02: the first pair is apart by more than the interval holds
    assert found["blocked_autorange"] == ["10", "1", "1.0 %", "2.0 %", *"----"]
    assert found[OURS] == ["10", "1", "1.0 %", "2.0 %", "1.5 %", "67 % of 6", "0.1 %", "67 % of 3"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """(tool, seconds) of each turn taken on a CPU where turns take no time."""
    taken: list[tuple[str, float]] = []

    def ours(folder: Path, sweeps: Any, device: Any, seconds: float, number: int) -> dict[str, Told]:
        taken.append((OURS, seconds))
        return {"gemm {}": {"median_s": 1.0}}

    def theirs(tool: str, sweeps: Any, device: Any, until: float) -> dict[str, Told]:
        taken.append((tool, 0.0))
        return {"gemm {}": {"median_s": 1.0}}

    monkeypatch.setattr(peers, "_ours", ours)
    monkeypatch.setattr(peers, "_theirs", theirs)
    (cpu,) = detect.chosen("cpu")
    monkeypatch.setattr(detect, "chosen", lambda wanted: [cpu])
    return taken


def test_tools_take_turns_and_what_was_interrupted_goes_on(
    asked: list[tuple[str, float]], tmp_path: Path
) -> None:
    words = ["peers", str(tmp_path), "--minutes", "2", "--rounds", "2"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    order = [tool for tool, _ in asked]
    assert order == [OURS, *OTHERS, *OTHERS, OURS], "each round begins with the next tool"
    assert {seconds for tool, seconds in asked if tool == OURS} == {15.0}
    kept = tmp_path / "turns.jsonl"
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[:-2]) + "\n")
    asked.clear()
    again = CliRunner().invoke(app, words)
    assert [tool for tool, _ in asked] == order[-2:] and again.exit_code == 0
    assert [json.loads(line)["tool"] for line in kept.read_text().splitlines()] == order
    other = CliRunner().invoke(app, [*words[:2], "--minutes", "4", "--rounds", "2"])
    assert other.exit_code == 2 and "give another folder" in other.output


def test_too_little_time_is_refused(asked: list[tuple[str, float]], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["peers", str(tmp_path), "--minutes", "0.1"])
    assert done.exit_code == 2 and "give 2 rounds and 6 s at least" in done.output and not asked
