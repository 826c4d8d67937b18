"""The checks of browser.py find what they look for; otherwise pages would pass unseen."""

from pathlib import Path

from tests.plots.browser import Browsing

_HEAD = (
    '<!DOCTYPE html><html lang="en"><head><title>A page</title>{}</head><body><main>{}</main></body></html>'
)


def test_all_faults_are_found_but_colours_on_a_telephone_and_in_the_dark_only_they(
    browsing: Browsing, tmp_path: Path
) -> None:
    file = tmp_path / "a page.html"
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
