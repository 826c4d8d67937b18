"""A real Ray cluster of two nodes with four fake GPUs each, on which fleet/ray_fleet.py is tried.

    python tests/trials/fleet_ray.py FOLDER     with a Python that has ray; minutes

OPTIONS in the environment say what is measured instead of the suite `fleet`. Shows which GPUs each task is
lent, and what becomes of a worker that is killed once, and twice. Nothing has a GPU, so whatever is measured is
the CPU.
"""

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
OPTIONS = os.environ.get("OPTIONS", "--bench-suite fleet").split()
KILLER = """#!/bin/bash
# The Python of a node: on n2 it kills the Ray worker, of which node.sh is a child, and measures on.
if [ "$NODE_NAME" = n2 ] && [[ "$*" == *--benchmark* ]]; then
    for earlier in $(cat {pids}); do
        if kill -0 "$earlier" 2> /dev/null; then echo "orphan $earlier measures" >> {orphans}; fi
    done
    echo $$ >> {pids}
    if [ "$(wc -l < {pids})" -le {deaths} ]; then kill -KILL "$(ps -o ppid= -p $PPID)"; fi
fi
exec {python} "$@"
"""


def drive(results, *options):
    """Run the driver as a user does."""
    command = [sys.executable, CHECKOUT / "fleet" / "ray_fleet.py", results, *options, *OPTIONS]
    print(f"exit code {subprocess.run(command, cwd=CHECKOUT).returncode}", flush=True)


def trial(title, folder, deaths, *options):
    """A fresh cluster; the worker of n2 is killed so many times."""
    from ray.cluster_utils import Cluster

    print(f"== {title}", flush=True)
    folder.mkdir(parents=True)
    killer, pids, orphans = folder / "python", folder / "pids", folder / "orphans"
    python = os.environ.get("PYTHON", str(CHECKOUT / ".venv/bin/python"))
    killer.write_text(KILLER.format(pids=pids, orphans=orphans, deaths=deaths, python=python))
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
    """All four trials, each in a folder of its own."""
    folder = Path(sys.argv[1]).resolve()
    trial("by node", folder / "node", 0)
    trial("by GPU", folder / "gpu", 0, "--by", "gpu")
    trial("by node, n2's worker is killed once", folder / "once", 1)
    trial("by node, n2's worker is killed every time", folder / "twice", 9)


if __name__ == "__main__":
    main()
