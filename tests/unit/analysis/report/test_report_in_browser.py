"""The report in a real browser, at the width of a desk and of a phone."""

from __future__ import annotations

import re

import pytest
from browser import WIDTHS, Watched, opened

from specloss.analysis.outputs import FIGURES
from specloss.analysis.report.page import write_report


@pytest.fixture(scope="module")
def address(experiment, tmp_path_factory) -> str:
    return write_report(*experiment, tmp_path_factory.mktemp("page")).as_uri()


@pytest.fixture(scope="module", params=WIDTHS)
def shown(request, address):
    with opened(address, request.param) as watched:
        yield watched


def test_it_asks_for_nothing_but_itself_and_complains_of_nothing(shown: Watched, address):
    assert [url for url in shown.requests if not url.startswith("data:")] == [address]
    assert shown.errors == []


def test_the_page_is_as_wide_as_the_window(shown: Watched):
    assert shown.page.evaluate("document.documentElement.scrollWidth") == shown.page.viewport_size["width"]


def test_every_plot_is_drawn_once(shown: Watched):
    for name in FIGURES:
        drawings = shown.page.locator(f"#{name} svg:visible")
        assert drawings.count() == 1
        box = drawings.bounding_box()
        assert box["width"] > 300 and box["height"] > 100
        assert drawings.locator("path").count() > 10


def column(shown: Watched, table: str, number: int) -> list[str]:
    return shown.page.locator(f"#{table} tbody tr td:nth-child({number})").all_inner_texts()


def test_a_click_sorts_by_number_and_another_the_other_way(shown: Watched):
    heads = shown.page.locator("#distortion th").all_inner_texts()
    number = 1 + next(i for i, head in enumerate(heads) if "accuracy" in head)
    rows = sorted(column(shown, "distortion", 1))
    for way in (1, -1):
        shown.page.click(f"#distortion th:nth-child({number}) button")
        values = [float(re.match(r"[+-]?[\d.]+", text)[0]) for text in column(shown, "distortion", number)]
        assert values == sorted(values)[::way] and len(set(values)) > 3
    assert sorted(column(shown, "distortion", 1)) == rows


def test_a_point_says_its_setting_and_values_on_hover_and_from_the_keyboard(shown: Watched):
    points, tip = shown.page.locator("#fig6_collaborative .point:visible"), shown.page.locator("#tip")
    assert points.count() == 3 * (1 + 2 + 3)  # benchmarks, settings with the lossless run
    points.nth(1).hover(force=True)
    assert tip.is_visible()
    assert re.fullmatch(
        r"lenience \(0.2\) on level_2\nBE [\d.]+ \[.+\]\naccuracy [\d.]+ % \[.+\]", tip.inner_text().strip()
    )
    shown.page.mouse.move(0, 0)
    assert not tip.is_visible()
    points.nth(0).focus()
    assert tip.inner_text().startswith("standard_sd on level_2")
    box = tip.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= shown.page.viewport_size["width"]


def test_in_print_nothing_is_cut_off(shown: Watched):
    page, size = shown.page, shown.page.viewport_size
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})  # A4 less its margins
    cut_off = page.evaluate(
        "[...document.querySelectorAll('table, svg, pre')].filter((part) => part.checkVisibility())"
        ".filter((part) => part.getBoundingClientRect().right > innerWidth + 1).map((part) => part.outerHTML)"
    )
    page.emulate_media(media="screen")
    page.set_viewport_size(size)
    assert cut_off == []
