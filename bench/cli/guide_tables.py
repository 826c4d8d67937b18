"""Verdicts by what the guides say: a table with a line for each rule, and one for each experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.judge.claims import VERDICTS, WITH_EFFECT, JudgedClaim
from bench.runner.provenance import commit
from bench.sweep.experiments import EXPERIMENTS, HALF, LACKING, RULES

Table = tuple[list[str], list[list[str]]]
"""The header and the lines, cell by cell."""
WITHOUT_A_CLAIM: Mapping[str, str] = {
    "MM-08": "gemm/forced_tiles_cublaslt draws it; what cuBLAS selects is no time that could be judged",
    "FC-01": "tests/kernels/test_linear.py proves the mapping onto products against autograd",
    "FC-08": "linear/batch stores the kernels' grids; no time that could be judged",
    "FC-10": "linear/swapped draws it",
    "CV-10": "convolution/stride draws it; the guide's text has no statement that could be judged",
    "CV-11": "convolution/dilation draws it; the guide's text has no statement that could be judged",
    "CV-13": "convolution/algorithms stores which algorithm ran",
    "CV-20": "needs whole networks",
    "ML-05": "batchnorm/intensity and layernorm/rows draw two of the normalizations",
    "RN-10": "recurrent/loop draws LSTM and GRU; the guides' text has no statement that could be judged",
    "GB-05": "tests/kernels/test_layernorm.py counts it: arithmetic, which no time could refute",
    "PR-03": "needs the gradients of a trained network; random ones return what was put in",
    "HW-04": "linear/batch_4096 draws time and rate against the batch",
    "HW-06": "ceilings/cache draws it",
    "TR-11": "gemm/waves draws it; the capacity is in a lost picture",
}
"""Experiment that no sweep has a claim about -> what shows it, or why nothing does."""


def device(each: JudgedClaim) -> str:
    """The device of a verdict, marked if somebody else measured it."""
    return each.device + (" (imported)" if each.imported else "")


def rules(judged: Sequence[JudgedClaim], devices: Sequence[str], only: int | None) -> Table:
    """A line for each rule, or for `only` this one: what each device says, and what is missing."""
    lines = []
    for number in [only] if only is not None else RULES:
        speaking = [each for each in judged if number in each.claim.rules]
        of_devices = [[each for each in speaking if device(each) == name] for name in devices]
        cells = [summary(mine) + _part(mine) for mine in of_devices]
        missing = []
        if not speaking:
            missing.append(f"needs {LACKING[number]}" if number in LACKING else "not in these results")
        if number in HALF:
            missing.append(f"the rest needs {HALF[number]}")
        lines.append([str(number), RULES[number], *cells, "; ".join(missing)])
    return ["rule", "says", *devices, "what is missing"], lines


def _part(judged: Sequence[JudgedClaim]) -> str:
    """` (of batch alone)` if alignment was tested, and of one size; a rule may be about several."""
    aligned = [_aligned(each) for each in judged if each.effect is not None]
    sizes = set().union(*aligned)
    return f" (of {sizes.pop()} alone)" if len(sizes) == 1 and all(aligned) else ""


def _aligned(each: JudgedClaim) -> set[str]:
    """The sizes whose alignment a claim tests; none if it tests anything else."""
    ratio = each.claim.ratio
    selections = (ratio.of, ratio.to) if ratio is not None else ()
    return {name for select in selections for name, value in select.items() if "%" in str(value)}


def experiments(judged: Sequence[JudgedClaim]) -> Table:
    """A line for each experiment: its sweeps, its verdicts here and of imported rows, or why there is none.

    Verdicts of several imported devices are counted together, since a column for each would say nothing more.
    """
    lines = []
    for number in EXPERIMENTS:
        mine = [each for each in judged if each.claim.id.startswith(number)]
        sweeps = sorted({each.declared.name for each in mine if not each.imported})
        own, imported = ([each for each in mine if each.imported == is_imported] for is_imported in (0, 1))
        about = [each for each in own if each.verdict != "NOT APPLICABLE"]
        if about:
            state = summary(about)
        elif own:
            state = "ready for a GPU"
        else:
            state = WITHOUT_A_CLAIM.get(number, "not in these results")
        lines.append([number, ", ".join(sweeps), state, summary(imported)])
    return ["experiment", "sweeps", "measured here", "imported"], lines


def rules_by_device(judged: Iterable[JudgedClaim]) -> dict[str, Any]:
    """For JSON: rule -> device -> [verdict, claim, effect, run, lines that hold, lines that fail, aligned] of
    what was decided or might have been.

    Runs of imported rows are named for their source and the commit of it. `aligned` are the sizes whose
    alignment was tested, as `batch`, though a rule may be about several; empty where nothing is aligned.
    """
    table: dict[str, dict[str, list[list[str | int]]]] = {}
    for each in judged:
        if each.effect is not None and each.verdict in WITH_EFFECT:
            for number in each.claim.rules:
                cell = table.setdefault(str(number), {}).setdefault(each.device, [])
                of = each.effect
                aligned = " ".join(sorted(_aligned(each)))
                where = ", ".join(each.runs)
                cell.append([each.verdict, each.claim.id, str(of), where, of.holding, of.failing, aligned])
    return {"commit": commit()[0], "rules": table}


def summary(judged: Iterable[JudgedClaim]) -> str:
    """`SUPPORTED 3 of 4, UNDECIDED 1`: how many of the claims that are about a device have which verdict."""
    judged = list(judged)
    counts = Counter(each.verdict for each in judged if each.verdict != "NOT APPLICABLE")
    words = sorted(counts, key=VERDICTS.index)
    if not words:
        reasons = sorted({each.reason for each in judged})
        return f"NOT APPLICABLE: {'; '.join(reasons)}" if reasons else ""
    if counts.total() == 1:
        return words[0]
    shares = [f"{word} {counts[word]}" for word in words]
    return ", ".join([f"{shares[0]} of {counts.total()}", *shares[1:]])
