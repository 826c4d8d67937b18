"""A real Ray cluster of two nodes with four fake GPUs each, on which fleet/ray_fleet.py is tried.

    python studies/fleet_ray.py FOLDER     with a Python that has ray; minutes

OPTIONS in the environment say what is measured instead of the suite `fleet`. Shows which GPUs each task is
lent, and what becomes of a worker that is killed once or twice, and of a node that is lost. The GPUs are
fake: what is measured is the CPU.
"""

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
OPTIONS = os.environ.get("OPTIONS", "--bench-suite fleet").split()
KILLER = """#!/bin/bash
# The Python of a node: on n2 it kills the Ray worker, of which node.sh is a child, and measures on.
if [ "$NODE_NAME" = n2 ] && [[ "$*" == *--benchmark* ]]; then
    for earlier in $(cat {pids}); do
        if kill -0 "$earlier" 2> /dev/null; then echo "orphan $earlier measures" >> {orphans}; fi
    done
    echo $$ >> {pids}
    if [ "$(wc -l < {pids})" -le {deaths} ]; then
        worker=$(ps -o ppid= -p $PPID)
        {raylet} && kill -KILL "$(ps -o ppid= -p $worker)" # the node is lost with it
        kill -KILL $worker
    fi
fi
exec {python} "$@"
"""


def drive(results, *options):
    """Run the driver as a user does."""
    command = [sys.executable, CHECKOUT / "fleet" / "ray_fleet.py", results, *options, *OPTIONS]
    print(f"exit code {subprocess.run(command, cwd=CHECKOUT).returncode}", flush=True)


def trial(title, folder, *options, deaths=0, raylet=False):
    """A fresh cluster; the worker of n2 is killed so many times, with its raylet if that is to die, too."""
    from ray.cluster_utils import Cluster

    print(f"== {title}", flush=True)
    folder.mkdir(parents=True)
    killer, pids, orphans = folder / "python", folder / "pids", folder / "orphans"
    python = os.environ.get("PYTHON", str(CHECKOUT / ".venv/bin/python"))
    names = {"pids": pids, "orphans": orphans, "python": python}
    killer.write_text(KILLER.format(deaths=deaths, raylet=str(raylet).lower(), **names))
    killer.chmod(0o755)
    pids.touch()
    before = os.environ.copy()
    os.environ["PYTHON"] = str(killer)  # the nodes' workers inherit it
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "node_name": "head"})
    for name in ("n1", "n2"):
        cluster.add_node(num_cpus=1, num_gpus=4, node_name=name)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        drive(folder / "results", *options)
    finally:
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)
    print(f"n2's measurements begun: {len(pids.read_text().split())}")
    print(orphans.read_text() if orphans.exists() else "no measurement outlived its worker", flush=True)


def main():
    """All five trials, each in a folder of its own."""
    folder = Path(sys.argv[1]).resolve()
    trial("by node", folder / "node")
    trial("by GPU", folder / "gpu", "--by", "gpu")
    trial("by node, n2's worker is killed once", folder / "once", deaths=1)
    trial("by node, n2's worker is killed every time", folder / "twice", deaths=9)
    trial("by node, n2 is lost", folder / "lost", deaths=1, raylet=True)


if __name__ == "__main__":
    main()
