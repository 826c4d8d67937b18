"""What the compiler makes of our kernels, a table for each family of them.

    python -m tests.kernels.compile_table                     every configuration in some form
    python -m tests.kernels.compile_table gemm_tma pooling    of these families
    python -m tests.kernels.compile_table --all               every form of every configuration: hours

The modules `*_compiled.py` of this folder have the families, each of which says what its kernels promise. The
table shows compute capability, registers, bytes of shared memory, and spills. Exit code 1 on a
fault. Needs no GPU; must run without TRITON_INTERPRET. It says what the compiler made, not that it runs, nor
how fast.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from tests.drawing import drawn, is_deep
from tests.kernels.compiled import Built, Family, Form

Compilation = tuple[Form, int]
"""A form, and the compute capability that it is compiled for."""


def families() -> dict[str, Family]:
    """All of them by name."""
    every: dict[str, Family] = {}
    for path in Path(__file__).parent.glob("*_compiled.py"):
        every |= import_module(f"tests.kernels.{path.stem}").FAMILIES
    return dict(sorted(every.items()))


def few(name: str, family: Family) -> list[Compilation]:
    """One compilation that the family chose, by the seed of the tests' run; all of them in a deep run."""
    quick = compilations(form for form in family.chosen() if is_deep() or not form.slow)
    return drawn(quick, 1, f"compiled {name}")


def compilations(forms: Iterable[Form]) -> list[Compilation]:
    """Each form for each of its architectures."""
    return [(form, capability) for form in forms for capability in form.capabilities]


def main(arguments: Sequence[str]) -> int:
    """Print the tables; the number of faults."""
    every = families()
    parser = argparse.ArgumentParser(
        prog="python -m tests.kernels.compile_table", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="FAMILY", help=f"of {', '.join(every)}; default: all")
    parser.add_argument("--all", action="store_true", help="every form of every configuration")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(every):
        parser.error(f"no family is called {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    chosen = {name: every[name] for name in given.names or every}
    return sum(
        show(name, compilations(of.every() if given.all else of.chosen())) for name, of in chosen.items()
    )


def show(name: str, every: Sequence[Compilation]) -> int:
    """Print a family's table; the number of its faults."""
    width = max((len(form.name) for form, _ in every), default=0)
    print(f"{name}\n{'':{width}}  sm   regs   shared  spills")
    bad = 0
    with ThreadPoolExecutor(2) as pool:
        for (form, capability), built in zip(every, pool.map(_compiled, every), strict=True):
            wrong = [built] if isinstance(built, str) else form.faults(built)
            bad += len(wrong)
            facts = ""
            if not isinstance(built, str):
                facts = f"{built.registers:4} {built.shared_byte:8} {built.spills:7}"
            print(f"{form.name:{width}}  {capability:<4} {facts}  {'; '.join(wrong)}".rstrip(), flush=True)
    print(f"{len(every)} compiled, {bad} faults")
    return bad


def _compiled(compilation: Compilation) -> Built | str:
    """Why it cannot be compiled is a fault, and the table goes on."""
    form, capability = compilation
    try:
        return form.compiled(capability)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
