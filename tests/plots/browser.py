"""Pages in headless Chromium: what a reader's browser says of a file of ours.

The fixture `browsing` (conftest.py) gives a test a `Browsing`:

    page = browsing.open_page(tmp_path / "index.html", 390)
    page.get_by_role("button", name="Slower").click()
    assert browsing.faults(page) == [] and browsing.requests == [(tmp_path / "index.html").as_uri()]
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # half a second of each process that collects tests
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

LOOKS = ((1280, False), (1280, True), (390, False))
"""Widths, which decide what stands where, and whether it is dark, which decides the colours."""
CHROMIUM = shutil.which("chromium")
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
_CONTRAST = "color-contrast"
_BROKEN_WORDS = """() => {
    const broken = [];
    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
        const node = nodes.currentNode;
        for (const word of node.data.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
            if (lines.size > 1) broken.push(word[0]);
        }
    }
    return broken;
}"""


class Browsing:
    """The pages that one test opens, each in a profile of its own, and what all of them reported."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._dark: set[Page] = set()
        self.console_errors: list[str] = []
        """Errors on the console and exceptions that no script caught."""
        self.requests: list[str] = []
        """Every URL that was asked for, the page's own first; inlined data is none."""

    def open_page(self, path: Path, width: int, dark: bool = False) -> Page:
        """The loaded page of this file in a window `width` pixels wide, `dark` if its reader prefers that."""
        context = self._browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self._contexts.append(context)
        page = context.new_page()
        if dark:
            self._dark.add(page)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.resolve().as_uri())
        return page

    def faults(self, page: Page) -> list[str]:
        """Errors that the pages have reported, and what is wrong with this one.

        In the dark axe looks at its colours alone, which takes most of its time, and on a telephone at all
        else: there it passes over what is to be scrolled to.
        """
        found = [*self.console_errors, *broken_words(page)]
        found += ["it scrolls sideways"] * scrolls_sideways(page)
        is_narrow = (page.viewport_size or {"width": 0})["width"] < 1000
        return [*found, *violations(page, others=page not in self._dark, colours=not is_narrow)]

    def close(self) -> None:
        """Close the pages."""
        for context in self._contexts:
            context.close()

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(message.text)


@contextmanager
def started() -> Iterator[Browser]:
    """Chromium, until the block ends."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))
        yield browser
        browser.close()


def violations(page: Page, others: bool = True, colours: bool = True) -> list[str]:
    """What axe finds against WCAG A and AA in colours and in all else: each rule and what breaks it."""
    from axe_playwright_python.sync_playwright import Axe

    rules = {"type": "tag", "values": list(_WCAG)} if others else {"type": "rule", "values": [_CONTRAST]}
    options = {"runOnly": rules, "rules": {_CONTRAST: {"enabled": colours}}, "resultTypes": ["violations"]}
    broken = Axe().run(page, options=options).response["violations"]
    return [f"{rule['id']}: {[node['html'][:200] for node in rule['nodes']]}" for rule in broken]


def scrolls_sideways(page: Page) -> bool:
    """Whether the page is wider than its window."""
    return bool(page.evaluate("document.scrollingElement.scrollWidth > window.innerWidth"))


def broken_words(page: Page) -> list[str]:
    """Words that stand on two lines; a line may end after a hyphen, a slash or a sign."""
    words: list[str] = page.evaluate(_BROKEN_WORDS)
    return words
