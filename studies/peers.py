"""The same ten warm launches by our runs and by other harnesses: `python -m studies peers FILE`.

GEMM, softmax and ReLU in float32, built by the same code for all. Each tool in turn has a process of its own
and the same wall seconds in it, imports included; one round after the other, each begun by the next tool, so
that all see the same hours. Other tools share their seconds evenly among the cases; ours is a run as anybody
makes it, with its ceilings, and decides itself. It may end sooner, as may `adaptive_autorange`.

Repeatability is how far the medians of two rounds are apart, over all cases and pairs of rounds. An interval
is right if it holds the medians of the other rounds (ours alone publishes one). That within the run is made
without the last visit to each case, which it should hold. What our runs call not measurable has no time.

FILE keeps what was told in each turn: what was interrupted goes on with the next. The clocks of Triton and
nvbench are for GPUs, and untried.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

import kernels
from bench.case_name import row_name
from bench.cli.application import remark
from bench.device.detect import Device
from bench.environment.dependencies import ROOT
from bench.errors import UserError
from bench.judge.flags import measurable
from bench.judge.within_run import within_run
from bench.runner.merge_visits import SEED
from bench.runner.worker_process import device_environment
from bench.sampling.publish import median_of
from bench.store.parquet import read_rows
from bench.store.schema import Measurement
from bench.sweep.load import load_all

SWEEPS: Mapping[str, Mapping[str, Any]] = {
    "gemm": {"layout": "NN", "m=n=k": [128, 256, 512, 1024]},
    "softmax": {"direction": "forward", "rows": [256, 1024], "length": [1024, 4096]},
    "activations": {"direction": "forward", "function": "relu", "n": [1 << 18, 1 << 20]},
}
COLUMNS = (
    *("tool", "seconds", "cases", "two rounds apart: median", "nine of ten"),
    *("published: half-width", "holds another round", "within the run: half-width", "holds the next visit"),
)
LEAST_S = 6.0
"""Seconds of a turn, of which importing torch takes two or three."""
OURS, OTHERS = "ours", ("adaptive_autorange", "blocked_autorange", "pytest-benchmark")
ON_GPU = ("do_bench", "do_bench_cudagraph", "nvbench")
Calls = Mapping[str, Callable[[], Any]]
"""Name of a case -> its launch."""


def turns(kept: Path, device: Device, seconds: float, rounds: int) -> pd.DataFrame:
    """What every tool says of each case in each round, a row each. UserError if the file holds other turns.

    Columns: device, seconds (that a turn was given), round, tool, took_s, case, median_s; of ours also the
    ends of both intervals and next_visit, whether that within the run holds the next visit.
    """
    if rounds < 2 or seconds < LEAST_S:
        raise UserError(
            f"{rounds} rounds of {seconds:.3g} s a tool: give 2 rounds and {LEAST_S:g} s at least"
        )
    told = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for one in told:
        if (one["device"], one["seconds"]) != (str(device), seconds):
            raise UserError(f"{kept}: turns of {one['seconds']:g} s on {one['device']}; give another file")
    done = {(one["round"], one["tool"]) for one in told}
    tools = [OURS, *OTHERS, *(ON_GPU if device.kind == "cuda" else ())]
    for number, place in itertools.product(range(rounds), range(len(tools))):
        tool = tools[(number + place) % len(tools)]
        if (number, tool) not in done:
            began = time.time()
            cases = turn(tool, device, began + seconds)
            facts = {"device": str(device), "seconds": seconds, "round": number, "tool": tool}
            facts["took_s"] = time.time() - began
            told += (lines := [facts | one for one in cases or [{"case": None}]])
            with kept.open("a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
            remark(f"round {number + 1} of {rounds}: {tool}, {facts['took_s']:.0f} s")
    return pd.DataFrame(told)


def turn(tool: str, device: Device, until: float) -> list[dict[str, Any]]:
    """`case`, `median_s` and more of each case, by this tool in a process that should end by then."""
    with TemporaryDirectory() as name:
        sweeps = [Path(name) / f"{operator}.yaml" for operator in SWEEPS]
        for path, (operator, case) in zip(sweeps, SWEEPS.items(), strict=True):
            library = "aten" if operator != "gemm" else "onednn" if device.kind == "cpu" else "cublas"
            facts = {"operator": operator, "title": operator, "source": {"document": "none", "range": "ours"}}
            facts |= {"implementations": library, "cache": "warm", "cases": [{"dtype": "float32", **case}]}
            path.write_text(json.dumps(facts))  # which is YAML, too
        if tool == OURS:
            return _ours(sweeps, device, until - time.time(), Path(name))
        loaded = load_all(sweeps, kernels.problem, device.sm_count)
    asked: dict[str, Any] = {"tool": tool, "until": until, "kind": device.kind, "uuid": device.uuid or None}
    asked |= {"threads": device.sm_count, "cache_byte": device.cache_byte}
    asked["cases"] = [
        (case.name, case.problem.operator, case.implementation, case.problem.parameters())
        for sweep in loaded
        for case in sweep.cases
    ]
    program = ("-c", "from studies.peers import answer; answer()", json.dumps(asked))
    printed = _printed(program, device_environment(device.kind, device.uuid or None))
    said = json.loads(printed.splitlines()[-1])
    return [{"case": case, "median_s": median_s} for case, median_s in said.items()]


def _printed(words: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What this Python prints; UserError if it fails, unless because there was time for no case (3)."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        last = (done.stderr.splitlines() or done.stdout.splitlines() or [""])[-1]
        raise UserError(f"{' '.join(words[:3])} ...: {last}")
    return done.stdout


# ---- ours


def _ours(sweeps: Sequence[Path], device: Device, seconds: float, results: Path) -> list[dict[str, Any]]:
    where = "cpu" if device.index is None else f"cuda:{device.index}"
    settings = (f"--bench-budget={seconds}", f"--bench-device={where}", f"--bench-results={results}")
    chosen = (f"--bench-sweep={path}" for path in sweeps)
    _printed(["-m", "pytest", "bench/", "--benchmark", "-p", "no:cacheprovider", *chosen, *settings])
    read = (measurable(row) for path in results.rglob("*.parquet") for row in read_rows(path))
    rows = [row for row in read if row.is_timed]
    told = []
    for row, within in zip(rows, within_run([without(row, -1) for row in rows]), strict=True):
        if row.role == "measurement":
            names = ("median_s", "low_s", "high_s", "run_low_s", "run_high_s")
            told.append({"case": row_name(row), **{name: getattr(row, name) for name in names}})
            *others, last = row.visit_samples_s
            if others and within is not None and within.by == "visits":
                off = math.log(median_of(last) / median_of(np.concatenate(others)))
                told[-1]["next_visit"] = abs(off) <= within.visit
    return told


def without(row: Measurement, left_out: int) -> Measurement:
    """The row as if one of its visits had not been made, and nothing been published."""
    kept = list(range(len(row.visit_samples_s)))
    del kept[left_out]
    facts: dict[str, Any] = dict.fromkeys(("run_low_s", "run_high_s", "run_half", "run_by"))
    if kept:
        others = [row.visit_samples_s[place] for place in kept]
        facts["samples_s"] = [sample for each in others for sample in each]
        facts |= {"visit_samples": [len(each) for each in others], "median_s": median_of(facts["samples_s"])}
        if row.visit_at_s and len(row.visit_at_s) == len(kept) + 1:
            facts["visit_at_s"] = [row.visit_at_s[place] for place in kept]
    return replace(row, **facts)


# ---- theirs, in the process that has torch


def answer() -> None:
    """Print the median seconds of each case by the tool that the command line names."""
    import torch

    from bench.worker.__main__ import make_bench
    from bench.worker.buffer_ring import BufferRing

    asked = json.loads(sys.argv[1])
    if asked["kind"] == "cpu":
        torch.set_num_threads(asked["threads"])
    bench = make_bench(asked["kind"], asked["cache_byte"], SEED, asked["uuid"])
    told, calls = {}, {}
    with torch.no_grad():
        for case, operator, implementation, parameters in asked["cases"]:
            problem = kernels.problem(operator)(**parameters)
            slots = BufferRing(bench, kernels.operator(operator), implementation, problem, 1)
            slots.warm_launch_s()
            calls[case] = slots.calls[0]
        if of_all := {"pytest-benchmark": _by_pytest_benchmark, "nvbench": _by_nvbench}.get(asked["tool"]):
            told = of_all(calls, (asked["until"] - time.time()) / len(calls), bench.synchronize)
        else:
            for left, (case, call) in zip(range(len(calls), 0, -1), calls.items(), strict=True):
                told[case] = _seconds(asked["tool"], call, max(0.1, (asked["until"] - time.time()) / left))
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


def _by_pytest_benchmark(calls: Calls, each_s: float, synchronize: Callable[[], None]) -> dict[str, float]:
    """Median seconds by pytest-benchmark as it is installed, of so many seconds a case."""
    import pytest

    CALLS.update({name: lambda call=call: (call(), synchronize()) for name, call in calls.items()})
    with TemporaryDirectory() as name, redirect_stdout(sys.stderr):
        test, out = Path(name) / "test_peers.py", Path(name) / "out.json"
        test.write_text(TEST)
        (Path(name) / "pytest.ini").write_text("[pytest]\n")  # no settings and no plugin of this checkout
        words = ("-p", "no:cacheprovider", f"--benchmark-max-time={each_s}", f"--benchmark-json={out}")
        pytest.main([str(test), f"--rootdir={name}", *words])
        found = json.loads(out.read_text())["benchmarks"]
    return {each["params"]["name"]: each["stats"]["median"] for each in found}


def _by_nvbench(calls: Calls, each_s: float, synchronize: Callable[[], None]) -> dict[str, float]:
    """Mean seconds by nvbench, which tells no median; of no case where it is not installed."""
    import torch

    try:
        nvbench = importlib.import_module("cuda.bench")
    except ModuleNotFoundError:
        return {}

    def timed(state: Any) -> None:
        def launch(of: Any) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(of.get_stream().addressof())):
                calls[state.get_string("case")]()

        state.exec(launch)

    nvbench.register(timed).add_string_axis("case", list(calls))
    with TemporaryDirectory() as name, redirect_stdout(sys.stderr):
        out = Path(name) / "out.json"
        nvbench.run_all_benchmarks(["peers", "--json", str(out), "--timeout", str(each_s)])
        (found,) = json.loads(out.read_text())["benchmarks"]
    told = {}
    for state in found["states"]:
        summaries = {each["tag"]: each["data"][0]["value"] for each in state["summaries"] if each["data"]}
        told[state["axis_values"][0]["value"]] = float(summaries["nv/cold/time/gpu/mean"])
    return told


# ---- the table


def peers_lines(told: pd.DataFrame) -> Iterator[str]:
    """The table of `turns`, in Markdown, tool by tool."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|---|{'---:|' * (len(COLUMNS) - 1)}"
    for tool, of in told.groupby("tool", sort=False):
        yield f"| {' | '.join((str(tool), *_cells(of)))} |"


def _cells(of: pd.DataFrame) -> Iterator[str]:
    """The cells of a tool, by what it said of each case in each round."""
    yield f"{of.groupby('round')['took_s'].first().median():.0f}"
    of = of.dropna(subset=["case"])
    yield str(of["case"].nunique())
    pairs = of.merge(of, on="case", suffixes=("", "_other"))
    pairs = pairs[pairs["round"] != pairs["round_other"]]
    apart = np.abs(np.log(pairs["median_s"] / pairs["median_s_other"]))
    shares = [f"{100 * np.expm1(apart.quantile(share)):.1f} %" for share in (0.5, 0.9)]
    yield from shares if len(apart) else "--"
    if "low_s" not in of or of["low_s"].isna().all():
        yield from "----"
        return
    known = pairs.dropna(subset=["low_s"])
    holds = (known["low_s"] <= known["median_s_other"]) & (known["median_s_other"] <= known["high_s"])
    next_visit = of["next_visit"].dropna() if "next_visit" in of else holds[:0]
    for low, high, held in (("low_s", "high_s", holds), ("run_low_s", "run_high_s", next_visit)):
        yield f"{100 * np.expm1(np.log(of[high] / of[low]).median() / 2):.1f} %"
        yield f"{100 * held.mean():.0f} % of {len(held)}" if len(held) else "-"
