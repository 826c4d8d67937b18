"""Each kind of number is written in one way."""

from __future__ import annotations

import math

import pytest

from bench.format import (
    amount_text,
    change_cells,
    change_text,
    count_text,
    ends_text,
    half_text,
    in_common,
    memory_text,
    ratio_text,
    seconds_text,
    share_text,
    without_numbers,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((2.0, "2 s"), (1234.5, "1234 s"), (0.9996, "1000 ms"), (1.2345e-3, "1.23 ms"), (5e-7, "500 ns")),
        *((2e-12, "0.002 ns"), (0.0, "0 s"), (-1.5e-5, "-15 us"), (None, ""), (math.nan, "")),
    ],
)
def test_seconds(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


def test_amounts() -> None:
    assert amount_text(1.23456e12, "FLOP/s") == "1.235 TFLOP/s"
    assert amount_text(9.99e5, "byte/s") == "999 kB/s"
    assert (amount_text(0.25, "FLOP/s"), amount_text(None, "B/s")) == ("0.25 FLOP/s", "")
    memories = {100: "100 byte", 2**19: "512 KiB", 50 * 2**20: "50 MiB", 3 * 2**29: "1.5 GiB"}
    assert {byte: memory_text(byte) for byte in memories} == memories


def test_shares_and_changes() -> None:
    assert [share_text(share) for share in (0.876, None, math.nan)] == ["88 %", "", ""]
    assert share_text(0.0456, 1) == "4.6 %"
    changes = {1.081: "+8.1 %", 0.99996: "+0.0 %", 3.0: "x 3", 0.25: "x 0.25"}
    assert {ratio: change_text(ratio) for ratio in changes} == changes
    assert change_cells(1.08, 1.07, 1.09) == ("+8.0 %", "+7.0 to +9.0 %")
    assert change_cells(2.0, 0.1, 40.0) == ("", "not measurable here")
    assert change_cells(0.6, 0.49, 0.9) == ("x 0.6", "x 0.49 to x 0.9"), "one notation for all three"
    unknown = ((10.0, None, None), (10.0, math.nan, 11.0), (1.0, 0.5, math.inf))
    nothing = ((0.0, 0.0, 0.0), (None, 1.0, 2.0), (math.inf, 1.0, 2.0))
    assert half_text(10.0, 9.0, 11.0) == "±10.0 %"
    assert [half_text(*ends) for ends in (*unknown, *nothing)] == ["unknown"] * 3 + [""] * 3
    assert ratio_text(1.0, 0.9, 1.1) == "1.000 (0.900 to 1.100)"
    assert [count_text(number, "case") for number in (0, 1, 1234)] == ["0 cases", "1 case", "1,234 cases"]


def test_the_ends_of_an_interval_and_what_has_no_end() -> None:
    assert ends_text(1.2e9, 1.3e9, "byte/s") == "1.2 to 1.3 GB/s"
    assert amount_text(2.25e15, "FLOP/s") == "2.25 PFLOP/s"
    assert ends_text(-1e-6, 2e-6, "s") == "-1 to 2 us"
    assert ends_text(3.826e10, math.inf, "byte/s") == "38.26 GB/s, unknown above"
    assert [ends_text(low, low, "s") for low in (1e-3, math.nan)] == ["no interval"] * 2
    assert [seconds_text(math.inf), amount_text(math.inf, "B/s"), share_text(math.inf)] == [""] * 3


def test_sentences_that_differ_in_numbers_alone_become_one() -> None:
    ran = "m256-n8 ran at {} GFLOP/s, so a launch takes {} s; the budget allows 0.05 s"
    slow, fast = ran.format("9.5", "2e-1"), ran.format("12", "0.1")
    both = "m256-n8 ran at {} GFLOP/s, so a launch takes {} s; the budget allows {} s"
    assert without_numbers(slow) == without_numbers(fast) == both.format(*"NNN")
    assert in_common([slow, fast]) == both.format("9.5 to 12", "0.1 to 2e-1", "0.05")
    assert in_common([slow, slow]) == slow
    names = ["m256 is wrong", "m512 is wrong", "torch 2.11.0"]
    assert list(map(without_numbers, names)) == names
