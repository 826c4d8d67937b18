"""`python -m tests.contract [ENVIRONMENT...]`: run the contract suite with the CUDA builds of the libraries.

Creates the virtual environments that are missing in .contract/, about 5 GB each, and compiles a stub of
libcuda. Needs Python 3.11 or later without any package, and a C compiler. Exit code 1 if a check fails, 2 if
an environment cannot be created or does not hold what it should.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".contract"
STUB = Path(__file__).with_name("libcuda_stub.c")
CHANGING = (
    *("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "TRITON_INTERPRET"),
    "ROOFBENCH_STUB_GPUS",
)
"""Variables that would change what is checked; the suite runs without them."""


@dataclass(frozen=True)
class Environment:
    """One set of versions that roofbench promises to run with."""

    torch: str
    triton: str
    python: str

    @property
    def name(self) -> str:
        """The folder below .contract/."""
        return f"torch-{self.torch}"

    @property
    def executable(self) -> Path:
        """Its interpreter."""
        return FOLDER / self.name / "bin" / "python"


ENVIRONMENTS = (
    Environment(torch="2.11.0", triton="3.6.0", python="3.12"),
    Environment(torch="2.13.0", triton="3.7.1", python="3.12"),
)
"""All versions that are checked. PyPI's wheels of torch for Linux are the CUDA builds (here CUDA 13.0)."""


class Refusal(Exception):
    """One sentence: what is missing, and what to do."""


def main(wanted: list[str]) -> int:
    """Run the suite in each environment, or in those that are named. The exit code."""
    names = [environment.name for environment in ENVIRONMENTS]
    if unknown := set(wanted) - set(names):
        print(f"contract: there is no environment {', '.join(sorted(unknown))}; there are {', '.join(names)}")
        return 2
    codes = []
    for environment in ENVIRONMENTS:
        if wanted and environment.name not in wanted:
            continue
        python = shutil.which(f"python{environment.python}")
        if not environment.executable.exists() and python is None:
            print(f"contract: {environment.name} is skipped: python{environment.python} was not found")
            continue
        try:
            if not environment.executable.exists():
                _make(environment, str(python))
            _check_build(environment)
            codes.append(_run(environment))
        except Refusal as refusal:
            print(f"contract: {environment.name}: {refusal}")
            codes.append(2)
    if not codes:
        print("contract: no environment could be used, so nothing was checked")
        return 2
    return max(codes)


def _make(environment: Environment, python: str) -> None:
    """A virtual environment with these versions; taken away again if it cannot be completed."""
    folder = FOLDER / environment.name
    print(f"contract: making {folder.relative_to(ROOT)}, about 5 GB", flush=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    packages = [f"torch=={environment.torch}", f"triton=={environment.triton}"]
    extras = project["optional-dependencies"]
    packages += project["dependencies"] + extras["cublaslt"] + extras["nightly"]
    # Of constraints.txt all but the pair that is this environment's own.
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    constraints = [line for line in lines if not line.startswith(("torch==", "triton=="))]
    try:
        subprocess.run([python, "-m", "venv", folder], check=True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(constraints))
            file.flush()
            pip = [str(environment.executable), "-m", "pip", "install", "--quiet", "--constraint", file.name]
            subprocess.run([*pip, *packages], check=True)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Refusal(f"it could not be made: a command ended with exit code {error.returncode}") from error


def _check_build(environment: Environment) -> None:
    """Refuse a build without CUDA, which an index or cache of wheels may have offered instead."""
    code = "import torch, triton; print(torch.__version__, torch.version.cuda, triton.__version__)"
    done = subprocess.run([environment.executable, "-c", code], capture_output=True, text=True, cwd="/")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise Refusal(f"torch and Triton cannot be imported: {last}")
    torch, cuda, triton = done.stdout.split()
    if cuda == "None":
        raise Refusal(
            f"holds torch {torch}, a build without CUDA; remove .contract/{environment.name} and make it "
            f"again where pip finds torch {environment.torch} as the package index has it"
        )
    if (torch.partition("+")[0], triton) != (environment.torch, environment.triton):
        raise Refusal(
            f"holds torch {torch} and Triton {triton}, not {environment.torch} and {environment.triton}; "
            f"remove .contract/{environment.name}"
        )


def _run(environment: Environment) -> int:
    """The suite's exit code, 0 or 1."""
    with tempfile.TemporaryDirectory(prefix="roofbench-contract-") as scratch:
        stub = _stub(environment, Path(scratch))
        variables = {k: v for k, v in os.environ.items() if k not in CHANGING}
        variables |= {
            "LD_LIBRARY_PATH": str(stub),
            "TRITON_LIBCUDA_PATH": str(stub),
            "TRITON_CACHE_DIR": str(Path(scratch) / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(scratch) / "inductor"),
        }
        command = [str(environment.executable), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        # Nothing of the tests' or the benchmark's own conftest.py: what is checked must not run the check.
        command += ["-p", "tests.contract.plugin", "--confcutdir=tests/contract"]
        command += ["-o", "python_files=contract_*.py"]
        begin = time.monotonic()
        code = subprocess.run([*command, "tests/contract"], cwd=ROOT, env=variables).returncode
        print(
            f"contract: {environment.name}: exit code {code} after {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        return min(code, 1)


def _stub(environment: Environment, scratch: Path) -> Path:
    """The folder of a libcuda.so.1 compiled from STUB with the header that this Triton brings."""
    folder = scratch / "stub"
    folder.mkdir()
    site = next((FOLDER / environment.name).glob("lib/python3.*/site-packages"))
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(folder / "libcuda.so.1")]
    try:
        done = subprocess.run(
            [*command, f"-I{site}/triton/backends/nvidia/include", str(STUB)], capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise Refusal("there is no C compiler called cc") from error
    if done.returncode:
        raise Refusal(f"libcuda_stub.c does not compile: {done.stderr.strip()}")
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
