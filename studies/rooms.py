"""The picture of docs/architecture.md: which room imports which, drawn from the imports themselves.

A room is a folder of bench/ or plots/, a file beside those folders, or kernels/ as a whole. It stands on the
first floor above all that it imports. A line that other lines imply is left out (transitive reduction).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import networkx as nx
from matplotlib import rc_context
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
FOLDERS = ("bench", "kernels", "plots")
NO_ROOMS = {"bench", "plots", "bench/__main__.py", "bench/test_benchmark.py", "plots/__main__.py"}
"""The empty files of packages, and those that start a command."""

BOX = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.3"}


def modules() -> dict[str, Path]:
    """Dotted name of every module of the product, and its file; a package is named as its folder."""
    found = {}
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """The room of a module, as a path: bench/model, bench/spec.py, kernels."""
    parts = module.split(".")[:2]
    if parts[0] == "kernels" or len(parts) == 1:
        return parts[0]
    path = "/".join(parts)
    return path if (ROOT / path).is_dir() else f"{path}.py"


@cache
def imported(source: str) -> frozenset[str]:
    """Modules of this checkout that a source text imports at run time, wherever in the text."""
    tree = ast.parse(source)
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if _is_module(name) else str(node.module) for name in members}
    return frozenset(name for name in names if _is_module(name))


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def graph() -> nx.DiGraph:
    """Rooms and their imports of one another, without the files that only start a command."""
    arrows = nx.DiGraph()
    for module, path in modules().items():
        here = room(module)
        for name in imported(path.read_text(encoding="utf-8")):
            there = room(name)
            if here != there and not {here, there} & NO_ROOMS and there.split("/")[0] in FOLDERS:
                arrows.add_edge(here, there)
    return arrows


def draw(path: Path) -> None:
    """Write the picture as SVG; its description lists the arrows, so that a test can compare them."""
    arrows = nx.transitive_reduction(graph())
    place = _places(arrows)
    figure = Figure(figsize=(11, 0.75 * (1 + max(y for _, y in place.values()))), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    for above, below in sorted(arrows.edges):
        style = {"arrowstyle": "-", "color": "0.7", "linewidth": 0.8}
        axes.annotate("", xy=place[below], xytext=place[above], arrowprops=style)
    for name, (x, y) in sorted(place.items()):
        axes.text(x, y, name, ha="center", va="center", bbox=BOX)
    axes.set(xlim=(0, 1), ylim=(-0.5, 0.5 + max(y for _, y in place.values())))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "rooms"}):
        figure.savefig(path, metadata={"Date": None, "Description": described(arrows)})


def _places(arrows: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Where each room stands: its floor, and there in the order of the rooms that it imports."""
    place: dict[str, tuple[float, float]] = {}
    for height, floor in enumerate(nx.topological_generations(arrows.reverse())):
        below = {name: [place[other][0] for other in arrows[name]] for name in floor}
        order = sorted(floor, key=lambda name: (sum(below[name]) / max(1, len(below[name])), name))
        for number, name in enumerate(order):
            place[name] = (number + 0.5) / len(order), float(height)
    return place


def described(arrows: nx.DiGraph) -> str:
    """Every arrow, in one order."""
    return "; ".join(f"{above} -> {below}" for above, below in sorted(arrows.edges))
