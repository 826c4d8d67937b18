"""Problems for tests: of each operator a usual one, small and odd, of which tests change some."""

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

import kernels
from bench.spec import Problem
from tests.kernels.tensors import uniform

REFUSALS = Path(__file__).with_name("refusals.txt")


def parameters(text: str) -> list[dict[str, Any]]:
    """`a=1 b=2,3 -c` read from left to right: later values replace earlier ones."""
    found: dict[str, list[Any]] = {}
    for word in text.split():
        name, _, values = word.partition("=")
        if word.startswith("-"):
            del found[word[1:]]
        else:
            found[name] = [yaml.safe_load(value) for value in values.split(",")]
    return [dict(zip(found, values, strict=True)) for values in itertools.product(*found.values())]


@cache
def _usual(operator: str) -> dict[str, Any]:
    heads = (line.partition(":") for line in REFUSALS.read_text().splitlines() if line[:1].isalpha())
    return parameters(next(text for name, _, text in heads if name == operator))[0]


def usual(operator: str, **given: Any) -> Any:
    """The problem at the head of the operator's part of refusals.txt, but for what is given."""
    return kernels.problem(operator).model_validate(_usual(operator) | given)


def inputs_of(problem: Problem, seed: int) -> tuple[torch.Tensor, ...]:
    """A problem's inputs, as the harness hands them to an implementation; the same for the same seed."""
    return kernels.operator(problem.operator).inputs(problem, uniform(problem, seed))
