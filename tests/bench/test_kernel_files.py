"""What a kernel's file imports, and what torch.compile makes of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels
from bench.worker.__main__ import make_bench, respond
from bench.worker.measure_case import Bench
from bench.worker.visit import Visit

GO = "import torch\ndef go(x):\n    return torch.softmax(x, 1)\n"
USES = "\ndef f(x):\n    return go(x)\n"
FORWARD = {"dtype": "float32", "direction": "forward"}


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    threads = torch.get_num_threads()
    yield make_bench("cpu", 1 << 20, 1)
    torch.set_num_threads(threads)


def asked(bench: Bench, file: Path, rows: int = 5, length: int = 7, **more: Any) -> str:
    """Status and reason of a check, or of a visit if a budget is given."""
    numbers = {"rows": rows, "length": length, **FORWARD}
    if more:
        visit = Visit("softmax", "mine:f", numbers, "warm", 0.05, kernel=f"{file}:f", **more)
        request = visit.to_json()
    else:
        request = {"do": "check", "operator": "softmax", "implementation": "mine:f", "kernel": f"{file}:f"}
        request |= {"parameters": numbers, "guarded": True}
    with torch.no_grad():
        answer = respond(bench, request)
    return f"{answer['status']} {answer.get('reason', '')}".strip()


def written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__init__', '/__init__').replace('_in_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# --- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kernels", "bench", "tests"])
@pytest.mark.parametrize("has_init", [True, False])
def test_a_folder_beside_the_file_comes_before_ours(
    name: str, has_init: bool, tmp_path: Path, bench: Bench
) -> None:
    written(tmp_path, **{f"{name}_in_fast": GO, "mine": f"from {name}.fast import go\n{USES}"})
    if has_init:
        (tmp_path / name / "__init__.py").touch()
    assert kernels.operator("softmax")
    before = sys.modules["bench"], sys.modules["kernels"], sys.modules["kernels.softmax.problem"]
    assert asked(bench, tmp_path / "mine.py") == "ok"
    assert before == (sys.modules["bench"], sys.modules["kernels"], sys.modules["kernels.softmax.problem"])


def test_an_installed_package_comes_before_ours(
    tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Hugging Face's."""
    hub = "from types import SimpleNamespace\nimport torch\n" + (
        "def get_kernel(name):\n    from .lazy import go\n    return SimpleNamespace(softmax=go)\n"
    )
    written(tmp_path / "installed", kernels__init__=hub, kernels_in_lazy=GO)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed")])
    text = "from kernels import get_kernel\ngo = get_kernel('someone/softmax').softmax\n"
    written(tmp_path / "own", mine=text + USES)
    assert asked(bench, tmp_path / "own" / "mine.py") == "ok"


def test_a_file_that_means_ours_gets_ours(tmp_path: Path, bench: Bench) -> None:
    text = "from kernels.softmax.operator import OPERATOR\n"
    text += "def f(x, problem):\n    return OPERATOR.reference(problem, x).float()\n"
    written(tmp_path, kernels_in_fast=GO, mine=text)
    assert asked(bench, tmp_path / "mine.py") == "ok"


def test_relative_imports_and_the_name_of_the_own_package_work(tmp_path: Path, bench: Bench) -> None:
    pack = tmp_path / "outer" / "pack_of_mine"
    written(
        pack, helper=GO, relative=f"from .helper import go\n{USES}", above=f"from ..top import go\n{USES}"
    )
    written(tmp_path / "outer", top=GO)
    written(pack, absolute=f"from outer.pack_of_mine.helper import go\n{USES}")
    (pack / "__init__.py").touch()
    (tmp_path / "outer" / "__init__.py").touch()
    for name in ("relative", "above", "absolute"):
        assert asked(bench, pack / f"{name}.py") == "ok"


def test_two_files_with_helpers_of_one_name_have_each_its_own(tmp_path: Path, bench: Bench) -> None:
    written(tmp_path / "old", helper=GO, old=f"from helper import go\n{USES}")
    written(tmp_path / "new", helper=GO.replace("(x, 1)", "(x, 0)"), new=f"from helper import go\n{USES}")
    assert asked(bench, tmp_path / "old" / "old.py") == "ok"
    assert asked(bench, tmp_path / "new" / "new.py").startswith("wrong")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from .helper import go\n", "with an __init__.py its folder is a package"),
        ("from elsewhere.helper import go\n", "set PYTHONPATH to the folder that holds elsewhere"),
        ("from kernels import get_kernel\n", "this kernels is roofbench's: no other one is installed"),
        ("from kernels.quick import go\n", "this kernels is roofbench's: no other one is installed"),
    ],
)
def test_what_cannot_be_imported_is_said_with_a_remedy(
    text: str, says: str, tmp_path: Path, bench: Bench
) -> None:
    written(tmp_path, mine=text + USES)
    assert re.match(rf"error mine\.py:1: cannot be imported: .*{says}", asked(bench, tmp_path / "mine.py"))


# --- torch.compile ----------------------------------------------------------------------------------

BODY = """
import torch
SEEN = []
def body(x):
    if not torch.compiler.is_compiling():
        SEEN.append(tuple(x.shape))
    y = (x - x.amax(1, keepdim=True)).exp()
    return y / y.sum(1, keepdim=True)
"""
COMPILED = {
    "static": "f = torch.compile(body, dynamic=False, backend='aot_eager')",
    "usual": "f = torch.compile(body, backend='aot_eager')",
    "dynamic": "f = torch.compile(body, dynamic=True, backend='aot_eager')",
    "in_the_call": "def f(x):\n    return torch.compile(body, dynamic=False, backend='aot_eager')(x)",
    "disabled": "f = torch.compile(body, disable=True)",  # asked for
}
EAGER = {
    "generator": """
@torch.compile(backend="aot_eager")
def g(x):
    yield body(x)
def f(x):
    return next(g(x))
""",
    "suppressed": """
torch._dynamo.config.suppress_errors = True
def broken(graph, inputs):
    raise TypeError
f = torch.compile(body, backend=broken)
""",
    "no_graph": """
@torch.compile(backend="aot_eager")
def g(x):
    torch._dynamo.graph_break()
    return torch._dynamo.disable(body)(x)
def f(x):
    return g(x)
""",
    "many": """
torch._dynamo.config.recompile_limit = 3
calls = [0]
@torch.compile(dynamic=False, backend="aot_eager")
def g(x, n):
    return body(x) + 0 * len(n)
def f(x):
    calls[0] += 1
    return g(x, str(calls[0]))
""",
}


@pytest.fixture
def dynamo() -> Iterator[None]:
    """What a file sets is put back."""
    with torch._dynamo.config.patch(suppress_errors=False, recompile_limit=8):
        yield
        torch._dynamo.config.fail_on_recompile_limit_hit = False


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("name", COMPILED)
def test_what_is_timed_is_compiled_for_its_own_size(name: str, tmp_path: Path, bench: Bench) -> None:
    """Although more sizes were checked than Dynamo keeps variants of."""
    written(tmp_path, mine=BODY + COMPILED[name])
    for length in range(3, 12 if name == "static" else 5):
        assert asked(bench, tmp_path / "mine.py", length=length) == "ok"
    for length in (64, 65) if name == "usual" else (64,):
        assert asked(bench, tmp_path / "mine.py", 64, length, launch_s=60.0) == "ok"
    (module,) = (
        each for each in list(sys.modules.values()) if each.__dict__.get("__file__") == f"{tmp_path}/mine.py"
    )
    assert bool(module.SEEN) == (name == "disabled")


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("name", EAGER)
def test_eager_mode_that_nobody_asked_for_is_an_error(name: str, tmp_path: Path, bench: Bench) -> None:
    written(tmp_path, mine=BODY + EAGER[name])
    said = [asked(bench, tmp_path / "mine.py"), asked(bench, tmp_path / "mine.py", 64, 64, launch_s=60.0)]
    assert any(re.match("error torch.compile .* in eager mode", each) for each in said), said
