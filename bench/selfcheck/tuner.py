"""Check of the tuner: it times candidates on the device, writes its choice down and reads it again."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import kernels
from bench.device.detect import Device
from bench.launching import tuning
from bench.selfcheck.finding import Finding, failed, guarded, passed, warned
from bench.spec import Launch

_SIZE = {"n": 64, "c": 64, "h": 32, "w": 32}
PROBLEM: dict[str, Any] = {"dtype": "float16", "function": "relu", "direction": "forward", **_SIZE}
"""A problem of activations, whose five candidates compile in a second."""
DRIVER = re.compile(r"CUDA driver [1-9]")
"""The form in which `versions` names the driver if its version is known."""
REMEDY = (
    "Every Triton kernel that chooses its tile would be an error: report it with the JSON file's traceback."
)
PASSED_OVER_REMEDY = "Measure all the same, with the other candidates; report what does not compile."
WRITE_REMEDY = (
    "Make kernels/tuned writable; without it each run asks every question anew, for an hour or more."
)


def tuner(device: Device, parent: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on a GPU's tuner. Its choices go to a temporary folder: those of runs stay as they are."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():

        def build() -> Launch:
            operator = kernels.operator("activations")
            problem = operator.problem(**PROBLEM)
            inputs = operator.inputs(problem, _uniform)
            return operator.implementations["triton"](problem, *inputs)

        yield from looked(tuning, build, lambda: choose_in(Path(folder)), Path(folder))


def _uniform(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.rand(*shape, device="cuda", dtype=dtype or torch.float16)


def choose_in(folder: Path) -> None:
    """Make this process read and write its choices in `folder`, and forget those in memory."""
    tuning.TUNED = folder
    tuning._choices.cache_clear()


def looked(
    tuner: Any, build: Callable[[], Launch], forget: Callable[[], None], folder: Path
) -> Iterator[Finding]:
    """Build a launch twice, with all choices forgotten but those in `folder`, and see what the tuner does.

    `tuner` is bench/launching/tuning.py, or a stand-in with its `versions`.
    """

    def versions() -> Iterator[Finding]:
        used = tuner.versions()
        if DRIVER.search(used):
            yield passed("tuner versions", f"Choices are kept for {used}.", versions={"tuner": used})
        else:
            yield failed("tuner versions", f"The tuner does not learn the driver's version: {used}.", REMEDY)

    def question() -> Iterator[Finding]:
        forget()
        first = build()
        if first.tuning_s <= 0:
            yield failed("tuner asks", "No candidate was timed on the device.", REMEDY)
            return
        answers = written(folder)
        yield answered(first.tuning_s, answers)
        if not answers:
            yield warned("tuner remembers", "The choice was not written down.", WRITE_REMEDY)
            return
        forget()
        again = build()
        if again.tuning_s > 0:
            sentence = "The choice was written, and the candidates were timed all the same."
            yield failed("tuner remembers", sentence, REMEDY)
        else:
            yield passed("tuner remembers", "The choice was written down, read again and used.")

    yield from guarded("tuner versions", REMEDY, versions)
    yield from guarded("tuner asks", REMEDY, question)


def answered(tuning_s: float, answers: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The tuner's choices, and the candidates that do not run on the device."""
    numbers: dict[str, Any] = {"tuning_s": tuning_s, "answers": dict(answers)}
    chosen = [f"{answer['configuration']}, {answer['median_us']} us" for answer in answers.values()]
    sentence = f"The tuner took {tuning_s:.1f} s and chose {'; '.join(chosen) or 'in silence'}."
    if passed_over := [text for answer in answers.values() for text in answer.get("passed_over", ())]:
        sentence += f" Candidates that do not run here: {'; '.join(passed_over)}."
        return warned("tuner asks", sentence, PASSED_OVER_REMEDY, **numbers)
    return passed("tuner asks", sentence, **numbers)


def written(folder: Path) -> dict[str, Any]:
    """Question -> answer of every choice below the folder."""
    answers: dict[str, Any] = {}
    for path in folder.glob("*.json"):
        for operators in json.loads(path.read_text()).values():
            for choices in operators.values():
                answers |= choices
    return answers
