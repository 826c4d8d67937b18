"""Blocks of the first minutes on a GPU: existing commands, each with a time limit.

On a CPU the same blocks run with a CPU's implementations, so that everything can be rehearsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError, unknown

RANDOM_ALIGNED = Path(__file__).parent / "random_aligned.yaml"
"""Random shapes for the GEMM duel, so that no choice of ours favours a side."""
LONGEST_CALL_S = 540.0
"""Blocks are laid out for calls of ten minutes, with a minute for transfers."""
STARTING_S = 25.0
"""Seconds of a run's limit that its start, its tables and its end may take on top of the budget."""

PYTEST = ("pytest", "bench/", "-p", "no:cacheprovider")
MEASURE = (
    *(*PYTEST, "--benchmark", "--benchmark-columns", "median", "--bench-results", "{folder}"),
    *("--bench-budget", "{budget}"),
)
CHECK = (*PYTEST, "-q", "-k", "not inductor")
DOCTOR = ("bench", "doctor", "--json", "{folder}/doctor.json")
SCORE = ("plots", "score", "{all}", "--json", "{folder}/scores.json")
FLOAT16 = ("-k", "ceilings or (float16 and not bfloat16)")
"""One data type of sweeps that have many: whole curves first."""
NOT_INDUCTOR = ("-k", "ceilings or (float16 and not bfloat16 and not inductor)")
"""Inductor compiles for seconds for each shape."""
LIBRARIES = ("-k", "ceilings or (float16 and not bfloat16 and not inductor and not triton)")
"""The guides show curves of libraries; our kernels would take ten times as long, to compile and tune."""

TOUR = (
    *("gemm/alignment_k", "batchnorm/intensity", "batchnorm/nhwc", "activations/relu"),
    "pooling/intensity",
)
"""Alignment, batch norm in both layouts, activations, pooling."""
DUEL = ("gemm/square", str(RANDOM_ALIGNED))
MEMORY_LIMITED = ("batchnorm/intensity", "activations/relu", "pooling/intensity", "softmax/rows")
QUANTIZATION = ("gemm/forced_tiles_triton",)
"""Forced tiles over the sizes at which a tile or a wave begins."""


@dataclass(frozen=True)
class Command:
    """One command of a block, `python -m WORDS`."""

    name: str
    """Name of its log."""
    words: tuple[str, ...]
    """`{folder}` becomes the folder of results, `{budget}` seconds of measuring, `{rows}` the result files
    that this block's commands have left, `{all}` those of every block."""
    limit_s: float
    """Seconds after which it is stopped."""
    key: str = r"\S"
    """Pattern of its key line: the table shows the last line of its output that matches."""
    answers: tuple[int, ...] = (0,)
    """Exit codes with which it has done its work, whatever the result."""
    gpu_only: bool = False
    """Whether it cannot use a CPU's results; it is then not run on a CPU."""

    def budget_s(self, limit_s: float) -> int:
        """Seconds of measuring within this limit: all but the start and the end, at least two fifths."""
        return max(1, round(max(0.4 * limit_s, limit_s - STARTING_S)))


@dataclass(frozen=True)
class CommandBlock:
    """One question, and the commands that answer it."""

    name: str
    question: str
    commands: tuple[Command, ...]
    gpu: str = ""
    """The part that only a GPU can answer; empty if a CPU answers all."""

    @property
    def limit_s(self) -> float:
        """The sum of its commands' limits."""
        return sum(command.limit_s for command in self.commands)


def _measured(name: str, limit_s: float, *words: str, gpu_only: bool = False) -> Command:
    """A run with `--benchmark` and these options; its budget is what the limit leaves."""
    key = r"rows: |no case was measured"
    return Command(name, (*MEASURE, *words), limit_s, key, answers=(0, 1), gpu_only=gpu_only)


GOALS = Command("goals", ("bench", "goals", "{rows}"), 6, r"^goals: ", answers=(0, 2), gpu_only=True)
"""Which goals of our kernels the block's rows reach; a device without goals is refused."""


def _sweeps(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for name in names for word in ("--bench-sweep", name))


def _fact(name: str, limit_s: float) -> Command:
    words = ("studies.gpu.facts", name, "{budget}", "{folder}/fact-" + name + ".json")
    return Command(name, words, limit_s, r"^(yes|no|unknown): ", answers=(0, 1))


BLOCKS = (
    # Whether this device can be measured, and what it can do at most
    CommandBlock(
        "doctor",
        "What does not work here?",
        (Command("doctor", DOCTOR, 130, "exit code", answers=(0, 1)),),
        gpu="the driver, the counters, capture, our kernels",
    ),
    CommandBlock(
        "right",
        "Is every implementation right at a small problem?",
        (Command("right", CHECK, 100, r"passed|failed|no tests ran", answers=(0, 1)),),
        gpu="our kernels and the GPU's libraries",
    ),
    CommandBlock(
        "clock",
        "Do our clocks agree with independent ones?",
        (Command("instruments", ("studies", "instruments"), 150, r"worst|no case"),),
        gpu="graph, stream and the profiler; a CPU has a clock of its own",
    ),
    CommandBlock(
        "ceilings",
        "What are bandwidth, peaks and the launch floor, burst and sustained?",
        (
            _measured("sustained", 60, "--bench-sweep", "ceilings", "--bench-regime", "sustained"),
            _measured("boost", 65, "--bench-sweep", "ceilings", "--bench-regime", "boost"),
            Command("table", ("bench", "ceilings", "{rows}"), 10),
        ),
    ),
    CommandBlock(
        "facts",
        "What does the hardware do that no document says?",
        (_fact("tf32", 30), _fact("narrow", 30), _fact("nvml", 15)),
        gpu="all of it: the CPU's libraries stand in, and made-up readings",
    ),
    # Operators, measured and compared with predictions, libraries and each other
    CommandBlock(
        "tour",
        "Whole curves of the guides' figures, twice: do medians agree?",
        (
            _measured("first", 180, *_sweeps(TOUR), *LIBRARIES),
            _measured("second", 180, *_sweeps(TOUR), *LIBRARIES),
            Command("agreement", ("bench", "compare", "{rows}"), 15, answers=(0, 1, 2)),
        ),
        gpu="its libraries",
    ),
    CommandBlock(
        "model",
        "How far off are the predictions, by operator and level?",
        (Command("score", SCORE, 45, r"^Scored: "),),
    ),
    CommandBlock(
        "kernels",
        "Are our newest kernels right, at random shapes and in every configuration?",
        (_fact("gluon", 40), _fact("held", 30)),
        gpu="all of it: the CPU's libraries stand in",
    ),
    CommandBlock(
        "gemm-duel",
        "Our GEMM against cuBLAS, by region of shapes",
        (
            _measured("measure", 210, *_sweeps(DUEL), *FLOAT16),
            Command("duel", ("bench", "duel", "{rows}"), 14, r"all aligned", gpu_only=True),
            GOALS,
        ),
        gpu="the duel: our kernels are not timed on a CPU, so it has one side only",
    ),
    CommandBlock(
        "memory-duel",
        "Memory-limited operators as a share of a copy, against the best library",
        (
            _measured("measure", 225, *_sweeps(MEMORY_LIMITED), *NOT_INDUCTOR),
            Command("efficiency", ("bench", "efficiency", "{rows}"), 9),
            GOALS,
        ),
        gpu="our side: our kernels are not timed on a CPU",
    ),
    CommandBlock(
        "quantization",
        "What do tiles and waves cost where each tile is held fast?",
        (_measured("measure", 330, *_sweeps(QUANTIZATION), *FLOAT16, gpu_only=True),),
        gpu="all of it: forced tiles are Triton's",
    ),
)
"""The blocks; those worth most for their minutes come first."""


def chosen(names: Sequence[str]) -> list[CommandBlock]:
    """The blocks of these names, in their own order; `all` is every one. UserError for any other name."""
    known = [*(block.name for block in BLOCKS), "all"]
    for name in names:
        if name not in known:
            raise UserError(unknown("block", name, "first-minutes", known))
    return [block for block in BLOCKS if "all" in names or block.name in names]


def calls() -> list[list[CommandBlock]]:
    """All blocks in their order, cut into calls none of which lasts longer than LONGEST_CALL_S."""
    groups: list[list[CommandBlock]] = [[]]
    for block in BLOCKS:
        if sum(before.limit_s for before in groups[-1]) + block.limit_s > LONGEST_CALL_S:
            groups.append([])
        groups[-1].append(block)
    return groups


def filled(command: Command, limit_s: float, values: dict[str, Any]) -> list[str]:
    """The command's words with `{...}` filled in; a list of paths becomes as many words."""
    values = {**values, "budget": command.budget_s(limit_s)}
    words: list[str] = []
    for word in command.words:
        whole = values.get(word[1:-1]) if word.startswith("{") and word.endswith("}") else None
        words += [str(path) for path in whole] if isinstance(whole, list) else [word.format(**values)]
    return words
