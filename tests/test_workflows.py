"""The workflows of .github: linted by other people's linters, and held against rules of our own.

`zizmor` looks for what an attacker could use, `check-jsonschema` for what GitHub would not understand; both
work offline. What the scripts do: test_workflow_scripts.py.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.contract.__main__ import ENVIRONMENTS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
CI, NIGHTLY, GATE, PAGES = (FOLDER / f"{name}.yml" for name in ("ci", "nightly", "gate", "pages"))
EACH = pytest.mark.parametrize("path", [CI, NIGHTLY, GATE, PAGES], ids=lambda path: path.stem)


def linted(tool: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A linter of this environment."""
    command = [str(Path(sys.executable).with_name(tool)), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def zizmor(path: Path) -> subprocess.CompletedProcess[str]:
    return linted("zizmor", "--offline", "--persona=pedantic", "--strict-collection", str(path))


def schema(path: Path) -> subprocess.CompletedProcess[str]:
    return linted("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(path))


def jobs(text: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)["jobs"]
    return found


def scripts(text: str) -> dict[tuple[str, str], str]:
    """(job, step) -> its script."""
    return {
        (name, step.get("name", "")): step["run"]
        for name, job in jobs(text).items()
        for step in job["steps"]
        if "run" in step
    }


def faults(name: str, text: str) -> list[str]:
    """What breaks a rule of ours in a workflow, a word or two each; zizmor has pins, permissions, triggers
    and expressions in scripts.
    """
    workflow = yaml.safe_load(text)
    found = []
    writing = {job for job, one in workflow["jobs"].items() if "write" in str(one.get("permissions", ""))}
    if writing - {"publish"}:
        found.append("may write")
    if any("self-hosted" in str(workflow["jobs"][job]["runs-on"]) for job in writing):
        found.append("writes from a self-hosted runner")
    if not all("timeout-minutes" in job for job in workflow["jobs"].values()):
        found.append("timeout")
    checkouts = [s for j in workflow["jobs"].values() for s in j["steps"] if "checkout" in s.get("uses", "")]
    if any(step["with"].get("persist-credentials") is not False for step in checkouts):
        found.append("credentials")
    for job, one in workflow["jobs"].items():
        group = one.get("concurrency", {})
        label = "matrix.runner" if name == "nightly" else "inputs.runner"
        if re.search(r"self-hosted|inputs\.", str(one["runs-on"])) and (
            f"gpu-${{{{ {label} }}}}" != group.get("group") or group.get("cancel-in-progress") is not False
        ):
            found.append(f"{job}: two runs on one device")
    return found


@EACH
def test_linters_find_nothing(path: Path) -> None:
    for done in (zizmor(path), schema(path)):
        assert done.returncode == 0, done.stdout + done.stderr
    assert "ignore" not in path.read_text().replace("git ignores", "")  # nor are they told to look away


@EACH
def test_our_rules_are_kept(path: Path) -> None:
    assert faults(path.stem, path.read_text()) == []


def options(package: str, name: str) -> set[str]:
    """Every option that a command takes."""
    command: Any = typer.main.get_command(importlib.import_module(f"{package}.__main__").app)
    return {word for option in command.commands[name].params for word in option.opts}


@pytest.mark.parametrize(
    ("path", "package", "name", "step", "some"),
    [
        (NIGHTLY, "bench", "nightly", "Measure and judge", {"--baseline", "--summary", "--bench-resume"}),
        (NIGHTLY, "plots", "report", "Page of the nights", {"-o"}),
        (GATE, "bench", "ab", "Compare", {"--ref", "--changed", "--bench-budget"}),
    ],
)
def test_commands_take_the_options_they_are_given(
    path: Path, package: str, name: str, step: str, some: set[str]
) -> None:
    job = "measure" if path == NIGHTLY else "compare"
    script = scripts(path.read_text())[job, step]
    assert f"python -m {package} {name} " in script
    given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", script)) | set(re.findall(r" (-o) ", script))
    assert some <= given <= options(package, name)


def test_the_contract_is_checked_in_each_of_its_environments() -> None:
    job = jobs(CI.read_text())["contract"]
    assert job["strategy"]["matrix"]["environment"] == [one.name for one in ENVIRONMENTS]
    (step,) = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert {step["with"]["python-version"]} == {one.python for one in ENVIRONMENTS}
    assert scripts(CI.read_text())["contract", "Contract"] == 'make contract ENVIRONMENTS="$ENVIRONMENT"'
    # The index of CPU builds would be found here too, and is the wrong one.
    assert "env" not in job


def test_a_night_begins_only_where_it_was_asked_for_and_is_kept_only_if_whole() -> None:
    found = jobs(NIGHTLY.read_text())
    asked = "github.event_name == 'workflow_dispatch' || vars.ROOFBENCH_NIGHTLY == 'true'"
    assert found["history"]["if"] == asked
    assert found["measure"]["needs"] == "history" and found["publish"]["needs"] == "measure"
    kept = "!cancelled() && needs.measure.result != 'skipped' && inputs.sweeps == ''"
    assert found["publish"]["if"] == f"${{{{ {kept} }}}}"
    # What git ignores is the environment, the configurations chosen, and the journal to resume from.
    (checkout,) = [step for step in found["measure"]["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["clean"] is False


def test_the_gate_sees_where_a_branch_began_and_is_documented_as_it_is_called() -> None:
    (checkout, *_) = jobs(GATE.read_text())["compare"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    lines = re.findall(r"^#   (.*)$", GATE.read_text(), re.MULTILINE)
    caller = yaml.safe_load("\n".join(lines))
    inputs = yaml.safe_load(GATE.read_text())[True]["workflow_call"]["inputs"]
    call = caller["jobs"]["gate"]
    assert call["uses"] == "./.github/workflows/gate.yml" and call["with"].keys() <= inputs.keys()
    kept = jobs(GATE.read_text())["compare"]["steps"][-1]["with"]["name"]
    (download, _) = caller["jobs"]["comment"]["steps"]
    assert download["with"]["name"] == kept.replace("${{ inputs.runner }}", call["with"]["runner"])


def test_the_site_is_published_where_it_was_asked_for_after_the_public_times() -> None:
    found = jobs(PAGES.read_text())
    asked = "github.event_name == 'workflow_dispatch' || vars.ROOFBENCH_PAGES == 'true'"
    assert found["build"]["if"] == asked and found["publish"]["needs"] == "build"
    targets = [script.removeprefix("make ") for script in scripts(PAGES.read_text()).values()]
    assert targets == ["public", "site"]
    made = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0 and "plots site -o site" in made.stdout, made.stderr


def test_every_variable_is_documented() -> None:
    named = set(re.findall(r"\b(?:vars|secrets)\.(\w+)", NIGHTLY.read_text()))
    assert "ROOFBENCH_RUNNERS" in named
    assert named <= set(re.findall(r"`(\w+)`", (ROOT / "docs" / "nightly.md").read_text()))
