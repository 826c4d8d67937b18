"""ReFrame test that measures a node; `--distribute=all` makes one of it for every node of a partition.

    reframe -C SITE.py -c fleet/reframe_fleet.py --run --distribute=all -S results=RESULTS -S gpus=8
    python -m bench fleet RESULTS

All nodes share the checkout and the folder RESULTS. `all` includes nodes that are down.
"""

from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_after, run_before, sanity_function, variable

NODE_SCRIPT = Path(__file__).resolve().parent / "node.sh"


@rfm.simple_test
class Fleet(rfm.RunOnlyRegressionTest):
    """Every unit of a node alone, then all at the same time. It passes if a result file was written."""

    results = variable(str)
    """Folder for the results of all nodes."""
    options = variable(str, value="")
    """Options of fleet/node.sh, if not the suite `fleet` is to be measured."""
    gpus = variable(int, value=0)
    """GPUs of each node; 0 where the CPU is to be measured."""

    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["*"]  # noqa: RUF012
    sourcesdir = None
    executable = str(NODE_SCRIPT)
    num_tasks = 1
    exclusive_access = True
    time_limit = "30m"

    @run_after("setup")
    def expect(self):
        """Add this node to the list of expected ones; ReFrame sets all tests up before it runs one."""
        folder = Path(self.results).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        (node,) = getattr(self, ".nid")  # the parameter that --distribute adds
        line = f"{node} {self.gpus}\n" if self.gpus else f"{node}\n"
        with (folder / "expected.txt").open("a+") as file:
            file.seek(0)
            if line not in file:
                file.write(line)

    @run_before("run")
    def ask(self):
        """Ask for the GPUs by number, without which Slurm lends none."""
        self.executable_opts = [str(Path(self.results).resolve()), *self.options.split()]
        if self.gpus:
            self.job.options.append(f"--gpus-per-node={self.gpus}")

    @sanity_function
    def wrote_results(self):
        """Whether the run named its result file."""
        return sn.assert_found(r"^rows: .*\.parquet", self.stdout)
