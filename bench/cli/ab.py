"""`python -m bench ab`: is this checkout faster or slower than another commit?"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.application import DeviceOption, remark, show
from bench.errors import UserError
from bench.format import change_cells, count_text, duration_text
from bench.git import GitError, git
from bench.sweep.load import Case

if TYPE_CHECKING:
    from bench.device.detect import Device
    from bench.runner.ab import Contest, Verdict

ROOT = Path(__file__).parents[2]
CODE = ("bench", "kernels")
"""The folders whose two versions are compared."""
NEEDED = (*CODE, "pyproject.toml")
"""What a worker reads of its version."""
TUNED = "kernels/tuned"
"""Folder of a version's choices by its tuner."""
MEASURING = ("bench/sampling", "bench/worker")
"""What of them decides how a time is taken."""
SLOWER, UNKNOWN_SIDE, NOTHING_DECIDED = 1, 2, 3
"""Exit codes other than 0."""
CHANGED_S = 600.0
"""The budget where a change chooses the cases: as many as it has time for, at CASE_S each."""
CASE_S, LEAST_S = 5.5, 55.0
"""Seconds that each case adds to the budget, and the least budget, unless one is given: with all that comes
before and after, ten cases take less than a minute."""
BudgetOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=1.0,
        help="Of measuring, with as many cases as fit; default: 5.5 a case, at least 55; with --changed 600.",
    ),
]


def ab(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SWEEP|CASE...]", help="What to compare.")
    ] = None,
    ref: Annotated[str, typer.Option(metavar="COMMIT", help="The version to compare with.")] = "HEAD",
    changed: Annotated[
        bool,
        typer.Option(
            "--changed",
            help="Compare with the commit at which this checkout left COMMIT, in what changed since: sweeps, "
            "the sweeps of changed operators, or the tour if measuring code changed.",
        ),
    ] = False,
    bench_device: DeviceOption = "auto",
    bench_budget: BudgetOption = None,
    same: Annotated[
        float, typer.Option(metavar="PERCENT", min=0.1, help="Smaller differences count as none.")
    ] = 2.0,
) -> None:
    """This checkout, as it is, against another commit, interleaved: faster, slower or the same, case by case.

    Both tune their kernels afresh, without choices of another day; kernels that are the same in both are
    tuned once. If the code is equal, SLOWER is a false alarm and counts as SAME for the exit code.

    Exit code 1: a case got slower, whatever else there is. 2: this checkout cannot run a case, or the input
    is bad. 3: nothing was decided. 0: something was decided, and nothing got slower; or --changed finds that
    no time depends on what was changed.
    """
    from bench.cli import ab_cases
    from bench.device.detect import detect

    if bool(names) == changed:
        raise UserError("ab: give sweeps or cases, or --changed: one of the two")
    device, where = detect(bench_device), f"--ref {ref}"
    commit, against = commit_of(ref, where), ref
    if names:
        cases = ab_cases.named(names, device.sm_count)
        cases.sort(key=lambda case: ab_cases.has_long_visits(case, device))  # if time is short, without them
    else:
        left = parting(commit, where)
        if left != commit:
            commit, ref, against = left, left[:12], f"{left[:12]} (where it left {ref})"
        bench_budget = bench_budget or CHANGED_S
        change = ab_cases.touched(differing(commit), ROOT)
        cases, whole = ab_cases.chosen(change, device, max(1, int(bench_budget / CASE_S)))
        of = f"of the {count_text(whole, 'case')} of {change}"
        if not cases:
            why = f"none {of} can run on {device}" if whole else f"no time depends on what differs from {ref}"
            typer.echo(f"nothing to compare: {why}")
            raise typer.Exit(NOTHING_DECIDED if whole else 0)
        typer.echo(f"{len(cases):,} {of}")
    with checked_out(commit, where) as old, as_it_is() as new:
        is_same_code = not any(_changed(old / part, new / part) for part in CODE)
        what = f"this checkout against {against}"
        if is_same_code:
            what = f"equal code: bench/ and kernels/ are those of {against}"
        every = compare_versions(device, cases, old, new, what, bench_budget, same)
    words = Counter(contest.verdict for contest in every)
    if words["UNDECIDED"]:
        typer.echo("a longer --bench-budget, a quieter machine or a larger --same decides more")
    if is_same_code:
        words["SAME"] += words.pop("SLOWER", 0)  # a false alarm
    raise typer.Exit(exit_code(words))


def compare_versions(
    device: Device,
    cases: Sequence[Case],
    old: Path,
    new: Path,
    what: str,
    budget_s: float | None,
    same: float,
) -> list[Contest]:
    """Every case with its verdict; prints them as they come, `what` first.

    `old` and `new` are folders with two versions of the code, without choices of their tuners: from here on
    they share them, so that equal kernels run in equal configurations. `same` is in percent.
    Of a budget that is given as many cases are taken as it has time for; by default it has for all. UserError
    if none of the cases can run on the device.
    """
    from bench.device.health import fitness
    from bench.device.lock import device_lock
    from bench.runner.ab import contests, versions

    able = [case for case in cases if not case.missing(device.kind, device.capability)]
    if not able:
        why = cases[0].missing(device.kind, device.capability)
        raise UserError(f"none of these {count_text(len(cases), 'case')} can run on {device}: {why}")
    as_time_allows = budget_s is not None
    budget_s = budget_s or default_budget_s(len(able))
    with device_lock(device.uuid, str(device), "comparing two versions") as unlocked:
        if unlocked:
            remark(unlocked)
        for reason in fitness(device):
            remark(f"{device}: {reason}")
        typer.echo(f"{what}: {count_text(len(able), 'case')} on {device}, at most {duration_text(budget_s)}")
        if len(able) < len(cases):
            typer.echo(f"{len(cases) - len(able)} of the {len(cases)} cases cannot run here")
        if any(_changed(old / part, new / part) for part in MEASURING):
            remark("bench/sampling or bench/worker differ too: the two versions may take times differently")
        (old / TUNED).mkdir(parents=True)
        (new / TUNED).symlink_to(old / TUNED)
        every = []
        with versions(device, old, new) as (visit, renew):
            for contest in contests(
                able, visit, renew, budget_s, same / 100, kind=device.kind, as_time_allows=as_time_allows
            ):
                show([line(contest)])
                every.append(contest)
    if len(every) < len(able):
        typer.echo(f"there was no time for {count_text(len(able) - len(every), 'case')} more")
    words = Counter(contest.verdict for contest in every)
    within = {"SAME": f" within {same:g} %"}
    counts = (f"{count} {word}{within.get(word, '')}" for word, count in words.most_common())
    typer.echo(f"{count_text(len(every), 'case')}: {', '.join(counts)}")
    return every


def line(contest: Contest) -> str:
    """`SLOWER   +5.1 % (+4.2 % to +6.0 %)  gemm/square-...`."""
    effect = contest.effect
    numbers = contest.failure or f"after {count_text(len(contest.logs), 'round')}"
    if effect is not None and not contest.failure:
        by, ends = change_cells(effect.ratio, effect.low, effect.high)
        numbers = f"{by:>7} ({ends})"
    return f"{contest.verdict:<9} {numbers:<28}  {contest.case.name}"


def default_budget_s(cases: int) -> float:
    """Seconds of measuring so many cases."""
    return max(LEAST_S, CASE_S * cases)


def exit_code(words: Mapping[Verdict, int]) -> int:
    """The exit code that `ab` documents."""
    if words.get("SLOWER"):
        return SLOWER
    if words.get("FAILED"):
        return UNKNOWN_SIDE
    return 0 if words.get("FASTER") or words.get("SAME") else NOTHING_DECIDED


def commit_of(ref: str, where: str) -> str:
    """The hash of a commit of this checkout; UserError, beginning with `where`, if there is none."""
    refusal = f"{where}: this checkout has no such commit"
    return _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", refusal=refusal).decode().strip()


def parting(commit: str, where: str) -> str:
    """The commit at which this checkout left another; UserError, beginning with `where`, if there is none."""
    refusal = f"{where}: this checkout has no commit in common with it; a shallow clone needs its history"
    return _git("merge-base", "HEAD", commit, refusal=refusal).decode().strip()


def differing(commit: str) -> list[str]:
    """The files of this checkout that differ from a commit, committed or not, without choices of a tuner."""
    tracked = _git("diff", "--name-only", "--no-renames", "-z", commit)
    others = _git("ls-files", "--others", "--exclude-standard", "-z")
    names = os.fsdecode(tracked + others).split("\0")
    return [name for name in names if name and not name.startswith(f"{TUNED}/")]


@contextmanager
def checked_out(commit: str, where: str) -> Iterator[Path]:
    """A folder with the code of a commit, while the block runs; UserError, beginning with `where`."""
    refusal = f"{where}: git cannot read the files of commit {commit[:12]}"
    archive = _git("archive", commit, ".", ":(exclude)results", f":(exclude){TUNED}", refusal=refusal)
    with tempfile.TemporaryDirectory(prefix="roofbench-ab-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


@contextmanager
def as_it_is() -> Iterator[Path]:
    """A folder with the code of this checkout, committed or not, while the block runs."""
    listed = _git(
        "ls-files", "-z", "--cached", "--others", "--exclude-standard", *NEEDED, f":(exclude){TUNED}"
    )
    with tempfile.TemporaryDirectory(prefix="roofbench-ab-") as folder:
        for name in os.fsdecode(listed).split("\0"):
            if (ROOT / name).is_file():  # it may be deleted and not committed yet
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, Path(folder, name))
        yield Path(folder)


def _changed(old: Path, new: Path) -> bool:
    """Whether two folders hold different Python files."""
    contents = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*.py")} for root in (old, new)
    ]
    return contents[0] != contents[1]


def _git(*words: str, refusal: str = "git failed in this checkout") -> bytes:
    """What git says in this checkout; UserError with its own reason if it fails, or else the refusal."""
    try:
        return git(ROOT, *words)
    except GitError as error:
        where, said = refusal.partition(":")[0], str(error)
        raise UserError(refusal if said.startswith("exit code") else f"{where}: {said}") from error
