"""Sweeps: what the grammar means, what a sweep is called, and that a mistake is one line with its place."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field, model_validator

from bench.errors import UserError
from bench.spec import Implementation, Problem, parameters_text
from bench.sweep import load as sweep
from bench.sweep import yaml_nodes
from bench.sweep.claims import FACTS, Slope
from bench.sweep.load import Loaded

Size = Annotated[int, Field(ge=1)]


class Toy(Problem):
    """An operator of the test's own, so that no message here depends on the real ones."""

    operator: ClassVar[str] = "toy"
    implementations: ClassVar[tuple[Implementation, ...]] = tuple(
        Implementation(name, "", ("cpu",), {"float32": (0, 0), "float64": (0, 0)}) for name in ("one", "two")
    )
    m: Size
    n: Size
    k: Size
    layout: Literal["NN", "NT"] = "NN"
    eps: float = 0.5
    causal: bool = False

    @model_validator(mode="after")
    def _lucky(self) -> "Toy":
        if self.m == 13:
            raise ValueError("m = 13 is\nunlucky")
        return self

    @property
    def flop(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def byte_read(self) -> int:
        return 0

    @property
    def byte_written(self) -> int:
        return 0


def find(name: str) -> type[Problem]:
    if name != "toy":
        raise LookupError(f"no operator {name!r}; kernels/ has toy")
    return Toy


HEAD = "title: A sweep\nsource: {document: A guide}\noperator: toy\n"


def block(rest: str) -> str:
    """A sweep of one block, on line 5."""
    return f"{HEAD}cases:\n  - {{m: 64, n: 64, dtype: float32, {rest}}}\n"


def head(rest: str) -> str:
    """A sweep with something more at its top, on line 4."""
    return f"{HEAD}{rest}\ncases:\n  - {{m: 64, n: 64, k: 1, dtype: float32}}\n"


def read(folder: Path, text: str | bytes, name: str = "x.yaml", sm_count: int = 132) -> Loaded:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return sweep.load(path, find, sm_count, root=folder)


def problems(loaded: Loaded, *fields: str) -> list[Any]:
    """The fields of every problem, each once, in order."""
    found = dict.fromkeys(tuple(getattr(c.problem, f) for f in fields) for c in loaded.cases)
    return [one[0] if len(fields) == 1 else one for one in found]


# What the grammar means


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ("7", [7]),
        ("[1_000, 1__0]", [1000, 10]),
        ("[3, 1, 2]", [3, 1, 2]),
        ("{from: 3, to: 5}", [3, 4, 5]),
        ("{from: 5, to: 5}", [5]),
        ("{from: 8, to: 32, step: 8}", [8, 16, 24, 32]),
        ("{from: 1, to: 10, step: 4}", [1, 5, 9]),
        ("{from: 64, to: 1024, factor: 2}", [64, 128, 256, 512, 1024]),
        ("{from: 1, to: 5, factor: 1.2}", [1, 2, 3, 4, 5]),
        ("{from: 64, to: 128, factor: 1.41421356}", [64, 91, 128]),
        ("{from: 5, to: 6, factor: 1.0e+300}", [5]),
        ("{per_sm: 256}", [256 * 132]),
        ("[{per_sm: 64, plus: -128}, {per_sm: 64, plus: 128}]", [64 * 132 - 128, 64 * 132 + 128]),
        ("[1, {from: 10, to: 12}, {per_sm: 2}, 5]", [1, 10, 11, 12, 264, 5]),
        ("[{per_sm: 1}, 132, {from: 131, to: 133}, 7]", [132, 131, 133, 7]),  # each once
    ],
)
def test_values(tmp_path: Path, value: str, means: list[int]) -> None:
    assert problems(read(tmp_path, block(f"k: {value}")), "k") == means


def test_lists_multiply_and_the_first_key_varies_slowest(tmp_path: Path) -> None:
    text = HEAD + "cases:\n  - {k: [1, 2], m=n: [8, 9], dtype: float32}\n  - {n: 5, m=k: 6, dtype: float64}\n"
    loaded = read(tmp_path, text)
    assert problems(loaded, "k", "m", "n") == [(1, 8, 8), (1, 9, 9), (2, 8, 8), (2, 9, 9), (6, 6, 5)]
    assert [c.implementation for c in loaded.cases[:3]] == ["one", "two", "one"]
    assert loaded.sweep.title == "A sweep" and loaded.name == "x"


def test_implementations_and_caches_multiply(tmp_path: Path) -> None:
    loaded = read(tmp_path, head("implementations: two\ncache: [warm, cold]"))
    assert [(c.implementation, c.cache) for c in loaded.cases] == [("two", "warm"), ("two", "cold")]
    assert {c.cache for c in read(tmp_path, block("k: 1")).cases} == {"cold"}


def test_what_a_case_is_called(tmp_path: Path) -> None:
    case = read(tmp_path, block("k: [3, 4]"), "gemm/square.yaml").cases[0]
    assert case.name == "gemm/square-one-toy-float32-NN-m64-n64-k3-eps0.5-cold"
    assert case.key == f"gemm/square|toy|one|{parameters_text(case.problem.parameters())}|cold"
    assert case.series == "one cold dtype=float32 m=64 n=64 layout=NN eps=0.5 causal=False"


def test_a_series_is_a_line_of_the_plot(tmp_path: Path) -> None:
    """All that moves with the plot's x is left out of its name, else every point were its own line."""
    one = "implementations: one\n"
    cases = (
        "cases:\n  - {m=n: [8, 9], k: [1, 2, 3], dtype: float32}\n  - {m: 7, n: 8, k: 1, dtype: float32}\n"
    )

    def series(plot: str) -> list[str]:
        named = (each.series for each in read(tmp_path, HEAD + one + plot + cases).cases)
        return list(dict.fromkeys(name.removesuffix(" layout=NN eps=0.5 causal=False") for name in named))

    assert series("plot: {x: n}\n") == [
        *(f"one cold dtype=float32 k={k}" for k in (1, 2, 3)),
        "one cold dtype=float32 m=7 k=1",
    ]
    assert series("plot: [{x: k}, {x: m}]\n") == [
        *(f"one cold dtype=float32 m={m} n={m}" for m in (8, 9)),
        "one cold dtype=float32 m=7 n=8",
    ]
    assert series("") == [  # the axis with most values
        *(f"one cold dtype=float32 m={m} n={m}" for m in (8, 9)),
        "one cold dtype=float32 n=8 k=1",
    ]


def test_the_top_of_a_sweep(tmp_path: Path) -> None:
    text = head(
        "plot: {x: k, y: rate, lines: [implementation, m], panels: dtype, log: x}\n"
        'claims: [{id: MM-01b, says: "8 is\n best", slope: {x: k}, expect: above 1}]'
    ).replace("A guide", "A guide, figure: 2, range: ours")
    found = read(tmp_path, text).sweep
    assert (found.source.figure, found.source.range, found.source.gpu) == ("2", "ours", "")
    assert (found.plot[0].lines, found.plot[0].panels) == (("implementation", "m"), ("dtype",))
    assert found.claims[0].says == "8 is best"
    assert found.claims[0].test == ("slope", Slope(x="k"))


# Mistakes: the line, what was given, what there is

FIELDS = "dtype, m, n, k, layout, eps, causal"
COLUMNS = f"implementation, cache, threads_asked, device, {FIELDS}"
TOP = "title, source, role, operator, implementations, cache, threads, cases, plot, claims"
OF_BLOCKS = {
    # parameters
    "k: 1, layuot: NN": f"5: toy has no parameter 'layuot' (did you mean layout?); it has {FIELDS}",
    "layout: NN": "5: toy needs dtype, m, n, k; not set here: k",
    "k: 1,\n    k=layout: 2": "6: k is given twice in this block",
    "k: 1,\n    m: 2": "6: key 'm' is given twice, first on line 5",
    "k = n: 1": f"5: toy has no parameter 'k ' (join names without spaces); it has {FIELDS}",
    "k: '64'": "5: k must be a whole number, not '64'",
    "k: [1,\n    0]": "6: k must be at least 1, not 0",
    "k: 1, layout: nn": "5: layout cannot be 'nn' (did you mean NN?); it is one of NN, NT",
    "k: 1, eps: '0,5'": "5: eps must be a number, not '0,5'",
    "k: 1, causal: 1": "5: causal must be a valid boolean, not 1",
    "k: {per_sm: 900000000000000}": "5: float32-NN-m64-n64-k118800000000000000-eps0.5 "
    "is too large: more than 2^63 FLOP or bytes",
    # ranges and lists
    "k: []": "5: key 'k' has an empty list",
    "k: [[1]]": "5: k has a list within its list; write one list",
    "k: {from: 9, to: 3}": "5: empty range: from 9 is above to 3",
    "k: {from: 1, to: 3, factor: 1}": "5: factor must be above 1, not 1",
    "k: {from: 0, to: 3, factor: 2}": "5: a range with a factor begins at 1 or above, not at 0",
    "k: {from: 1, to: 3, factor: 2, step: 1}": "5: a range has a step or a factor, not both",
    "k: {form: 1, to: 3}": "5: a range has no key 'form' (did you mean from?); it has from, to, step, factor",
    "k: {to: 3}": "5: a range needs the key 'from'",
    "k: {}": "5: k has a mapping that is none of {from, to, step}, {from, to, factor} and {per_sm}",
    "k: {from: 1, to: 1000000000}": "5: 2000000000 cases up to here; a sweep has at most 100000",
    "k: {from: 1, to: 1000000000, factor: 1.0000001}": "5: factor 1.0000001 is too near 1: 207232669 steps",
    # scalars that YAML 1.1 reads as something else than they look like
    "k: 1e3": "5: k must be a whole number, not 1000.0",
    "k: 1, layout: no": "5: layout cannot be 'no'; it is one of NN, NT",
    "k: null": "5: key 'k' has no value",
    "k: [1, ~]": "5: an item of this list has no value",
    "k: 0x10": "5: k must be a whole number, not '0x10'",
}
OF_PLOTS = {
    "{y: rate}": "plot needs the key 'x'",
    "{x: q}": f"toy has no parameter 'q'; it has {FIELDS}",
    "{x: k, per: layout}": "toy has no number 'layout'; it has m, n, k",
    "{x: k, y: rate, per: m}": "per divides a duration; a rate is for each second already",
    "{x: k, y: speed}": "y cannot be 'speed'; it is one of median_s, rate",
    "{x: n, kind: quantization, y: rate, panels: m}": "kind: quantization is drawn one way: "
    "leave out panels, y",
}
LESS = "{id: MM-01, says: s, expect: above 1, ratio: {of: {m: 1}, less: {of: {q: 1}}}}"
OF_TOPS = {
    **{f"plot: {plot}": f"4: {says}" for plot, says in OF_PLOTS.items()},
    "plot:\n  kind: quantization\n  x: k": "6: tiles quantize m and n; x: k is neither",
    "plot:\n  - {x: k}\n  - x: k\n    lines: [m, foo]": "7: a plot of toy has no column 'foo'; "
    f"it has {COLUMNS}",
    "5: 1": "4: a key is a name, not 5",
    "titel: x": f"4: a sweep has no key 'titel' (did you mean title?); it has {TOP}",
    "role: rof": "4: role cannot be 'rof' (did you mean roof?); "
    "it is one of measurement, roof, probe, calibration",
    "implementations: [one,\n  twoo]": "5: toy has no implementation 'twoo' "
    "(did you mean two?); it has one, two",
    "claims: [MM-01]": "4: a claim must be a mapping, not 'MM-01'",
    f"claims: [{LESS}]": f"4: a claim about toy has no column 'q'; it has {', '.join(FACTS)}, {FIELDS}",
}
CHANGED = {
    ("float32", "int8"): "5: toy has no dtype 'int8'; it has float32, float64",
    ("m: 64", "m: 13"): "5: m = 13 is unlucky (at m=13 n=64 dtype=float32 k=1)",
    ("A sweep", "5"): "1: title must be a valid string, not 5",
    ("{document: A guide}", "A guide"): "2: source must be a mapping, not 'A guide'",
    ("document", "documnt"): "2: source has no key 'documnt' (did you mean document?); it has "
    "document, section, figure, table, gpu, library, range, note",
    ("toy", "tyo"): "3: no operator 'tyo'; kernels/ has toy",
}
"""What stands in a right sweep, and what instead."""
NO_ALIASES = "anchors (&name) and aliases (*name) are not used here: write the value out"
MISTAKES = {
    **{block(rest): says for rest, says in OF_BLOCKS.items()},
    **{head(rest): says for rest, says in OF_TOPS.items()},
    **{block("k: 1").replace(*change): says for change, says in CHANGED.items()},
    head("x: 1").replace("title", "titel"): "1: a sweep has no key 'titel' "
    f"(did you mean title?); it has {TOP}",
    HEAD: "1: a sweep needs the key 'cases'",
    HEAD + "cases: {m: 1}": "4: cases must be a list, not a mapping",
    HEAD + "cases:\n  - 5": "5: a block of cases must be a mapping, not 5",
    # what is hardly a sweep at all
    "": "1: this file is empty; a sweep begins with `title:`",
    "- title: x\n": "1: a sweep is a mapping that begins with `title:`, not a list",
    HEAD + "cases: [\n": "5: this is not YAML: while parsing a flow node, did not find expected node content",
    HEAD + "---\ntitle: y\n": "4: a second document begins here; one file holds one sweep",
    HEAD + "cases: &a [*a]": f"4: {NO_ALIASES}",
    HEAD
    + "cases: !!python/name:os.system []": "4: tags (!name) are not used here: quote what is meant as text",
    b"title: x\n\x89PNG\xff": " this is not YAML: unacceptable character #x0089: "
    'invalid leading UTF-8 octet in "<byte string>", position 9',
    HEAD + "cases: " + "[" * 20: "4: nested more than 8 deep; no sweep is",
}


@pytest.mark.parametrize(("text", "says"), MISTAKES.items(), ids=[m[:60] for m in MISTAKES.values()])
def test_every_mistake_is_one_line_with_its_place(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, text, "gemm/x.yaml")
    assert str(refused.value) == f"{tmp_path.name}/gemm/x.yaml:{says}"


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.yaml").mkdir()
    Path("long.yaml").write_bytes(b"#" * (yaml_nodes.MAX_BYTE + 1))
    Path("a b.yaml").write_text(block("k: 1"))
    for path, says in {
        "none.yaml": "cannot be read: No such file or directory",
        "folder.yaml": "cannot be read: Is a directory",
        "long.yaml": "this file is longer than 1000000 bytes: no sweep is",
        "a b.yaml": "'a b' is no name for a sweep: use letters, digits and _ . + -",
    }.items():
        with pytest.raises(UserError) as refused:
            sweep.load(Path(path), find, 1)
        assert str(refused.value) == f"{path}: {says}"


# Which sweeps there are


def test_which_sweep_a_name_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, here = tmp_path / "sweeps", tmp_path / "here"
    names = "gemm/square", "gemm/tall", "ceilings/gemm", "ceilings/launch", "ceilings/own", "pool/small"
    for name in names:
        read(root, block("k: 1"), f"{name}.yaml")
    read(here, block("k: 1"), "mine.yaml")
    (root / "gemm/.square.yaml").write_text("left by an editor")
    monkeypatch.chdir(here)
    shows_all = "`python -m bench list` shows all 6"
    for name, means in {
        "gemm": ["gemm/square", "gemm/tall"],
        "gemm/": ["gemm/square", "gemm/tall"],
        "gemm/square": ["gemm/square"],
        "gemm/square.yaml": ["gemm/square"],
        "square": ["gemm/square"],
        "square.yaml": ["gemm/square"],
        "ceilings": ["ceilings/launch", "ceilings/gemm", "ceilings/own"],
        "ceilings/gemm": ["ceilings/gemm"],
        str(root / "pool"): ["pool/small"],
        "../sweeps/gemm/tall.yaml": ["gemm/tall"],
        "mine.yaml": ["mine"],
        ".": ["mine"],
    }.items():
        loaded = sweep.load_all(sweep.select(name, root), find, 1, root)
        assert [one.name for one in loaded] == means, name
    for name, hint in {
        "sqare": " (did you mean gemm/square?)",
        "cubes": "",
        "gemm/sqare": " (did you mean gemm/square?)",
        "": "",
        "x" * 999: "",
    }.items():
        with pytest.raises(UserError) as refused:
            sweep.select(name, root)
        assert str(refused.value) == f"sweeps/ has no sweep {yaml_nodes.shown(name)}{hint}; {shows_all}"


def test_what_is_on_request_is_meant_by_its_own_name_alone(tmp_path: Path) -> None:
    """Of a long sweep: a run of everything, or of its folder, must not grow by it."""
    root = tmp_path / "sweeps"
    for name in ("ceilings/short", f"ceilings/{sweep.ON_REQUEST}/long"):
        read(root, block("k: 1"), f"{name}.yaml")
    for name, means in {
        "ceilings": ["ceilings/short"],
        "long": ["ceilings/on_request/long"],
        "ceilings/on_request/long.yaml": ["ceilings/on_request/long"],
        "ceilings/on_request": ["ceilings/on_request/long"],
        str(root / "ceilings" / "on_request"): ["ceilings/on_request/long"],
    }.items():
        loaded = sweep.load_all(sweep.select(name, root), find, 1, root)
        assert [one.name for one in loaded] == means, name
    assert [one.name for one in sweep.load_all(root, find, 1, root)] == ["ceilings/short"]


def test_all_of_a_folder(tmp_path: Path) -> None:
    root = tmp_path / "sweeps"
    root.mkdir()
    with pytest.raises(UserError, match=r"^sweeps: there is no sweep in this folder$"):
        sweep.load_all(root, find, 1, root)
    read(root, block("k: 1"), "b.yaml")
    for name, role in (("a", "measurement"), ("y", "calibration"), ("z", "roof")):
        read(root, f"role: {role}\n{block('k: 1')}", f"{name}.yaml")
    loaded = sweep.load_all(root, find, 1, root)
    assert [one.name for one in loaded] == ["y", "z", "a", "b"]
    roles = {one.name: {case.role for case in one.cases} for one in loaded}
    assert roles == {"y": {"calibration"}, "z": {"roof"}, "a": {"measurement"}, "b": {"measurement"}}
    assert [one.name for one in sweep.load_all(root / "b.yaml", find, 1, root)] == ["b"]
    read(tmp_path, block("k: 1"), "b.yaml")
    with pytest.raises(UserError, match=r"b\.yaml: its rows would mix with those of .*b\.yaml; rename"):
        sweep.load_all([root / "b.yaml", tmp_path / "b.yaml"], find, 1, root)
