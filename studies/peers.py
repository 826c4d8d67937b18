"""The same ten warm launches by our runs and by other harnesses: `python -m studies peers FOLDER`.

GEMM, softmax and ReLU in float32, built by the same code for all. Each tool in turn has a process of its own
and the same wall seconds in it, imports included; one round after the other, each begun by the next tool, so
that all see the same hours. Other tools share their seconds evenly among the cases; ours is a run as anybody
makes it, with its ceilings, and decides itself. It may end sooner, as may `adaptive_autorange`.

Repeatability is how far the medians of two rounds are apart, over all cases and pairs of rounds. An interval
is right if it holds the medians of the other rounds (ours alone publishes one). That within the run is made
without the last visit to each case, which it should hold.

FOLDER keeps each turn (turns.jsonl): what was interrupted goes on with the next. nvbench and the clocks of
Triton are for GPUs, and untried.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import kernels
from bench.device.detect import Device
from bench.environment.dependencies import ROOT
from bench.errors import UserError
from bench.judge.within_run import within_run
from bench.runner.merge_visits import SEED
from bench.runner.worker_process import device_environment
from bench.sampling.publish import median_of
from bench.spec import parameters_text
from bench.store.parquet import read_rows
from bench.store.schema import Measurement
from bench.sweep.load import load_all

SWEEPS: Mapping[str, Mapping[str, Any]] = {
    "gemm": {"layout": "NN", "m=n=k": [128, 256, 512, 1024]},
    "softmax": {"direction": "forward", "rows": [256, 1024], "length": [1024, 4096]},
    "activations": {"direction": "forward", "function": "relu", "n": [1 << 18, 1 << 20]},
}
LEAST_S = 6.0
"""Seconds of a turn, of which importing torch takes two or three."""
COLUMNS = (
    *("tool", "seconds", "cases", "two rounds apart: median", "nine of ten"),
    *("published: half-width", "holds another round", "within the run: half-width", "holds the next visit"),
)
OURS, OTHERS = "ours", ("adaptive_autorange", "blocked_autorange", "pytest-benchmark")
ON_GPU = ("do_bench", "do_bench_cudagraph")

Told = Mapping[str, float | bool | None]
"""What a tool says of a case: `median_s`, and ours `low_s` ... `run_high_s` and `next_visit`."""


class Turn(NamedTuple):
    """What a tool said of all cases in one round."""

    device: str
    seconds: float
    """Those that it was given."""
    number: int
    tool: str
    took_s: float
    cases: Mapping[str, Told]


def tools(device: Device) -> list[str]:
    """Those that there are for this device."""
    if device.kind == "cpu":
        return [OURS, *OTHERS]
    return [OURS, *OTHERS, *ON_GPU, *(["nvbench"] if _nvbench() else [])]


def _nvbench() -> str:
    """The module of nvbench that is installed; empty if none is."""
    for name in ("cuda.bench", "cuda.nvbench"):
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(name):
                return name
    return ""


def turns(folder: Path, device: Device, seconds: float, rounds: int) -> Iterator[Turn]:
    """Every turn of these rounds, those first that the folder holds. UserError if they were others."""
    if rounds < 2 or seconds < LEAST_S:
        raise UserError(
            f"{rounds} rounds of {seconds:.3g} s a tool: give 2 rounds and {LEAST_S:g} s at least"
        )
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "turns.jsonl"
    done = [Turn(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    if any((turn.device, turn.seconds) != (str(device), seconds) for turn in done):
        raise UserError(
            f"{kept}: turns of {done[0].device}, {done[0].seconds:.3g} s each; give another folder"
        )
    sweeps, of_device = _written(folder, device.kind), tools(device)
    known = {(turn.number, turn.tool): turn for turn in done}
    for number in range(rounds):
        first = number % len(of_device)
        for tool in of_device[first:] + of_device[:first]:
            if (number, tool) not in known:
                began = time.time()
                cases = (
                    _ours(folder, sweeps, device, seconds, number)
                    if tool == OURS
                    else (_theirs(tool, sweeps, device, began + seconds))
                )
                known[number, tool] = Turn(str(device), seconds, number, tool, time.time() - began, cases)
                with kept.open("a") as file:
                    file.write(json.dumps(known[number, tool]._asdict()) + "\n")
            yield known[number, tool]


def _written(folder: Path, kind: str) -> list[Path]:
    paths, gemm = [], "onednn" if kind == "cpu" else "cublas"
    for operator, case in SWEEPS.items():
        used = gemm if operator == "gemm" else "aten"
        facts = {"title": operator, "operator": operator, "implementations": used, "cache": "warm"}
        facts["source"] = {"document": "none: studies/peers.py", "range": "ours"}
        path = folder / f"{operator}.yaml"
        path.write_text(json.dumps({**facts, "cases": [{"dtype": "float32", **case}]}))  # which is YAML, too
        paths.append(path)
    return paths


def _name(operator: str, parameters: str) -> str:
    return f"{operator} {parameters}"


def _finished(
    words: Sequence[str], environment: Mapping[str, str] | None = None, fine: Sequence[int] = (0,)
) -> str:
    """What this Python prints; UserError if it ends otherwise than with a code that is fine."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in fine:
        raise UserError(f"{' '.join(words)}: {[*done.stderr.splitlines(), *done.stdout.splitlines()][-1:]}")
    return done.stdout


# ---- ours


def _ours(
    folder: Path, sweeps: Sequence[Path], device: Device, seconds: float, number: int
) -> dict[str, Told]:
    results = folder / f"round-{number}"
    chosen = (f"--bench-sweep={path.absolute()}" for path in sweeps)
    where = "cpu" if device.index is None else f"cuda:{device.index}"
    settings = (
        f"--bench-budget={seconds}",
        f"--bench-device={where}",
        f"--bench-results={results.absolute()}",
    )
    words = ("-m", "pytest", "bench/", "--benchmark", "-q", "-p", "no:cacheprovider", *chosen, *settings)
    _finished(words, fine=(0, 3))  # 3: there was time for no case
    rows = [row for path in results.rglob("*.parquet") for row in read_rows(path)]
    without_last = within_run([_without_last(row) for row in rows])
    told: dict[str, Told] = {}
    for row, within in zip(rows, without_last, strict=True):
        if row.role == "measurement" and row.is_timed:
            names = ("median_s", "low_s", "high_s", "run_low_s", "run_high_s")
            facts: dict[str, float | bool | None] = {name: getattr(row, name) for name in names}
            if within is not None and within.by == "visits" and len(row.visit_samples_s) > 1:
                *others, last = row.visit_samples_s
                off = math.log(median_of(last) / median_of(np.concatenate(others)))
                facts["next_visit"] = abs(off) <= within.visit
            told[_name(row.operator, row.parameters)] = facts
    return told


def _without_last(row: Measurement) -> Measurement:
    """The row as if its last visit had not been made."""
    *others, last = row.visit_samples_s or [[]]
    unpublished = replace(row, run_low_s=None, run_high_s=None, run_half=None, run_by=None)
    if not others or row.visit_at_s is None:
        return unpublished
    samples_s = list(row.samples_s or [])[: -len(last)]
    counts, at_s = [len(each) for each in others], row.visit_at_s[: len(others)]
    facts: dict[str, Any] = {"samples_s": samples_s, "visit_samples": counts, "visit_at_s": at_s}
    return replace(unpublished, median_s=median_of(samples_s), **facts)


# ---- theirs, in the process that has torch


def _theirs(tool: str, sweeps: Sequence[Path], device: Device, until: float) -> dict[str, Told]:
    asked = {"tool": tool, "sweeps": [str(path.absolute()) for path in sweeps], "until": until}
    asked |= {"kind": device.kind, "capability": device.capability, "sm_count": device.sm_count}
    asked |= {"cache_byte": device.cache_byte, "uuid": device.uuid or None}
    program = ("-c", "from studies.peers import answer; answer()", json.dumps(asked))
    printed = _finished(program, device_environment(device.kind, device.uuid or None))
    return {name: {"median_s": median_s} for name, median_s in json.loads(printed.splitlines()[-1]).items()}


def answer() -> None:
    """Print the median seconds of each case, by the tool that the command line names."""
    import torch

    from bench.worker.__main__ import make_bench
    from bench.worker.buffer_ring import BufferRing

    asked = json.loads(sys.argv[1])
    on_gpu = asked["kind"] == "cuda"
    if not on_gpu:
        torch.set_num_threads(asked["sm_count"])
    capability = tuple(asked["capability"]) if asked["capability"] else None
    loaded = load_all(map(Path, asked["sweeps"]), kernels.problem, asked["sm_count"])
    bench = make_bench(asked["kind"], asked["cache_byte"], SEED, asked["uuid"])
    calls = {}
    with torch.no_grad():
        for case in (case for sweep in loaded for case in sweep.cases):
            if not case.missing(asked["kind"], capability):
                slots = BufferRing(
                    bench, kernels.operator(case.problem.operator), case.implementation, case.problem, 1
                )
                slots.warm_launch_s()
                parameters = parameters_text(case.problem.parameters())
                calls[_name(case.problem.operator, parameters)] = slots.calls[0]
        if asked["tool"] in ("pytest-benchmark", "nvbench"):
            of_all = _by_pytest_benchmark if asked["tool"] == "pytest-benchmark" else _by_nvbench
            told = of_all(calls, (asked["until"] - time.time()) / len(calls), bench.synchronize)
        else:
            told = {}
            for left, (name, call) in zip(range(len(calls), 0, -1), calls.items(), strict=True):
                told[name] = _seconds(asked["tool"], call, max(0.1, (asked["until"] - time.time()) / left))
    print(json.dumps(told))


def _seconds(tool: str, call: Callable[[], Any], most_s: float) -> float:
    """Median seconds of a call by torch's or Triton's timer, which may take so many."""
    import torch
    from torch.utils import benchmark

    if tool in ON_GPU:
        from triton import testing

        return 1e-3 * float(getattr(testing, tool)(call, rep=1e3 * most_s, return_mode="median"))
    timer = benchmark.Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    if tool == "adaptive_autorange":
        return float(timer.adaptive_autorange(max_run_time=most_s).median)
    return float(timer.blocked_autorange(min_run_time=most_s).median)


CALLS: dict[str, Callable[[], Any]] = {}
"""What the test of pytest-benchmark calls, which imports this."""
TEST = """
import pytest
from studies.peers import CALLS

@pytest.mark.parametrize("name", CALLS)
def test_case(benchmark, name):
    benchmark(CALLS[name])
"""


def _by_pytest_benchmark(
    calls: Mapping[str, Callable[[], Any]], each_s: float, synchronize: Callable[[], None]
) -> dict[str, float]:
    """Median seconds by pytest-benchmark as it is installed, of so many seconds a case."""
    import pytest

    CALLS.update({name: lambda call=call: (call(), synchronize()) for name, call in calls.items()})
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(sys.stderr):
        test, out = Path(name) / "test_peers.py", Path(name) / "out.json"
        test.write_text(TEST)
        (Path(name) / "pytest.ini").write_text("[pytest]\n")  # no settings and no plugin of this checkout
        words = ("-q", "-p", "no:cacheprovider", f"--benchmark-max-time={each_s}", f"--benchmark-json={out}")
        pytest.main([str(test), f"--rootdir={name}", *words])
        found = json.loads(out.read_text())["benchmarks"]
    return {each["params"]["name"]: each["stats"]["median"] for each in found}


def _by_nvbench(
    calls: Mapping[str, Callable[[], Any]], each_s: float, synchronize: Callable[[], None]
) -> dict[str, float]:
    """Mean seconds by nvbench, which tells no median; untried."""
    import torch

    nvbench = importlib.import_module(_nvbench())

    def timed(state: Any) -> None:
        call = calls[state.get_string("case")]

        def launch(of: Any) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(of.get_stream().addressof())):
                call()

        state.exec(launch)

    nvbench.register(timed).add_string_axis("case", list(calls))
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(sys.stderr):
        out = Path(name) / "out.json"
        nvbench.run_all_benchmarks(["peers", "--json", str(out), "--timeout", str(each_s)])
        (found,) = json.loads(out.read_text())["benchmarks"]
    told = {}
    for state in found["states"]:
        (case,) = (axis["value"] for axis in state["axis_values"] if axis["name"] == "case")
        data = next(each["data"] for each in state["summaries"] if each["tag"] == "nv/cold/time/gpu/mean")
        told[case] = float(next(each["value"] for each in data if each["name"] == "value"))
    return told


# ---- the table


def peers_lines(every: Iterable[Turn]) -> Iterator[str]:
    """The table, in Markdown, tool by tool."""
    told = pd.DataFrame(
        {"tool": turn.tool, "number": turn.number, "took_s": turn.took_s, "case": case, **facts}
        for turn in every
        for case, facts in turn.cases.items()
    )
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|---|{'---:|' * (len(COLUMNS) - 1)}"
    for tool, of in told.groupby("tool", sort=False):
        yield f"| {' | '.join((str(tool), *_cells(of)))} |"


def _cells(of: pd.DataFrame) -> Iterator[str]:
    """The cells of a tool, by what it said of each case in each round."""
    pairs = of.merge(of, on="case", suffixes=("", "_other"))
    pairs = pairs[pairs["number"] != pairs["number_other"]]
    apart = np.abs(np.log(pairs["median_s"] / pairs["median_s_other"]))
    yield f"{of.groupby('number')['took_s'].first().median():.0f}"
    yield str(of["case"].nunique())
    yield from (f"{100 * np.expm1(apart.quantile(share)):.1f} %" for share in (0.5, 0.9))
    if "low_s" not in of or of["low_s"].isna().all():
        yield from "----"
        return
    low_s, high_s, other_s = pairs["low_s"], pairs["high_s"], pairs["median_s_other"]
    for low, high, held in (
        ("low_s", "high_s", ((low_s <= other_s) & (other_s <= high_s))[low_s.notna()]),
        ("run_low_s", "run_high_s", of["next_visit"].dropna() if "next_visit" in of else pd.Series()),
    ):
        yield f"{100 * np.expm1(np.log(of[high] / of[low]).median() / 2):.1f} %"
        yield f"{100 * held.mean():.0f} % of {len(held)}" if len(held) else "-"
