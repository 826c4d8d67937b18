"""Ray driver that measures every node of a Ray cluster and writes all results where it runs.

    python fleet/ray_fleet.py RESULTS [option of node.sh...]

A task takes all GPUs of a node: each is measured alone, then all at the same time. A task whose worker died
is started once more. All nodes have this checkout under the same path.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

CHECKOUT = Path(__file__).resolve().parents[1]
PR_SET_PDEATHSIG = 1
WITHIN_S = 7200
"""Seconds after which no node is waited for."""


def end_with_worker():
    """Have node.sh ended when the Ray worker dies: else it would measure on, beside the second try."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@ray.remote(max_retries=1)
def measure(node, options):
    """The GPUs that Ray lends, the exit code and output of node.sh, and the bytes of each result file."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [CHECKOUT / "fleet" / "node.sh", folder, *options],
            env={**os.environ, "NODE_NAME": node},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=end_with_worker,
        )
        files = {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*.parquet")}
    return os.environ.get("CUDA_VISIBLE_DEVICES", ""), done.returncode, done.stdout, files


def name_of(node):
    """What `ray start --node-name` said, else the host's name."""
    return node["NodeManagerHostname" if node["NodeName"] == node["NodeManagerAddress"] else "NodeName"]


def submit(node, options):
    """The task of a node."""
    here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    asked = measure.options(num_gpus=node["Resources"].get("GPU", 0), num_cpus=0, scheduling_strategy=here)
    return asked.remote(name_of(node), options)


def keep(results, task, answer):
    """Write the result files of a task; print its GPUs; without any file, the end of its output."""
    visible, status, output, files = answer
    for path, content in files.items():
        file = results / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    print(f"{task}: {len(files)} result files, CUDA_VISIBLE_DEVICES={visible}, exit code {status}")
    if not files:
        print(*output.splitlines()[-10:], sep="\n")


def main():
    """Measure, and hand over to `python -m bench fleet`, which names what is missing; exits with its code."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    results, options = Path(sys.argv[1]), sys.argv[2:]
    ray.init("auto", log_to_driver=False)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    nodes = [node for node in nodes if node["Resources"].get("GPU")] or nodes
    results.mkdir(parents=True, exist_ok=True)
    expected = results / "expected.txt"
    if not expected.exists():
        counts = {name_of(node): int(node["Resources"].get("GPU", 0)) for node in nodes}
        expected.write_text(
            "".join(f"{name} {count}\n" if count else f"{name}\n" for name, count in counts.items())
        )
    tasks = {submit(node, options): name_of(node) for node in nodes}
    deadline = time.monotonic() + WITHIN_S
    while tasks:
        ended, _ = ray.wait(list(tasks), timeout=max(0, deadline - time.monotonic()))
        if not ended:
            break
        task = tasks.pop(ended[0])
        try:
            keep(results, task, ray.get(ended[0]))
        except RayError as error:
            print(f"{task}: LOST: {str(error).partition('. ')[0]}")
    for ref, task in tasks.items():
        ray.cancel(ref, force=True)
        print(f"{task}: LOST: not measured within {WITHIN_S} s")
    ray.shutdown()
    python = os.environ.get("PYTHON", ".venv/bin/python")
    sys.exit(subprocess.run([python, "-m", "bench", "fleet", results.resolve()], cwd=CHECKOUT).returncode)


if __name__ == "__main__":
    main()
