"""The checks of browser.py find what they look for; otherwise pages would pass unseen."""

from pathlib import Path

import pytest

from tests.plots.browser import Browsing, broken_words, scrolls_sideways, violations

_HEAD = (
    '<!DOCTYPE html><html lang="en"><head><title>A page</title>{}</head><body><main>{}</main></body></html>'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a page.html"


def test_a_sound_page_passes(browsing: Browsing, file: Path) -> None:
    file.write_text(_HEAD.format("", "<h1>A page</h1><p>gemm n=4096 of two-level-names</p>"))

    page = browsing.open_page(file, 390)

    assert browsing.faults(page) == [] and browsing.requests == [file.as_uri()]


def test_errors_and_requests_are_collected(browsing: Browsing, file: Path) -> None:
    file.write_text(
        _HEAD.format('<script src="gone.js"></script>', "<script>console.error(1); gone()</script>")
    )

    browsing.open_page(file, 390)

    assert len(browsing.console_errors) == 3
    assert any("gone is not defined" in error for error in browsing.console_errors)
    assert browsing.requests == [file.as_uri(), (file.parent / "gone.js").as_uri()]


def test_a_wide_element_scrolls_sideways(browsing: Browsing, file: Path) -> None:
    file.write_text(_HEAD.format("", '<div style="width: 400px">wide</div>'))

    assert scrolls_sideways(browsing.open_page(file, 390))
    assert not scrolls_sideways(browsing.open_page(file, 1280))


def test_a_broken_word_is_named(browsing: Browsing, file: Path) -> None:
    narrow = '<p style="width: 4em; overflow-wrap: anywhere">two-level names Supercalifragilistic</p>'
    file.write_text(_HEAD.format("", narrow))

    assert broken_words(browsing.open_page(file, 390)) == ["Supercalifragilistic"]


def test_axe_names_a_violation_and_the_reader_who_prefers_dark_is_another(
    browsing: Browsing, file: Path
) -> None:
    style = "<style>@media (prefers-color-scheme: dark) { p { color: #ddd } }</style>"
    file.write_text(_HEAD.format(style, "<p>words</p>"))

    assert violations(browsing.open_page(file, 390)) == []
    dark = browsing.open_page(file, 1280, dark=True)
    for (violation,) in (violations(dark), browsing.faults(dark)):
        assert violation.startswith("color-contrast: ")
    assert violations(dark, colours=False) == []


def test_all_faults_are_found_but_colours_on_a_telephone_and_in_the_dark_only_they(
    browsing: Browsing, file: Path
) -> None:
    words = (
        '<p style="width: 4em; overflow-wrap: anywhere; color: #ddd">Supercalifragilistic<img src="data:,">'
    )
    file.write_text(
        _HEAD.format("", f"<script>console.error('odd')</script>{words}<hr style='width: 2000px'>")
    )

    def found(width: int, dark: bool = False) -> list[str]:
        return [fault.split(":")[0] for fault in browsing.faults(browsing.open_page(file, width, dark))]

    said = ["Supercalifragilistic", "it scrolls sideways"]
    assert found(1280) == ["odd", *said, "color-contrast", "image-alt"]
    assert found(390)[2:] == [*said, "image-alt"] and found(1280, dark=True)[3:] == [*said, "color-contrast"]
