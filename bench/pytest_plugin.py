"""The pytest plugin of `pytest bench/ --benchmark`: calls the runner from pytest's hooks, and shows its rows.

Importing it needs nothing but pytest: everything else is imported once the options are read.
"""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from bench.environment.dependencies import AFTERWARDS, missing, sentence
from bench.errors import BUG, UserError, unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cli.terminal import Live
    from bench.runner.examples import Examples
    from bench.runner.run import Run

ROOT = Path(__file__).parents[1]
CASES = ROOT / "bench" / "test_benchmark.py"
RUN: pytest.StashKey[Run] = pytest.StashKey()
EXAMPLES: pytest.StashKey[Examples] = pytest.StashKey()
UNSTARTED: pytest.StashKey[str] = pytest.StashKey()
"""Why no worker starts that could be asked for examples."""


OPTIONS: dict[str, dict[str, Any]] = {
    "suite": {"metavar": "NAME"},
    "sweep": {"metavar": "NAME", "dest": "bench_sweeps", "action": "append", "default": []},
    "case": {"metavar": "NAME", "dest": "bench_cases", "action": "append", "default": []},
    "device": {"metavar": "DEVICE", "default": "auto"},
    "budget": {"metavar": "SECONDS"},
    "precision": {"metavar": "SHARE"},
    "results": {"metavar": "DIR"},
    "resume": {"action": "store_true"},
}
"""Our options, without their prefix `--bench-`; destinations are the names of the run's Options."""
WITHOUT_MEASURING = {"device"}
"""The options that a check of results takes too."""
DEEP = "ROOFBENCH_DEEP"
"""Environment variable that is 1 where every implementation is to be checked at all of its examples."""
NOTHING_TIMED = 3
"""Exit code of a run in which no requested case got a time."""
HELP = {
    "suite": "tour (default): claims with large effects; core: all that judging the rules needs; full: all; "
    "or another of sweeps/suites.yaml. --bench-sweep, --bench-case and -k choose among all cases.",
    "sweep": "Only this sweep (gemm/square, square), folder of sweeps (gemm) or YAML file; repeatable.",
    "case": "Only the case of exactly this name, as every command prints it, and the ceilings that it needs; "
    "repeatable.",
    "device": "cpu, cuda or cuda:N; auto (default): the first GPU, else the CPU. A run is on one device.",
    "budget": "Wall time of the run; or inf. Default: the suite's; without one 120 on a CPU, 600 on a GPU.",
    "precision": "Half-width of an interval that is narrow enough; default 1%%. What the budget leaves after "
    "three visits to each case narrows wider ones.",
    "results": "Where to write results; default results/ of the checkout.",
    "resume": "Go on with this device's run that was interrupted last: only the rest is measured.",
}


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add --benchmark to pytest-benchmark's own options, and ours under their own prefix.

    UsageError for an option with our prefix that is none: pytest itself would suggest nothing.
    """
    measure = "Measure every case of sweeps/. Without it, bench/ only checks that results are right."
    parser.getgroup("benchmark").addoption("--benchmark", action="store_true", dest="bench_run", help=measure)
    group = parser.getgroup("roofbench")
    for name, settings in OPTIONS.items():
        group.addoption(f"--bench-{name}", help=HELP[name], **settings)
    ours = [f"--bench-{name}" for name in OPTIONS]
    config: Any = pluginmanager.get_plugin("pytestconfig")
    for word in map(str, config.invocation_params.args):
        given = word.partition("=")[0]
        if given.startswith("--bench-") and given not in ours:
            raise pytest.UsageError(unknown("option", given, "pytest", ours))


def refuse_strangers(root: Path) -> None:
    """Refuse to measure with a `bench`, `kernels` or `plots` from outside the checkout `root`."""
    if lacking := sentence(missing(without=AFTERWARDS)):
        _refuse(lacking)
    import bench
    import kernels
    import plots

    for package in (bench, kernels, plots):
        folder, ours = Path(str(package.__file__)).parent, root / package.__name__
        if folder != ours:
            _refuse(f"`import {package.__name__}` finds {folder}, not {ours} of this checkout")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what cannot work, read the sweeps, and set pytest-benchmark up for device times.

    Runs before pytest-benchmark's own pytest_configure, which reads these options once.
    """
    import kernels
    from bench.cli.terminal import lose_no_run_for_a_letter
    from bench.runner.options import Options, run_for
    from bench.runner.run import RESULTS

    lose_no_run_for_a_letter()
    given = config.option
    if refusal := _refusal(config):
        _refuse(refusal)
    names = [field.name for field in fields(Options) if field.name != "data"]  # which only `run` gives
    values = {name: getattr(given, f"bench_{name}") for name in names}
    values["suite"] = given.bench_suite or _usual_suite(config)
    options = Options(**values | {"results": Path(given.bench_results or RESULTS)})
    try:
        run = run_for(options, kernels.problem, timing=given.bench_run, opens=not given.collectonly)
    except UserError as error:
        _refuse(str(error))
    config.stash[RUN] = run
    if config.pluginmanager.hasplugin("benchmark") and config.rootpath == ROOT:
        _configure_pytest_benchmark(config, run.device.slug)


def _refusal(config: pytest.Config) -> str:
    """Why these options do not go together; empty if they do."""
    given = config.option
    if not given.bench_run:
        for name in sorted(OPTIONS.keys() - WITHOUT_MEASURING):
            destination = OPTIONS[name].get("dest", f"bench_{name}")
            if getattr(given, destination) not in (OPTIONS[name].get("default"), False):
                return f"--bench-{name} is for measuring: give --benchmark with it, or leave it out"
        return ""
    if not config.pluginmanager.hasplugin("benchmark"):
        return "--benchmark needs the plugin pytest-benchmark, which -p no:benchmark excludes"
    if getattr(given, "numprocesses", None) or os.environ.get("PYTEST_XDIST_WORKER"):
        return "--benchmark times one case after the other: leave out -n (pytest-xdist)"
    if not given.pyargs and not any(map(_collects_cases, config.args)):
        return "--benchmark measures the cases that bench/ collects: give `pytest bench/ --benchmark`"
    return ""


def _collects_cases(argument: str) -> bool:
    """Whether a path, as pytest was given it, is that of the cases or of a folder above."""
    path, cases = Path(argument.partition("::")[0]).resolve(), CASES.resolve()
    return cases == path or path in cases.parents


def _usual_suite(config: pytest.Config) -> str | None:
    """The tour, unless the command chooses among all cases by itself."""
    from bench.sweep.suites import TOUR

    given = config.option
    chooses = given.bench_sweeps or given.bench_cases or given.keyword or any("::" in a for a in config.args)
    return None if chooses else TOUR


def _refuse(sentence: str) -> NoReturn:
    """End pytest with one sentence and exit code 2, without a traceback."""
    pytest.exit(sentence, returncode=2)


def _configure_pytest_benchmark(config: pytest.Config, slug: str) -> None:
    option = config.option
    # What it does, and its tables of every case, are for those who give one of its options.
    if not any(str(word).startswith("--benchmark-") for word in config.invocation_params.args):
        option.benchmark_quiet = True
        option.benchmark_disable = not option.bench_run
    if option.benchmark_storage == "file://./.benchmarks":
        # pytest-benchmark's default folder mixes devices, and appears wherever the command is typed.
        option.benchmark_storage = f"file://{ROOT}/.benchmarks/{slug}"
    if option.benchmark_columns is None:
        option.benchmark_columns = ["median", "iqr", "min", "max", "rounds", "iterations"]


def examples(config: pytest.Config) -> Examples:
    """The operators' own examples on this run's device; the first call starts the worker."""
    import kernels
    from bench.runner.examples import Examples

    if EXAMPLES not in config.stash:
        run, operators = config.stash[RUN], kernels.names()
        try:
            run.libraries()
        except UserError as error:  # an exit while tests are collected would be an error of their file
            config.stash[UNSTARTED], operators = str(error), []
        config.stash[EXAMPLES] = Examples(run.worker, kernels.problem, operators)
    return config.stash[EXAMPLES]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items that this invocation is for: cases under --benchmark, else examples."""
    run = config.stash.get(RUN, None)
    if run is None:
        return
    by_test: dict[str, dict[str, Any]] = {"test_measure": {}, "test_correct": {}}
    others: list[Any] = []
    for item in items:
        if (name := getattr(item, "originalname", "")) in by_test:
            (parameter,) = item.callspec.params.values()  # type: ignore[attr-defined]
            by_test[name][parameter] = item
        else:
            others.append(item)
    cases, checks = by_test["test_measure"], by_test["test_correct"]
    # Cases that cannot run here get rows; thousands of skipped tests would slow a small run down.
    kept = [cases[name] for name in run.order(list(cases))] if config.option.bench_run else []
    if checks and not config.option.bench_run:
        names = list(checks)
        kept = [checks[n] for n in (names if is_deep() else examples(config).few(names))]
    there = {id(item) for item in kept}
    left_out = [item for item in (*cases.values(), *checks.values()) if id(item) not in there]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = [*others, *kept]


def is_deep() -> bool:
    """Whether all examples are checked, not only a few that stand for them."""
    return os.environ.get(DEEP) == "1"


def pytest_collection_finish(session: pytest.Session) -> None:
    """End pytest if no worker starts."""
    if unstarted := session.config.stash.get(UNSTARTED, ""):
        _refuse(unstarted)


def _measuring(config: pytest.Config) -> Run | None:
    """The run, if this invocation measures; None if it checks results, or only lists tests."""
    measures = config.option.bench_run and not config.option.collectonly
    return config.stash.get(RUN, None) if measures else None


def _terminal(config: pytest.Config) -> Live:
    from bench.cli.terminal import Live

    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return Live(lambda text: None, live=False)
    live = reporter.isatty and config.option.verbose <= 0
    return Live(lambda text: reporter.write(text, flush=True), live)


@pytest.fixture
def roofbench(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Measure a function of the test's file as a kernel: `roofbench(mine, "softmax", rows=64, length=64)`.

    It is checked like that of `python -m bench run --kernel`; the test fails if it is wrong, and is skipped
    if it is right and cannot be timed here. Its times stand in pytest-benchmark's table, and the columns of a
    row are returned, `median_s` among them.
    """

    def measure(kernel: Any, operator: str, *, cache: str = "cold", **given: Any) -> dict[str, Any]:
        from bench.cli.pytest_fixture import TIMER, measured, replay
        from bench.runner.custom_kernel import Untimed

        run = request.config.stash[RUN]
        try:
            facts = measured(run, kernel, operator, given, cache)
        except Untimed as reason:
            pytest.skip(str(reason))
        except UserError as error:
            facts = {"status": "refused", "reason": str(error)}
        if facts["status"] != "ok":
            pytest.fail(f"{facts['status']}: {facts['reason']}", pytrace=False)
        request.node.add_marker(pytest.mark.benchmark(timer=TIMER))
        benchmark: Any = request.getfixturevalue("benchmark")
        benchmark.extra_info.update(
            {name: facts.get(name) for name in ("configuration", "relative_error", "low_s", "high_s")}
        )
        replay(benchmark, facts["samples_s"], facts["launches"])
        return facts

    return measure


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Measure the cases that -k left before the tests show them: visits are spread over the whole run."""
    config = session.config
    if (run := _measuring(config)) is None or session.testsfailed:
        return
    from bench.cli.whole_run import show_run

    given = (item.callspec.params for item in session.items if hasattr(item, "callspec"))
    try:
        run.plan(params["case"] for params in given if "case" in params)
        show_run(run, _terminal(config), config.option.maxfail)
    except UserError as error:
        _refuse(str(error))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Close the run; a result file that cannot be written is exit code 2."""
    run = session.config.stash.get(RUN, None)
    if run is None:
        return
    interrupted = exitstatus == pytest.ExitCode.INTERRUPTED and session.config.option.bench_run
    if run.finish(interrupted).reason:
        session.exitstatus = 2
    elif _measuring(session.config) and exitstatus == pytest.ExitCode.OK:
        if run.requested and not run.has_a_time:
            session.exitstatus = NOTHING_TIMED


@pytest.hookimpl(trylast=True)
def pytest_internalerror() -> None:
    """Ask that a bug, whose traceback pytest shows, be reported."""
    print(f"\n{BUG}", file=sys.stderr)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print our table and the closing lines."""
    if (run := _measuring(config)) is None:
        return
    from bench.cli.closing import closing_lines

    terminalreporter.section("roofbench")
    terminal = _terminal(config)
    for line in closing_lines(run):
        terminal.line(line)


# ---- the machine facts that pytest-benchmark stores

VOLATILE = ("hz_actual", "hz_actual_friendly", "hz_advertised", "hz_advertised_friendly")
"""Facts that differ from run to run on one machine, of which pytest-benchmark would warn every time."""


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add the device that was timed; leave out what changes from run to run."""
    for name in VOLATILE:
        machine_info.get("cpu", {}).pop(name, None)
    if (run := config.stash.get(RUN, None)) is not None:
        machine_info["device"] = {"slug": run.device.slug, "name": run.device.name, "id": run.device.id}
