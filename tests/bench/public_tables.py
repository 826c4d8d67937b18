"""The command `import`; a made-up package aiconfigurator-core: folders, metadata, tables of random times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from bench.__main__ import app

VERSION = "9.8.7"
VLLM = "0.30.1"
OTHERS = "imported/aiconfigurator"
"""The sweep of the rows that do not calibrate. It has no file."""


def imports(*words: object) -> tuple[int, str, str]:
    """Exit code, output and errors of `python -m bench import WORDS`."""
    done = CliRunner().invoke(app, ["import", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def package(root: Path) -> Path:
    """An installed package without tables below `root`, which belongs on sys.path; its folder.

    Importing it raises: only its files may be read.
    """
    folder = root / "aiconfigurator_core"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    about = root / f"aiconfigurator_core-{VERSION}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: aiconfigurator-core\n"
        f"Version: {VERSION}\nLicense-Expression: Apache-2.0\n"
    )
    return folder


def shapes(chance: np.random.Generator, count: int) -> pd.DataFrame:
    """Different shapes, with a latency of each in milliseconds, none of which a GPU here would beat."""
    sizes = np.unique(np.exp2(chance.uniform(0, 13, (4 * count, 3))).astype(np.int64), axis=0)
    chosen = chance.permutation(sizes)[:count]
    assert len(chosen) == count
    frame = pd.DataFrame(chosen, columns=["m", "n", "k"])
    m, n, k = (frame[name].astype(float) for name in "mnk")
    least_ms = 1e3 * (2 * m * n * k / 2e14 + 2 * (m * n + m * k + n * k) / 5e11)
    return frame.assign(latency=least_ms + chance.uniform(1e-3, 10, count))


def table(some: pd.DataFrame, device: str, **changes: Any) -> pd.DataFrame:
    """As the package has it: these shapes in bfloat16, and all of them again in fp8, which is not read."""
    frame = some.assign(framework="VLLM", version=VLLM, device=device, op_name="gemm")
    frame = frame.assign(kernel_source="torch.nn.functional.linear", gemm_dtype="bfloat16")
    other = frame.assign(gemm_dtype="fp8", kernel_source="CutlassFP8", latency=frame["latency"] / 2)
    return pd.concat([frame, other], ignore_index=True).assign(**changes)


def put(folder: Path, system: str, made: pd.DataFrame | bytes, engine: str = "vllm") -> Path:
    """Where the package keeps the table of this system."""
    path = folder / "systems" / "data" / system / "gemm" / engine / VLLM / "gemm_perf.parquet"
    path.parent.mkdir(parents=True)
    if isinstance(made, bytes):
        path.write_bytes(made)
    else:
        made.to_parquet(path)
    return path
