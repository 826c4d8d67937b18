"""What the launchers in fleet/ ask for. Slurm, kubectl and Python are stand-ins that note their arguments.

Of the Ray driver the parts that need no Ray, which is replaced by what it takes to import the driver.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "fleet"
SCRIPTS = sorted([*FLEET.glob("*.sh"), *FLEET.glob("*.sbatch")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script: Path) -> None:
    checker = ["shellcheck"] if shutil.which("shellcheck") else ["bash", "-n"]
    done = subprocess.run([*checker, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.access(script, os.X_OK) or script.suffix == ".sbatch"


class Machine:
    """A folder with stand-ins for programs, and what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"
        self.programs, self.asked = folder / "programs", folder / "asked"
        self.programs.mkdir()

    def program(self, name: str, script: str = "") -> Path:
        """A program that notes its arguments, then runs `script`."""
        path = self.programs / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >> "{self.asked}"\n{script}\n')
        path.chmod(0o755)
        return path

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "NODE_NAME", "PYTHON"))}
        return {**kept, "PATH": f"{self.programs}:{os.environ['PATH']}", **variables}

    def run(self, *words: object, status: int = 0, **variables: str) -> None:
        """Run a launcher, which ends with this exit code."""
        done = subprocess.run(
            list(map(str, words)),
            env=self.environment(**variables),
            cwd=ROOT,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == status, done.stderr

    def lines(self) -> list[str]:
        return self.asked.read_text().splitlines()

    def python(self, units: int, measuring: str = ":") -> str:
        """A Python that sees so many units and, asked to measure, runs `measuring`."""
        names = " ".join(f"cuda:{index}" for index in range(units))
        facts = f'echo "measured $ROOFBENCH_TAGS of ${{ROOFBENCH_CONCURRENT_GPUS:-1}}: $*" >> "{self.asked}"'
        text = f'case "$*" in -c*) echo {names} ;; *-m\\ pytest*) {facts}; {measuring} ;; esac'
        return str(self.program("python", text))

    def measured(self) -> list[str]:
        """Tags, GPUs at the same time, device and further options of each measurement."""
        runs = [line.removeprefix("measured ") for line in self.lines() if line.startswith("measured ")]
        common = f"-m pytest bench/ -p no:cacheprovider --benchmark --bench-results {self.results}/"
        assert all(common in run for run in runs)
        return [run.replace(f" {common}n7 --bench-device", "") for run in runs]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# ---- the node


@pytest.mark.parametrize(
    ("name", "units", "options", "asked"),
    [
        ("NODE_NAME", 3, "", ["--bench-suite fleet"]),
        # Only an option that says what to measure replaces the suite; one unit is measured once.
        ("SLURMD_NODENAME", 1, "--bench-budget 60", ["--bench-suite fleet --bench-budget 60"]),
        ("NODE_NAME", 1, "--bench-sweep activations/relu --bench-budget 60", None),
        ("NODE_NAME", 1, "--bench-case a/b", None),
        ("NODE_NAME", 1, "--bench-suite=core", None),
    ],
)
def test_a_node_measures_its_gpus_alone_and_then_together(
    machine: Machine, name: str, units: int, options: str, asked: list[str] | None
) -> None:
    machine.run(
        *(FLEET / "node.sh", machine.results, *options.split()),
        PYTHON=machine.python(units),
        ROOFBENCH_TAGS="rack=b12",
        **{name: "n7"},
    )
    (asked,) = asked or [options]
    each = [f"cuda:{index} {asked}" for index in range(units)]
    measured = machine.measured()
    assert measured[:units] == [f"node=n7,rack=b12 of 1: {one}" for one in each]
    together = [f"node=n7,rack=b12 of {units}: {one}" for one in each if units > 1]
    assert sorted(measured[units:]) == together


def test_a_failure_alone_does_not_keep_the_node_from_measuring_together(machine: Machine) -> None:
    fails = '[ -n "${ROOFBENCH_CONCURRENT_GPUS:-}" ] || exit 3'
    machine.run(FLEET / "node.sh", machine.results, status=3, PYTHON=machine.python(2, fails), NODE_NAME="n")
    assert len(machine.measured()) == 4


def test_what_a_node_measures_ends_with_it(machine: Machine) -> None:
    """A batch system ends the script; a measurement that went on would disturb the next one."""
    measuring = "echo $$; exec sleep 600"
    environment = machine.environment(PYTHON=machine.python(2, measuring), NODE_NAME="n")
    words = [FLEET / "node.sh", machine.results]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        child = int(node.stdout.readline())
        node.send_signal(signal.SIGTERM)
        assert node.wait(60) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert len(machine.measured()) == 1


# ---- Slurm


def submitted(machine: Machine, **variables: str) -> None:
    """Run the batch script as Slurm does: a copy elsewhere, in the folder that it was submitted from."""
    machine.program("scontrol", "printf 'n1\\nn2\\n'")
    machine.program("srun", f'cat "{machine.results}/expected.txt" >> "{machine.asked}"')
    script = shutil.copy(FLEET / "slurm.sbatch", machine.folder / "slurm_script")
    machine.run("bash", script, machine.results, PYTHON=machine.python(1), **variables)


def test_a_slurm_job_lists_its_nodes_before_it_measures_them(machine: Machine) -> None:
    submitted(machine, SLURM_GPUS_PER_NODE="h100:8")
    assert machine.lines() == [
        "scontrol show hostnames",
        f"srun --no-kill --kill-on-bad-exit=0 --cpu-bind=none fleet/node.sh {machine.results}",
        *("n1 8", "n2 8"),
        f"python -m bench fleet {machine.results}",
    ]


def test_a_slurm_job_keeps_the_list_that_is_there(machine: Machine) -> None:
    machine.results.mkdir()
    (machine.results / "expected.txt").write_text("n1\nn2\nn3\n")
    submitted(machine)
    assert [line for line in machine.lines() if line.startswith("n")] == ["n1", "n2", "n3"]


# ---- Kubernetes


def test_kubernetes_gets_a_job_for_every_node_with_gpus(machine: Machine) -> None:
    made = machine.folder / "made"
    machine.program(
        "kubectl",
        f"""case "$1 $2" in
            "get nodes") printf 'control \\nnode1 8\\nnode2 4\\n' ;;
            "create configmap") cp "${{4#--from-file=}}" "{made}.txt" ;;
            "create --filename") echo --- >> "{made}.yaml"; cat >> "{made}.yaml" ;;
        esac""",
    )
    machine.run(FLEET / "kubernetes.sh", "registry.example/roofbench:1")
    assert made.with_suffix(".txt").read_text() == "node1 8\nnode2 4\n"
    jobs = list(yaml.safe_load_all(made.with_suffix(".yaml").read_text()))
    pods = [job["spec"]["template"]["spec"] for job in jobs]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [pod["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"] for pod in pods]
    nodes = [each[0]["matchFields"][0]["values"] for each in terms]
    containers = [pod["containers"][0] for pod in pods]
    assert nodes == [["node1"], ["node2"]]
    assert [each["resources"]["limits"]["nvidia.com/gpu"] for each in containers] == ["8", "4"]
    assert {each["image"] for each in containers} == {"registry.example/roofbench:1"}
    volumes = {volume["name"] for pod in pods for volume in pod["volumes"]}
    assert {mount["name"] for each in containers for mount in each["volumeMounts"]} == volumes


# ---- Ray


PYTHON = """#!/bin/bash
if [ "$1" = -c ]; then echo cuda:0; exit; fi
while [ "$1" != --bench-results ]; do shift; done
mkdir -p "$2/gpu" && echo "$*" > "$2/gpu/run.parquet"
echo measured
exit 3
"""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    stand_ins: dict[str, dict[str, object]] = {
        "ray": {"remote": lambda **_: lambda function: function},
        "ray.exceptions": {"RayError": Exception},
        "ray.util": {},
        "ray.util.scheduling_strategies": {"NodeAffinitySchedulingStrategy": SimpleNamespace},
    }
    for name, contents in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("ray_fleet", FLEET / "ray_fleet.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("given", "name"), [("rack1-7", "rack1-7"), ("10.0.0.7", "host7")])
def test_a_node_is_called_as_ray_was_told_or_by_its_host(driver: Any, given: str, name: str) -> None:
    node = {"NodeName": given, "NodeManagerAddress": "10.0.0.7", "NodeManagerHostname": "host7"}
    assert driver.name_of(node) == name


def test_the_files_of_a_node_arrive_where_the_driver_runs(
    driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    monkeypatch.setenv("PYTHON", str(python))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5")
    visible, status, output, files = driver.measure("n7", ["--bench-suite", "fleet"])
    assert (visible, status, output) == ("GPU-5", 3, "measured\n")
    driver.keep(tmp_path / "results", "n7", (visible, status, output, files))
    content = (tmp_path / "results" / "n7" / "gpu" / "run.parquet").read_text()
    assert content.endswith("/n7 --bench-device cuda:0 --bench-suite fleet\n")
    said = capsys.readouterr().out
    assert said == "n7: 1 result files, CUDA_VISIBLE_DEVICES=GPU-5, exit code 3\n"
