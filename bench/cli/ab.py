"""`python -m bench ab`: does this checkout make cases faster or slower than another commit?"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import kernels
from bench.cli.application import DeviceOption
from bench.errors import UserError
from bench.format import count_text
from bench.sweep import load as sweep
from bench.sweep.load import Case

if TYPE_CHECKING:
    from bench.runner.ab import Contest

ROOT = Path(__file__).parents[2]
SLOWER, UNKNOWN_SIDE, NOTHING_DECIDED = 1, 2, 3
"""Exit codes beside 0."""


def ab(
    names: Annotated[list[str], typer.Argument(metavar="SWEEP|CASE...", help="What to compare.")],
    ref: Annotated[str, typer.Option(metavar="COMMIT", help="The version to compare with.")] = "HEAD",
    bench_device: DeviceOption = "auto",
    bench_budget: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="Wall time of all cases together.")
    ] = 60.0,
    same: Annotated[
        float, typer.Option(metavar="PERCENT", min=0.1, help="Differences within this are none.")
    ] = 2.0,
) -> None:
    """This checkout, as it is, against another commit, in turns: faster, slower or the same, case by case.

    Exit code 0: nothing got slower. 1: something did. 2: bad input, or a case that one version cannot run.
    3: nothing was decided.
    """
    from bench.device.detect import detect
    from bench.device.lock import device_lock
    from bench.runner.ab import contests, version

    device = detect(bench_device)
    cases = chosen(names, device.sm_count)
    able = [case for case in cases if not case.missing(device.kind, device.capability)]
    if not able:
        why = cases[0].missing(device.kind, device.capability)
        raise UserError(f"none of these {len(cases)} cases can run on {device}: {why}")
    words: Counter[str] = Counter()
    with device_lock(device.uuid, str(device), "comparing two versions"), checked_out(ref) as folder:
        typer.echo(f"this checkout against {ref}, {count_text(len(able), 'case')} on {device}")
        with version(device, folder) as old, version(device, ROOT) as new:
            for contest in contests(able, old, new, bench_budget, same / 100):
                typer.echo(line(contest))
                words[contest.verdict] += 1
    typer.echo(", ".join(f"{count} {word}" for word, count in words.most_common()))
    if words["slower"]:
        raise typer.Exit(SLOWER)
    if words["failed"]:
        raise typer.Exit(UNKNOWN_SIDE)
    if words["undecided"] == len(able):
        raise typer.Exit(NOTHING_DECIDED)


def chosen(names: Sequence[str], sm_count: int) -> list[Case]:
    """The cases of these sweeps, or of these names. UserError for what is neither."""
    cases: dict[str, Case] = {}
    for name in names:
        try:
            loaded = sweep.load_all(sweep.select(name), kernels.problem, sm_count)
            found = [case for each in loaded for case in each.cases]
        except UserError:
            every = sweep.load_all(sweep.every_sweep(), kernels.problem, sm_count)
            found = sweep.pick((case for each in every for case in each.cases), [name], "ab")
        cases |= {case.key: case for case in found}
    return list(cases.values())


@contextmanager
def checked_out(ref: str) -> Iterator[Path]:
    """A folder with the files of a commit. UserError if there is no such commit, or it is this checkout."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if commit is None:
        raise UserError(f"--ref {ref}: this checkout has no such commit")
    if _git("diff", "--quiet", commit, "--", "bench", "kernels") is not None:
        raise UserError(f"--ref {ref}: bench/ and kernels/ are as they were then; give an older commit")
    with tempfile.TemporaryDirectory(prefix="roofbench-ab-") as folder:
        if _git("worktree", "add", "--detach", folder, commit) is None:
            raise UserError(f"--ref {ref}: git cannot check it out into {folder}")
        try:
            yield Path(folder)
        finally:
            _git("worktree", "remove", "--force", folder)


def _git(*words: str) -> str | None:
    """What git says in this checkout; None if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def line(contest: Contest) -> str:
    """`slower   +5.1 % (+4.2 % to +6.0 %)  12 rounds  gemm/square-...`."""
    ratio, low, high = (100 * (each - 1) for each in contest.effect)
    numbers = f"{ratio:+6.1f} % ({low:+.1f} % to {high:+.1f} %)" if ratio == ratio else ""
    what = f"  {contest.failure}" if contest.failure else ""
    rounds = count_text(len(contest.logs), "round")
    return f"{contest.verdict:<10} {numbers:<30} {rounds:>10}  {contest.case.name}{what}"
