"""`python -m bench ab`: is this checkout, or a kernel of your own, faster or slower than another version?"""

from __future__ import annotations

import io
import math
import os
import shutil
import statistics
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import kernels
from bench.cli.application import DeviceOption, remark, show
from bench.errors import UserError
from bench.format import change_text, count_text, duration_text, share_text
from bench.sweep import load as sweep
from bench.sweep.load import Case

if TYPE_CHECKING:
    from bench.device.detect import Device
    from bench.runner.ab import Contest, Side, Verdict

ROOT = Path(__file__).parents[2]
CODE = ("bench", "kernels")
"""The folders whose two versions are compared."""
NEEDED = (*CODE, "pyproject.toml")
"""What a worker reads of its version."""
TUNED = "kernels/tuned"
"""Where the choices of a version's tuner lie."""
MEASURING = ("bench/sampling", "bench/worker")
"""What of them decides how a time is taken."""
SLOWER, UNKNOWN_SIDE, NOTHING_DECIDED = 1, 2, 3
"""Exit codes beside 0."""
CASE_S, LEAST_S = 5.5, 55.0
"""Seconds that each case adds to the budget, and the least budget, unless one is given: with all that comes
before and after, ten cases take less than a minute."""
SAME_PERCENT = 2.0
RESOLVED = (0.02, 0.05, 0.1)
"""Changes of which an A/A test says how long it takes to find them ..."""
NINE_IN_TEN = 1.2816
"""... nine times in ten: standard errors by which one has to be larger than the half of the interval."""
LONGEST_S = 3600.0
"""More time than this is no advice."""
FEW_NAMES = 3
"""Most cases that a command to be copied names."""

BudgetOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=1.0, help="Of measuring; default: 5.5 a case, at least 55."),
]
SameOption = Annotated[
    float, typer.Option(metavar="PERCENT", min=0.1, help="Smaller differences count as none.")
]


def ab(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="SWEEP|CASE...", help="What to compare; with --kernel OPERATOR NAME=VALUES..., as of run."
        ),
    ],
    kernel: Annotated[
        tuple[str, str] | None,
        typer.Option("--kernel", metavar="OLD NEW", help="Two kernels of your own, each FILE:FUNCTION."),
    ] = None,
    ref: Annotated[str, typer.Option(metavar="COMMIT", help="The version to compare with.")] = "HEAD",
    bench_device: DeviceOption = "auto",
    bench_budget: BudgetOption = None,
    same: SameOption = SAME_PERCENT,
) -> None:
    """This checkout, as it is, against another commit, interleaved: faster, slower or the same, case by case.

    Or one kernel of your own against another, which are checked before they are timed.

    Both tune their kernels afresh, and kernels that are the same in both are tuned once: no choice of another
    day is used. If the code is the same in both, this is an A/A test: it says how small a change this machine
    can resolve, in which time, and its exit code is 0.

    Exit code 1: a case got slower, whatever else there is. 2: one version cannot run a case, or the input is
    bad. 3: nothing was decided. 0: something was decided, and nothing got slower.
    """
    from bench.device.detect import detect

    device = detect(bench_device)
    where = f"--ref {ref}"
    options = "".join(
        f" {option} {given}"
        for option, given, usual in (
            ("--ref", ref, ref if kernel else ""),
            ("--bench-device", bench_device, "auto"),
            ("--same", f"{same:g}", f"{SAME_PERCENT:g}"),
            ("--kernel", " ".join(kernel or ()), ""),
        )
        if given != usual
    )

    def command(undecided: Sequence[Case]) -> str:
        few = kernel is None and len(undecided) <= FEW_NAMES
        return f"python -m bench ab{options} {' '.join([case.name for case in undecided] if few else names)}"

    before = as_it_is() if kernel else checked_out(commit_of(ref, where), where)
    with before as old, as_it_is() as new:
        if kernel:
            cases, sides = _of_kernels(names, kernel, device)
            is_same_code = sides["old"] == sides["new"]
            what = "A/A of one kernel" if is_same_code else f"{kernel[1]} against {kernel[0]}"
        else:
            cases, sides = chosen(names, device.sm_count), None
            is_same_code = not _differs(old)
            what = f"this checkout against {ref}"
            if is_same_code:
                what = f"A/A, since bench/ and kernels/ are those of {ref}"
        every = contested(device, cases, old, new, what, bench_budget, same, sides)
    show(resolution_lines(every) if is_same_code else undecided_lines(every, same, command))
    words = Counter(contest.verdict for contest in every)
    if is_same_code:
        is_known = any(contest.variance is not None for contest in every)
        raise typer.Exit(UNKNOWN_SIDE if words["failed"] else 0 if is_known else NOTHING_DECIDED)
    raise typer.Exit(exit_code(words))


def _of_kernels(
    names: Sequence[str], kernel: tuple[str, str], device: Device
) -> tuple[list[Case], dict[Side, str]]:
    """(the cases of the new kernel, FILE:FUNCTION of either), both checked. UserError if one is wrong."""
    from bench.cli.run_command import cases_of
    from bench.runner.custom_kernel import checked_kernels
    from bench.runner.rows import SEED
    from bench.runner.supervisor import WorkerSupervisor

    of_both = [cases_of("ab", names, device, kernel=[text]) for text in kernel]
    worker = WorkerSupervisor(device, SEED)
    try:
        for cases in of_both:
            show(checked_kernels(cases, worker, device))
    finally:
        worker.close()
    old, new = (cases[0].problem.implementation(cases[0].implementation).kernel for cases in of_both)
    return of_both[1], {"old": old, "new": new}


def contested(
    device: Device,
    cases: Sequence[Case],
    old: Path,
    new: Path,
    what: str,
    budget_s: float | None,
    same: float,
    kernels: Mapping[Side, str] | None = None,
) -> list[Contest]:
    """Every case with its verdict; prints them as they come, `what` first. `kernels`: see `versions`.

    `old` and `new` are folders with two versions of the code, without choices of their tuners: from here on
    they share them, so that equal kernels run in equal configurations. `same` is in percent. UserError if
    none of the cases can run on the device.
    """
    from bench.device.health import fitness
    from bench.device.lock import device_lock
    from bench.runner.ab import contests, versions

    able = [case for case in cases if not case.missing(device.kind, device.capability)]
    if not able:
        why = cases[0].missing(device.kind, device.capability)
        raise UserError(f"none of these {count_text(len(cases), 'case')} can run on {device}: {why}")
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
        with versions(device, old, new, kernels) as (visit, renew):
            for contest in contests(able, visit, renew, budget_s, same / 100, kind=device.kind):
                typer.echo(line(contest))
                every.append(contest)
    within = {"same": f" within {same:g} %"}
    words = Counter(contest.verdict for contest in every)
    counts = (f"{count} {word}{within.get(word, '')}" for word, count in words.most_common())
    typer.echo(f"{count_text(len(able), 'case')}: {', '.join(counts)}")
    return every


def default_budget_s(cases: int) -> float:
    """Seconds of measuring so many cases."""
    return max(LEAST_S, CASE_S * cases)


def undecided_lines(
    every: Sequence[Contest], same: float, command: Callable[[Sequence[Case]], str]
) -> Iterator[str]:
    """Why cases are undecided, and the command that decides them in how many seconds.

    `same` is in percent; `command` gives the one that compares these cases, and perhaps others, once more.
    """
    undecided = [contest for contest in every if contest.verdict == "undecided"]
    if not undecided:
        return
    unknown = [contest for contest in undecided if contest.variance is None]
    if unknown:
        yield f"{count_text(len(unknown), 'case')} had too few rounds for an interval"
    yield from _scatter_lines(undecided)
    needed_s = {contest.case.key: contest.decided_s(same / 100) for contest in undecided}
    decidable = [c for c in undecided if (needed_s[c.case.key] or math.inf) <= LONGEST_S]
    if late := len(undecided) - len(decidable) - len(unknown):
        yield (
            f"{count_text(late, 'case')} would take more than an hour: a quieter machine, or a larger --same "
            f"than {same:g}, decides sooner"
        )
    again = [contest.case for contest in decidable or unknown]
    if not again:
        return
    text = command(again)
    more_s = sum(needed_s[contest.case.key] or 0.0 for contest in decidable)
    if not all(case.name in text for case in again):  # it repeats the others, which take what they took
        more_s += sum(contest.spent_s for contest in every if contest not in decidable)
    budget_s = 10 * math.ceil(max(more_s, default_budget_s(len(again))) / 10)
    yield (
        f"next: {text} --bench-budget {budget_s:g}   "
        f"(about {duration_text(budget_s)}, for {count_text(len(again), 'case')})"
    )


def resolution_lines(every: Sequence[Contest]) -> Iterator[str]:
    """Of an A/A test: how small a change this machine can resolve, in which time, by kind of work."""
    if not (kinds := _by_kind(every)):
        yield f"too few rounds for an interval: --bench-budget {default_budget_s(len(every)):g} or more"
    yield from _scatter_lines(every)
    for kind, contests in kinds.items():
        parts = []
        for change in RESOLVED:
            times = [contest.seconds_for(math.log1p(change), NINE_IN_TEN) for contest in contests]
            middle_s = statistics.median(math.inf if s is None else s for s in times)
            needs = "more than an hour" if middle_s > LONGEST_S else duration_text(middle_s)
            parts.append(f"{share_text(change)} needs {needs}")
        yield f"{kind}: {', '.join(parts)} a case here, to be found nine times in ten"
    if different := sum(contest.verdict in ("faster", "slower") for contest in every):
        yield (
            f"{different} of {count_text(len(every), 'case')} called different, although the code is the "
            "same: at most one in a hundred is expected"
        )


def _scatter_lines(contests: Sequence[Contest]) -> Iterator[str]:
    for kind, of_kind in _by_kind(contests).items():
        scatter = math.expm1(math.sqrt(statistics.median(each.variance or 0.0 for each in of_kind)))
        yield (
            f"{kind}: the ratio of the two times of {count_text(len(of_kind), 'case')} scatters by "
            f"±{share_text(scatter, 1)} from round to round"
        )


def _by_kind(contests: Sequence[Contest]) -> dict[str, list[Contest]]:
    """Kind of work -> the cases of which it is known how they scatter."""
    from bench.judge.noise import NAMES

    by_kind: dict[str, list[Contest]] = {}
    for contest in contests:
        if contest.variance is not None:
            by_kind.setdefault(NAMES[contest.work], []).append(contest)
    return by_kind


def exit_code(words: Mapping[Verdict, int]) -> int:
    """As `ab` documents it."""
    if words.get("slower"):
        return SLOWER
    if words.get("failed"):
        return UNKNOWN_SIDE
    return 0 if words.get("faster") or words.get("same") else NOTHING_DECIDED


def chosen(names: Sequence[str], sm_count: int) -> list[Case]:
    """The cases of these sweeps, or of these names. UserError for what is neither."""
    cases: dict[str, Case] = {}
    for name in names:
        try:
            loaded = sweep.load_all(sweep.select(name), kernels.problem, sm_count)
            named = [case for each in loaded for case in each.cases]
        except UserError:
            every = sweep.load_all(sweep.every_sweep(), kernels.problem, sm_count)
            named = sweep.pick((case for each in every for case in each.cases), [name], "ab")
        cases |= {case.key: case for case in named}
    return list(cases.values())


def commit_of(ref: str, where: str) -> str:
    """The hash of a commit of this checkout; UserError, beginning with `where`, if there is none."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if commit is None:
        raise UserError(f"{where}: this checkout has no such commit")
    return commit.decode().strip()


@contextmanager
def checked_out(commit: str, where: str) -> Iterator[Path]:
    """A folder with the code of a commit, while the block runs; UserError, beginning with `where`."""
    archive = _git("archive", commit, ".", ":(exclude)results", f":(exclude){TUNED}")
    if archive is None:
        raise UserError(f"{where}: git cannot read the files of commit {commit[:12]}")
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
        for name in os.fsdecode(listed or b"").split("\0"):
            if (ROOT / name).is_file():  # it may be deleted and not committed yet
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, Path(folder, name))
        yield Path(folder)


def _differs(old: Path) -> bool:
    return any(_changed(old / part, ROOT / part) for part in CODE)


def _changed(old: Path, new: Path) -> bool:
    """Whether two folders hold different Python files."""
    contents = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*.py")} for root in (old, new)
    ]
    return contents[0] != contents[1]


def _git(*words: str) -> bytes | None:
    """What git says in this checkout; None if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True)
    return done.stdout if done.returncode == 0 else None


def line(contest: Contest) -> str:
    """`slower   +5.1 % (+4.2 % to +6.0 %)  gemm/square-...`; the name on a line of its own if need be."""
    effect = contest.effect
    if contest.failure:
        numbers = contest.failure
    elif effect is None:
        numbers = f"after {count_text(len(contest.logs), 'round')}"
    else:
        ends = f"{change_text(effect.low)} to {change_text(effect.high)}"
        numbers = f"{change_text(effect.ratio):>7} ({ends})"
    head = f"{contest.verdict:<9} {numbers:<28}"
    name = contest.case.name
    width = shutil.get_terminal_size().columns
    return f"{head}  {name}" if len(head) + 2 + len(name) <= width else f"{head.rstrip()}\n    {name}"
