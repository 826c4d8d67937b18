"""The site: a folder of pages that need no server, made of result files."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bench.accept.command import judge_files
from bench.cli.across import Across
from bench.cli.claims import judged_rows
from bench.cli.guide_tables import device, summary
from bench.cli.operator_facts import facts
from bench.errors import UserError
from bench.fleet.report import judged as judged_fleet
from bench.format import count_text
from bench.judge.achieved import by_age
from bench.judge.claims import JudgedClaim, Verdict
from bench.judge.frame import DeviceRun
from bench.judge.speedup import CASE
from bench.store.parquet import Sweeps
from bench.store.schema import RunKey
from bench.sweep.experiments import HALF, LACKING, RULES
from plots.accept import page as accept_page
from plots.base import style
from plots.base.shell import templates
from plots.base.vega import library
from plots.buy import page as buy_page
from plots.fleet import page as fleet_page
from plots.report import page as report_page
from plots.website import operators

MOST = 3_000
"""Cases on the page of one device; of more every so many-th problem is shown."""
_LIBRARY = "charts.js"
_MARKER = ".roofbench-site"
"""Names the files of a site, one a line: those that the next site may delete."""
DECIDED: tuple[Verdict, ...] = ("SUPPORTED", "CONTRADICTED", "UNDECIDED")
_HEAD = (
    "<style>nav.site { display: flex; flex-wrap: wrap; gap: 0.2rem 1.1rem; font-size: 0.95rem; "
    "border-bottom: 1px solid var(--faint); padding-bottom: 0.4rem; }</style>\n</head>"
)


class Given(NamedTuple):
    """What a site is made of."""

    runs: Sequence[DeviceRun]
    """The runs, with datasheets, on devices that others have measured and on ours."""
    sweeps: Mapping[RunKey, Sweeps]
    verdicts: Sequence[JudgedClaim]
    """Verdicts on imported runs, if they are judged already."""
    fleet: Path
    accept: Path
    """Result of one unit."""
    whole: bool
    """Whether the public times of all devices are among them, of which the checkout has samples only."""
    ours: Callable[[str], bool]
    """Whether this checkout has a sweep."""


def write(given: Given, folder: Path, say: Callable[[str], object]) -> int:
    """Write all pages below the folder, which is emptied of an earlier site; its bytes."""
    _empty(folder)
    say("judging")
    known = {(each.device, each.imported) for each in given.verdicts}
    fresh = [run for run in given.runs if (run.device, run.imported) not in known]
    groups = judged_rows(fresh, given.sweeps, lambda sentence: None)
    judged = [*given.verdicts, *(each for _, of in groups for each in of)]
    say("comparing devices")
    rows = pd.concat([run.rated for run in given.runs], ignore_index=True)
    site = _Site(folder, given, rows)
    base = most_alike(rows)
    across = Across(sorted(given.runs, key=lambda run: run.device != base))
    site.write("buy.html", buy_page.html(across, {}))
    every_rule = rules(judged)
    for rule in every_rule:
        site.render(f"rule/{rule['number']}.html", f"Rule {rule['number']}: {rule['says']}", rule=rule)
    pages = [name for name in sorted(set(rows["operator"])) if site.operator(str(name))]
    for name in site.devices:
        say(f"page of {name}")
        site.device(name, groups)
    site.write("fleet.html", fleet_page.html(judged_fleet([given.fleet], None, expect=False)))
    site.write("accept.html", accept_page.html(judge_files([given.accept], [])))
    site.render("method.html", "How it is measured")
    site.start(judged, every_rule, pages)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _empty(folder: Path) -> None:
    """Delete the files of an earlier site and no others. UserError if there are files, but none of a site."""
    marker = folder / _MARKER
    if marker.exists():
        for name in marker.read_text("utf-8").splitlines():
            (folder / name).unlink(missing_ok=True)
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: holds files that are no site of ours; give an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("")


def most_alike(rows: pd.DataFrame) -> str:
    """The device whose cases most other devices have, which all are compared with."""
    timed = rows[(rows["median_s"] > 0) & (rows["role"] == "measurement")]
    pairs = timed[["device", *CASE]].drop_duplicates()
    pairs["case"] = pairs.groupby([*CASE], sort=False, dropna=False).ngroup()
    met = pairs[["device", "case"]].merge(pairs[["device", "case"]], on="case", suffixes=("", "_to"))
    counts = met[met["device"] != met["device_to"]].groupby("device")["device_to"].nunique()
    return str(counts.idxmax() if len(counts) else rows["device"].iloc[0])


class _Site:
    def __init__(self, folder: Path, given: Given, rows: pd.DataFrame) -> None:
        self.folder, self.given, self.rows = folder, given, rows
        self.sheets = {run.device: run.datasheet for run in given.runs}
        self.devices = by_age(self.sheets)
        self._templates = templates(Path(__file__).parent)
        self.file(_LIBRARY).write_text(_shared(library()), "utf-8")

    def file(self, path: str) -> Path:
        """A file of the site that is about to be written."""
        with (self.folder / _MARKER).open("a", encoding="utf-8") as names:
            names.write(f"{path}\n")
        file = self.folder / path
        file.parent.mkdir(exist_ok=True)
        return file

    def write(self, path: str, page: str, note: str = "") -> None:
        """A page with the site's navigation, and with the library of charts that all pages share."""
        up = "../" * path.count("/")
        nav = self._templates.get_template("nav.html.j2").render(up=up, note=note)
        page = page.replace("</head>", _HEAD, 1).replace("<body>", f"<body>\n{nav}", 1)
        inlined = f'<script type="application/gzip" id="library">{library()}</script>'
        page = page.replace(inlined, f'<script src="{up}{_LIBRARY}"></script>')
        self.file(path).write_text(page, "utf-8")

    def render(self, path: str, title: str, **words: Any) -> None:
        """A page of a template of the same name, or of its folder's."""
        template = path.replace("/", ".").split(".")[0] + ".html.j2"
        self.write(path, self._templates.get_template(template).render(title=title, **words))

    def operator(self, name: str) -> bool:
        """The page of an operator, if it has a curve."""
        drawn = operators.drawn(self.rows[self.rows["operator"] == name], self.sheets)
        if drawn is None:
            return False
        figure = f"{name}.svg"
        with style.look():
            made = operators.page(name, drawn, self.sheets)
            made.figure.savefig(self.file(f"operator/{figure}"), metadata={"Date": None})
        self.render(
            f"operator/{name}.html",
            name,
            name=name,
            facts=facts(name),
            drawn=drawn,
            figure=figure,
            reading=list(operators.reading(drawn)),
            sweep=any(map(self.given.ours, self.rows.loc[self.rows["operator"] == name, "sweep"].unique())),
        )
        return True

    def device(self, name: str, groups: Sequence[tuple[Sequence[DeviceRun], Sequence[JudgedClaim]]]) -> None:
        """The report of all runs of a device."""
        runs = [run for run in self.given.runs if run.device == name and run.measured]
        count = sum(run.measured for run in runs)
        shown = {run.key: _thinned(run, -(-count // MOST)) for run in runs}
        mine = [([shown[run.key] for run in of], said) for of, said in groups if of[0].key in shown]
        keys = {run.key for of, _ in mine for run in of}
        mine += [([run], []) for key, run in shown.items() if key not in keys]
        page = report_page.html(list(shown.values()), self.given.sweeps, mine, self.given.ours)
        left = sum(run.measured for run in shown.values())
        note = (
            f"{left:,} of its {count:,} times, every {-(-count // MOST)}th problem." if left < count else ""
        )
        self.write(f"device/{name}.html", page, note)

    def start(
        self, judged: Sequence[JudgedClaim], every_rule: Sequence[dict[str, Any]], pages: Sequence[str]
    ) -> None:
        """The start page: the rules over all devices."""
        times = int((self.rows["median_s"] > 0).sum())
        sources = {str(source).partition(";")[0] for source in self.rows["source"].dropna().unique()}
        self.render(
            "index.html",
            "roofbench: what the guides say, and what was measured",
            rules=every_rule,
            judged=sorted({device(each) for each in judged}),
            devices=[(name, count) for name in self.devices if (count := self._times(name))],
            operators=pages,
            words=f"{count_text(times, 'time')} of {count_text(len(self.devices), 'device')}",
            sources=sorted(sources),
            whole=self.given.whole,
        )

    def _times(self, name: str) -> int:
        return sum(run.measured for run in self.given.runs if run.device == name)


def _thinned(run: DeviceRun, every: int) -> DeviceRun:
    """The run with the rows of every so many-th problem, the same on every device, and all ceilings."""
    kept = [
        row
        for row in run.rows
        if every == 1 or row.role != "measurement" or zlib.crc32(row.parameters.encode()) % every == 0
    ]
    return replace(run, rows=kept or run.rows[:1])


def _shared(packed: str) -> str:
    """A script that puts the library where a page would have it."""
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", packed)
    return (
        'const library = document.createElement("script"); library.type = "application/gzip"; '
        f'library.id = "library"; library.textContent = "{packed}"; document.currentScript.after(library);\n'
    )


# ---- the rules of the guides


def rules(judged: Sequence[JudgedClaim]) -> list[dict[str, Any]]:
    """Every rule of the guides."""
    return [_rule(number, [each for each in judged if number in each.claim.rules]) for number in RULES]


def _rule(number: int, judged: Sequence[JudgedClaim]) -> dict[str, Any]:
    """One rule over all devices: the claims that speak to it, and `on` each device its verdicts in words."""
    counts = Counter(each.verdict for each in judged)
    by_device: dict[str, list[JudgedClaim]] = {}
    by_claim: dict[tuple[str, str], list[JudgedClaim]] = {}
    for each in judged:
        by_device.setdefault(device(each), []).append(each)
        by_claim.setdefault((each.declared.name, each.claim.id), []).append(each)
    missing = "" if judged else f"needs {LACKING[number]}" if number in LACKING else "not in these results"
    if number in HALF:
        missing = "; ".join(filter(None, (missing, f"the rest needs {HALF[number]}")))
    return dict(
        number=number,
        says=RULES[number],
        words=[(word, counts[word]) for word in DECIDED if counts[word]],
        on={name: summary(of) for name, of in by_device.items()},
        missing=missing,
        claims=sorted(map(_said, by_claim.values()), key=lambda of: (not of["lines"], of["first"].claim.id)),
    )


def _said(judged: Sequence[JudgedClaim]) -> dict[str, Any]:
    """A claim on every device, its effects and their intervals as places on a bar, percent of its width."""
    expected = judged[0].claim.expected
    wanted = [value for value in (expected.low, expected.high) if abs(value) < float("inf")]
    known = [each for each in judged if each.effect is not None and each.verdict in DECIDED]
    # An interval that is wider than all effects together is cut at the edge.
    values = [*wanted, *(each.effect.value for each in known if each.effect)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.25 * (high - low) or 0.5
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return 100 * min(1.0, max(0.0, (value - low) / (high - low)))

    lines = []
    for each in sorted(known, key=lambda each: each.effect.value if each.effect else 0.0):
        assert each.effect is not None
        begin, width = place(each.effect.low), place(each.effect.high) - place(each.effect.low)
        at = place(each.effect.value)
        lines.append({"judged": each, "name": device(each), "at": at, "begin": begin, "width": width})
    silent: dict[str, list[str]] = {}
    for each in judged:
        if each not in known:
            silent.setdefault(each.verdict, []).append(device(each))
    return {
        "first": judged[0],
        "lines": lines,
        "silent": [(word, ", ".join(dict.fromkeys(names))) for word, names in silent.items()],
        "bars": [place(value) for value in wanted],  # where the claim expects the effect to begin or end
        "ends": (low, high),
    }
