"""`python -m bench compare A B --again`: measure what two results leave UNSURE once more, in turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

from pydantic import ValidationError

import kernels
from bench.case_name import case_name
from bench.cli.ab import FEW_NAMES, SAME_PERCENT, as_it_is, checked_out, commit_of, contested, exit_code
from bench.cli.ab_report import default_budget_s, undecided_lines
from bench.cli.application import remark, show
from bench.device.detect import detect
from bench.errors import UserError
from bench.format import count_text, duration_text
from bench.judge.comparability import OURS, SOFTWARE
from bench.judge.compare import Comparison
from bench.judge.comparison_side import CaseKey, Side
from bench.sweep.grammar import Cache, Threads
from bench.sweep.load import Case

WHERE = "compare --again"


def next_lines(comparison: Comparison, results: Sequence[Path]) -> Iterator[str]:
    """How to learn more of the UNSURE cases: the command, and the seconds it takes."""
    before, after = comparison.before, comparison.after
    unsure = [each.case for each in comparison.of("UNSURE") if each.role == "measurement"]
    measured_here = before.facts["source"] == after.facts["source"] == (OURS,)
    if not unsure or not measured_here or before.facts["device"] != after.facts["device"]:
        return
    commits = before.facts["commit"], after.facts["commit"]
    if commits[0] != commits[1] and len(commits[0]) == len(commits[1]) == 1:
        count = count_text(len(unsure), "UNSURE case")
        takes = duration_text(default_budget_s(len(unsure)))
        command = f"python -m bench compare {' '.join(map(str, results))} --again"
        yield f"next: {command}   (on that device, about {takes}: the {count} in turns with both commits)"
    else:
        takes = duration_text(default_budget_s(FEW_NAMES))
        names = " ".join(case_name(*case) for case in unsure[:FEW_NAMES])
        yield (
            f"next: python -m bench ab {names}   (on that device, about {takes}: how small a change it can "
            "resolve)"
        )


def again(comparison: Comparison, results: Sequence[Path], budget_s: float | None) -> int:
    """Measure the UNSURE cases with the commits of both sides, and print verdicts as `ab` does.

    Gives the exit code of both reports together: 1 before 2 before 0 before 3. UserError if the two sides are
    not two versions of the code that can be measured on one device of this machine.
    """
    before, after = comparison.before, comparison.after
    kind = _one_device(before, after)
    unsure = [each.case for each in comparison.of("UNSURE") if each.role == "measurement"]
    if not unsure:
        remark(f"{WHERE}: no case is UNSURE (ceilings apart), so nothing is measured again")
        return comparison.exit_code
    commits = _commit(before, "A"), _commit(after, "B")
    if commits[0] == commits[1]:
        raise UserError(f"{WHERE}: A and B are both of commit {commits[0]}; give results of two commits")
    for fact in SOFTWARE:
        if before.facts[fact.name] != after.facts[fact.name]:
            remark(f"{WHERE}: A and B differ in {fact.name}, too; now both run with what is installed here")
    cases = [_case(case) for case in unsure]
    with _code(commits[0], "A") as old, _code(commits[1], "B") as new:
        what = f"again, in turns, {commits[1]} against {commits[0]}"
        every = contested(detect(kind), cases, old, new, what, budget_s, SAME_PERCENT)
    command = f"python -m bench compare {' '.join(map(str, results))} --again"
    show(undecided_lines(every, SAME_PERCENT, lambda undecided: command))
    words = Counter(contest.verdict for contest in every)
    return min((comparison.exit_code, exit_code(words)), key=(1, 2, 0, 3).index)


def _one_device(before: Side, after: Side) -> str:
    """The kind of the device, as `detect` takes it."""
    for name, side in (("A", before), ("B", after)):
        if side.facts["source"] != (OURS,):
            raise UserError(f"{WHERE}: {name} holds imported rows, which cannot be measured here")
    ((of_a,), (of_b,)) = before.facts["device"], after.facts["device"]
    if of_a != of_b:
        raise UserError(f"{WHERE}: A is of {of_a} and B of {of_b}; two devices cannot be measured in turns")
    kind = next(iter(before.looks.values())).row.device_kind
    here = detect(kind)
    if here.slug != of_a:
        raise UserError(f"{WHERE}: A and B are of {of_a}, but the device of this machine is {here.slug}")
    return kind


def _commit(side: Side, name: str) -> str:
    commits = side.facts["commit"]
    if len(commits) != 1:
        known = ", ".join(commits) or "no commit that is known"
        raise UserError(f"{WHERE}: the rows of {name} must be of one commit, but are of {known}")
    return commits[0]


def _code(commit: str, name: str) -> AbstractContextManager[Path]:
    """The folder with the code of a side; of one with uncommitted changes this checkout, as it is now."""
    where = f"{WHERE}: {name} is of commit {commit}"
    committed = commit_of(commit.removesuffix("+"), where)
    if not commit.endswith("+"):
        return checked_out(committed, where)
    if committed != commit_of("HEAD", where):
        raise UserError(
            f"{where}: its uncommitted changes are not here, as this checkout is of another commit"
        )
    remark(f"{where}: its uncommitted changes are taken to be those of this checkout")
    return as_it_is()


def _case(compared: CaseKey) -> Case:
    try:
        problem = kernels.problem(compared.operator).model_validate_json(compared.parameters)
        problem.implementation(compared.implementation)
    except (LookupError, ValidationError):
        raise UserError(
            f"{WHERE}: this checkout cannot make {case_name(*compared)}, which is UNSURE"
        ) from None
    sweep, implementation = compared.sweep, compared.implementation
    cache, threads = cast(Cache, compared.cache), cast(Threads, compared.threads)
    return Case(sweep, implementation, problem, cache, "", "measurement", threads)
