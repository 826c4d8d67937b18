"""Work in parts that several processes do."""

from __future__ import annotations

import os
import signal

import pytest

from bench.errors import UserError
from bench.processes import MOST, in_processes


def squared(number: int) -> tuple[int, int]:
    return number**2, os.getpid()


def killed(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def refused(number: int) -> int:
    raise UserError(f"{number} is not for us")


@pytest.mark.parametrize("count", [0, 1, MOST, MOST + 1, 97])
def test_each_part_comes_back_under_its_place_and_the_largest_is_begun_first(count: int) -> None:
    parts = [(7 * place) % 97 for place in range(count)]
    done = list(in_processes(squared, parts, float))
    assert {place: square for place, (square, _) in done} == {i: part**2 for i, part in enumerate(parts)}
    assert [parts[place] for place, _ in done] == sorted(parts, reverse=True)
    here = {process for _, (_, process) in done} <= {os.getpid()}
    assert here == (count <= MOST)


@pytest.mark.parametrize("count", [1, MOST + 1])
def test_a_refusal_of_a_part_is_one_of_all(count: int) -> None:
    with pytest.raises(UserError, match="is not for us"):
        list(in_processes(refused, range(count), float))


def test_a_process_that_the_system_kills_is_told_in_a_sentence() -> None:
    with pytest.raises(UserError, match="without memory"):
        list(in_processes(killed, range(MOST + 1), float))
