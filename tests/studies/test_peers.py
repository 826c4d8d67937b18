"""Ours beside other harnesses: what the table says of known turns, and that no turn is taken twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from studies import peers
from studies.__main__ import app
from studies.peers import OTHERS, OURS, peers_lines

MEDIANS_S = (1.0, 1.02, 1.01)


def told(tool: str, number: int, median_s: float, **more: float | bool) -> dict[str, Any]:
    return {"tool": tool, "round": number, "took_s": 9.0 + number, "case": "a", "median_s": median_s, **more}


def cells(made: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Tool -> its cells of the table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in peers_lines(pd.DataFrame(made))]
    assert len({len(row) for row in rows}) == 1, "a table"
    return {row[0]: row[1:] for row in rows[2:]}


def test_the_table_says_how_far_rounds_are_apart_and_what_the_intervals_hold() -> None:
    made = [told("blocked_autorange", number, median_s) for number, median_s in enumerate(MEDIANS_S)]
    for number, median_s in enumerate(MEDIANS_S):
        ends = {"low_s": median_s / 1.015, "high_s": median_s * 1.015}
        within = {"run_low_s": median_s / 1.001, "run_high_s": median_s * 1.001, "next_visit": number > 0}
        made.append(told(OURS, number, median_s, **ends, **within))
    made.append({"tool": "nvbench", "round": 0, "took_s": 3.0, "case": None})
    found = cells(made)
    # 1.0 and 1.02, 1.0 and 1.01, 1.01 and 1.02: the first pair is apart by more than the interval holds
    assert found["blocked_autorange"] == ["10", "1", "1.0 %", "2.0 %", *"----"]
    assert found[OURS] == ["10", "1", "1.0 %", "2.0 %", "1.5 %", "67 % of 6", "0.1 %", "67 % of 3"]
    assert found["nvbench"] == ["3", "0", *"------"], "not installed"


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tool of each turn, which takes no time."""
    tools: list[str] = []

    def turn(tool: str, device: Any, until: float) -> list[dict[str, Any]]:
        tools.append(tool)
        return [{"case": "a", "median_s": 1.0}]

    monkeypatch.setattr(peers, "turn", turn)
    return tools


def test_tools_take_turns_and_what_was_interrupted_goes_on(taken: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "turns.jsonl"
    words = ["peers", str(kept), "--rounds", "2", "--bench-device", "cpu", "--minutes"]
    done = CliRunner().invoke(app, [*words, "2"])
    assert done.exit_code == 0, done.output
    order = list(taken)
    assert order == [OURS, *OTHERS, *OTHERS, OURS], "each round begins with the next tool"
    lines = kept.read_text().splitlines()
    assert [(json.loads(line)["tool"], json.loads(line)["seconds"]) for line in lines] == [
        (tool, 15.0) for tool in order
    ]
    kept.write_text("\n".join(lines[:-2]) + "\n")
    taken.clear()
    again = CliRunner().invoke(app, [*words, "2"])
    assert taken == order[-2:] and again.exit_code == 0
    other = CliRunner().invoke(app, [*words, "4"])
    assert other.exit_code == 2 and "give another file" in other.output
    short = CliRunner().invoke(app, [*words, "0.1"])
    assert short.exit_code == 2 and "give 2 rounds and 6 s at least" in short.output
