"""What each term of the model of tiles and waves is worth: the same fit and score without it.

    python -m studies.predicting_without RESULT...

RESULT: runs of GPUs, such as `python -m bench import aiconfigurator` writes; whole tables take a minute.
Prints the mean |predicted / measured - 1| in percent on up to 4,000 products of each device that calibrate
nothing. A term is taken out of the text of bench/model/tile_wave.py, which is then run as its own module.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from pathlib import Path

import numpy as np

from bench.device.datasheet import find_datasheet
from bench.errors import UserError
from bench.judge.frame import known_runs, read
from bench.model import calibration, predict, tile_wave
from bench.model.calibrated_runs import MOST

WITHOUT = {
    "as it is": (),
    "a last wave costs its share (tail 0)": (
        "1.0 if of.is_known else machine.tail",
        "1.0 if of.is_known else 0.0",
    ),
    "a last wave costs a full one (tail 1)": ("1.0 if of.is_known else machine.tail", "1.0"),
    "K is never split": ("in (1,) if tile else SPLITS", "in (1,)"),
    "one tile, 128 x 128": ("[tile] if tile else TILES", "[tile] if tile else ((128, 128),)"),
    "no cache residency": (
        "inside = resident(working_set, machine.cache_byte)",
        "inside = 0.0 * byte",
    ),
    "no bandwidth limit of one SM": (
        "rounded = (1.0 + ratio**4) / (1.0 + (ratio / drawing) ** 4)",
        "rounded = np.ones_like(drawing)",
    ),
    "only the larger term counts": (
        "1.0 + of.own_steps * waves / OVERLAP_STEPS",
        "0.0 * waves + MOST_OVERLAP",
    ),
    "compute and load always add up": ("1.0 + of.own_steps * waves / OVERLAP_STEPS", "0.0 * waves + 1.0"),
    "empty positions cost the same": ("EMPTY = 0.12", "EMPTY = 0.0"),
    "one start-up time for all tiles": ("machine.tile_s * np.sqrt(of.area / 128**2)", "machine.tile_s"),
    "no minimum step": ("np.maximum(multiply_s, machine.step_s)", "multiply_s"),
    "launch overhead as a maximum": ("machine.launch_s + both_s", "np.maximum(machine.launch_s, both_s)"),
}
"""What is different -> (text of the module, what stands there instead)."""


def changed(change: tuple[str, ...]) -> types.ModuleType:
    """The module bench.model.tile_wave with this change."""
    text = inspect.getsource(tile_wave)
    if change:
        if text.count(change[0]) != 1:
            raise ValueError(f"bench/model/tile_wave.py has not once: {change[0]}")
        text = text.replace(*change)
    module = types.ModuleType("changed_structure")
    sys.modules[module.__name__] = module
    exec(compile(text, module.__name__, "exec"), module.__dict__)
    return module


def main(results: list[Path]) -> None:
    """A line a change, a column a run."""
    runs = list(known_runs(read(results), find_datasheet))
    print("| | " + " | ".join(run.device_name.removeprefix("NVIDIA ") for run in runs) + " |")
    print("|---" * (len(runs) + 1) + "|")
    for name, change in WITHOUT.items():
        module = changed(change)
        calibration.tile_wave = module  # type: ignore[assignment]
        told = []
        for run in runs:
            rows = run.rows[(run.rows["median_s"] > 0) & (run.rows["role"] == "measurement")]
            rows = rows.iloc[np.linspace(0, len(rows) - 1, min(MOST, len(rows))).astype(int)]
            machine = predict.calibrated(run.rows, run.ceilings, run.sheet)[-1].machine
            of = module.Products(*predict.products(rows))
            predicted = module.predict(module.Machine(**dataclasses.asdict(machine)), of).seconds
            told.append(f"{100 * np.mean(np.abs(predicted / rows['median_s'] - 1)):.1f}")
        print(f"| {name} | " + " | ".join(told) + " |", flush=True)


if __name__ == "__main__":
    try:
        main([Path(one) for one in sys.argv[1:]])
    except UserError as error:
        sys.exit(str(error))
