"""Loading of sweeps: YAML files in, cases out. Every mistake is reported with its file and line.

A block of `cases:` sets the operator's parameters. A value is a scalar, `{from, to, step}`,
`{from, to, factor}` (both ends included), `{per_sm: N}` (N times the device's SM count; with `plus: P`, P
more), or a list of these. Lists multiply, the first key varying slowest; names joined as `m=n:` move
together; blocks follow one another.

    for sweep, cases in load_all(select("gemm"), kernels.problem, sm_count=132):
        ...
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bench.case_name import case_key, case_name
from bench.errors import UserError, meant, quoted, unknown
from bench.spec import DeviceKind, Problem, parameters_text
from bench.sweep.checks import check_claims, check_plot
from bench.sweep.expand import MAX_CASES, Block, block
from bench.sweep.grammar import (
    Cache,
    Role,
    Sweep,
    TableClaims,
    Threads,
    contents,
    validated,
)
from bench.sweep.yaml_nodes import MAX_BYTE, Mistake, Node, tree

Find = Callable[[str], type[Problem]]
"""Gives the problem class of an operator; LookupError, which names the operators, for an unknown one."""

SWEEPS = Path(__file__).parents[2] / "sweeps"
"""Folder of the sweeps of this checkout."""
SUITES = SWEEPS / "suites.yaml"
"""The only file among them that is no sweep."""

FIRST = ("ceilings/launch", "ceilings/stream", "ceilings/gemm", "ceilings/gemm_cpu")
"""The first ceilings, in order: each needs what those before it measured. Others follow by name."""

ON_REQUEST = "on_request"
"""A folder of sweeps that are too long for every run: only their own names mean them, not that of all sweeps
or of a folder above."""


SWEEP_NAME = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Case:
    """One thing to time: this implementation on this problem."""

    sweep: str
    """Name of its sweep: the file's path under sweeps/, without suffix."""
    implementation: str
    problem: Problem
    cache: Cache
    series: str
    """Everything that distinguishes it but the swept axis: cases of one series are one line of the plot."""
    role: Role
    """The purpose of its rows."""
    threads: Threads = "all"
    """Cores of a CPU that compute: all, or one."""
    divided: bool = False
    """Whether its time is divided into classes of work, which a claim of its sweep needs."""

    @cached_property
    def name(self) -> str:
        """Its name in every command: `gemm/square-onednn-float32-NN-m64-n64-k64-cold`."""
        return case_name(*self._parts)

    @cached_property
    def key(self) -> str:
        """Its key in rows, equal in every run: see Measurement.case."""
        return case_key(*self._parts)

    @property
    def _parts(self) -> tuple[str, str, str, str, str, str]:
        problem = self.problem
        parameters = parameters_text(problem.parameters())
        return self.sweep, problem.operator, self.implementation, parameters, self.cache, self.threads

    def missing(self, kind: DeviceKind, capability: tuple[int, int] | None) -> str:
        """Why a device of this kind and compute capability cannot run it; empty if it can."""
        if self.threads == "one" and kind != "cpu":
            return "one thread can be requested of a CPU only"
        return self.problem.missing(self.implementation, kind, capability)


Way = tuple[str, Cache, Threads]
"""How a problem is solved: implementation, cache, threads. A sweep solves each problem in every way."""


class Loaded(NamedTuple):
    """A sweep and its cases, in file order; never without a case."""

    sweep: Sweep
    cases: list[Case]

    @property
    def name(self) -> str:
        """The file's path under sweeps/, without suffix."""
        return self.cases[0].sweep


def load(path: Path, find: Find, sm_count: int, root: Path = SWEEPS) -> Loaded:
    """One sweep for a device of `sm_count` SMs. UserError names the file and the line."""
    shown, name = shown_path(path, root), sweep_name(path, root)
    if not SWEEP_NAME.fullmatch(name):
        raise UserError(f"{shown}: {name!r} is no name for a sweep: use letters, digits and _ . + -")
    with reading(path, shown) as file:
        sweep = contents(file)
        return Loaded(sweep, _cases(name, sweep, find, sm_count))


def table_claims(path: Path, find: Find) -> TableClaims:
    """Claims about imported rows, which belong to no sweep. UserError names the file and the line."""
    with reading(path, path.name) as file:
        table = validated(TableClaims, file.data(), "a table's claims", line_of=file.line_of)
        check_claims(table.claims, _kind(table.operator, find))
        return table


def load_all(
    paths: Path | Iterable[Path],
    find: Find,
    sm_count: int,
    root: Path = SWEEPS,
    only: Collection[str] | None = None,
) -> list[Loaded]:
    """Several sweeps, or all of a folder, in the order in which they run: ceilings first.

    With `only`, those of these names.

    Raises UserError, also if two files would have the same name.
    """
    if only is not None and not only:
        return []
    if isinstance(paths, Path):
        files = _below(paths) if paths.is_dir() else [paths]
        if not files:
            raise UserError(f"{shown_path(paths, root)}: there is no sweep in this folder")
    else:
        files = list(paths)
    named: dict[str, Path] = {}
    for path in files:
        first = named.setdefault(sweep_name(path, root), path)
        if first.resolve() != path.resolve():
            given, other = shown_path(path, root), shown_path(first, root)
            raise UserError(f"{given}: its rows would mix with those of {other}; rename one of the two")
    loaded = [
        load(named[name], find, sm_count, root) for name in sorted(named) if only is None or name in only
    ]
    return sorted(loaded, key=_order)


def pick(cases: Iterable[Case], wanted: Iterable[str], option: str = "--bench-case") -> list[Case]:
    """The cases of these names, in the order of the names. UserError if no case has one of the names."""
    if not (names := dict.fromkeys(wanted)):
        return []
    by_name = {case.name: case for case in cases}
    picked = []
    for name in names:
        if name not in by_name:
            near = meant(name, by_name)
            raise UserError(f"{option} {name}: no requested sweep has this case{near}")
        picked.append(by_name[name])
    return picked


def select(name: str, root: Path = SWEEPS) -> list[Path]:
    """The files that NAME means, sorted by name. UserError, which names the sweeps, if there is none.

    NAME is a YAML file anywhere; a sweep (`gemm/square`), a folder of sweeps (`gemm`) or a sweep without
    its folder (`square`), each with or without suffix; or a folder anywhere.
    """
    # os.path and not Path: it answers False to names that no file can have.
    if name.endswith(_SUFFIXES) and os.path.exists(name) and not os.path.isdir(name):
        return [Path(name)]
    there = {sweep_name(path, root): path for path in _below(root, on_request=True)}
    bare = name.rstrip("/")
    for suffix in _SUFFIXES:
        bare = bare.removesuffix(suffix)
    for matches in (
        [n for n in there if n == bare],
        [n for n in there if n.startswith(f"{bare}/") and ON_REQUEST not in n.removeprefix(bare).split("/")],
        [n for n in there if n.endswith(f"/{bare}")],
    ):
        if matches and bare:
            return [there[n] for n in sorted(matches)]
    if os.path.isdir(name) and (inside := _below(Path(name))):
        return inside
    folders = {n.rpartition("/")[0] for n in there} - {""}
    raise UserError(
        f"{root.name}/ has no sweep {quoted(name)}{meant(name, [*there, *folders])}; "
        f"`python -m bench list` shows all {len(there)}"
    )


def _order(loaded: Loaded) -> tuple[bool, int, str]:
    place = FIRST.index(loaded.name) if loaded.name in FIRST else len(FIRST)
    return loaded.sweep.role == "measurement", place, loaded.name


def every_sweep() -> list[Path]:
    """The files of all sweeps of this checkout, without those that are run on request only."""
    return _below(SWEEPS)


def _below(folder: Path, on_request: bool = False) -> list[Path]:
    # os.walk and not Path.rglob: suites list the folder once for each of their entries.
    files = (
        Path(inside, name)
        for inside, folders, names in os.walk(folder)
        for name in [*folders, *names]
        if name.endswith(_SUFFIXES) and not name.startswith(".")
    )
    files = (p for p in files if p != SUITES)
    return sorted(p for p in files if on_request or ON_REQUEST not in p.relative_to(folder).parts)


def sweep_name(path: Path, root: Path = SWEEPS) -> str:
    """Name of the sweep in a file: its path under `root` without suffix."""
    real, of = os.path.realpath(path), _real_folder(root)
    stem = real.removeprefix(of) if real.startswith(of) else path.name
    front, suffix = os.path.splitext(stem)
    return (front if suffix in _SUFFIXES else stem).replace(os.sep, "/")


@cache
def _real_folder(root: Path) -> str:
    """The folder without symbolic links, and the separator that ends it."""
    return os.path.join(os.path.realpath(root), "")


def shown_path(path: Path, root: Path = SWEEPS) -> str:
    """The path as the user gave it; for a file of this checkout `sweeps/...`."""
    if path.is_absolute() and path.is_relative_to(root.absolute()):
        return str(Path(root.absolute().name) / path.relative_to(root.absolute()))
    return str(path)


@contextmanager
def reading(path: Path, shown: str) -> Iterator[Node]:
    """The contents of a file; a Mistake about them becomes a UserError with the file as `shown`, and line."""
    file = None
    try:
        file = tree(_bytes(path))
        yield file
    except Mistake as mistake:
        raise mistake.located(shown, file) from mistake


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTE + 1)
    except OSError as error:
        raise Mistake(None, f"cannot be read: {error.strerror}") from error


def _cases(name: str, sweep: Sweep, find: Find, sm_count: int) -> list[Case]:
    kind = _kind(sweep.operator, find)
    declared = [i.name for i in kind.implementations]
    for number, implementation in enumerate(sweep.implementations):
        if implementation not in declared:
            says = unknown("implementation", implementation, kind.operator, declared)
            raise Mistake(("implementations", number), says)
    for number, plot in enumerate(sweep.plot):
        check_plot(plot, ("plot", number), kind)
    check_claims(sweep.claims, kind)
    named = sweep.implementations or [i.name for i in kind.implementations if not i.on_request]
    ways = list(dict.fromkeys(product(named, sweep.cache, sweep.threads)))
    return _expanded(name, sweep, _blocks(sweep, kind, sm_count, len(ways)), ways)


def _kind(operator: str, find: Find) -> type[Problem]:
    try:
        return find(operator)
    except LookupError as error:
        raise Mistake(("operator",), str(error)) from error


def _blocks(sweep: Sweep, kind: type[Problem], sm_count: int, ways: int) -> list[Block]:
    """The blocks; their cases are counted before any exists, as a range can name more than memory holds."""
    blocks: list[Block] = []
    count = 0
    for number, parameters in enumerate(sweep.cases):
        blocks.append(block(parameters, ("cases", number), kind, sm_count))
        count += ways * blocks[-1].count
        if count > MAX_CASES:
            says = f"{count} cases up to here; a sweep has at most {MAX_CASES}"
            raise Mistake(("cases", number), says)
    return blocks


def _expanded(name: str, sweep: Sweep, blocks: list[Block], ways: list[Way]) -> list[Case]:
    x = sweep.plot[0].x if sweep.plot else None
    divided = any(claim.divides_time for claim in sweep.claims)
    cases = []
    seen: set[Problem] = set()
    for each in blocks:
        moving = each.moving_with(x)
        for problem in each.problems():
            if problem in seen:  # measured once
                continue
            seen.add(problem)
            fixed = " ".join(f"{k}={v}" for k, v in problem.parameters().items() if k not in moving)
            for implementation, cached, threads in ways:
                few = " one thread" if threads == "one" else ""
                way = implementation, problem, cached, f"{implementation} {cached}{few} {fixed}"
                cases.append(Case(name, *way, sweep.role, threads, divided))
    return cases
