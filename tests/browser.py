"""A real browser for tests of pages: a headless Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1280, 390)  # a desk and a phone


def chromium() -> str:
    """Path of the browser; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.skip("needs a Chromium in PATH (Debian: apt-get install chromium)")
    return found


@dataclass
class Watched:
    """A page, with all that it asked for and all that it complained of since it was opened."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # addresses that answered with an error


@contextmanager
def opened(url: str, width: int = 1280, height: int = 900, login: tuple[str, str] | None = None) -> Iterator[Watched]:
    """The page at `url` in a window of that size, once it has loaded. `login`: name and password, if it asks."""
    sandbox = [] if os.getuid() else ["--no-sandbox"]  # Chromium refuses its sandbox to root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=sandbox)
        try:
            credentials = {"username": login[0], "password": login[1], "send": "always"} if login else None
            watched = Watched(
                browser.new_page(viewport={"width": width, "height": height}, http_credentials=credentials)
            )
            watched.page.on("request", lambda request: watched.requests.append(request.url))
            watched.page.on("response", lambda reply: watched.refused.append(reply.url) if reply.status > 399 else None)
            watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
            watched.page.on(
                "console", lambda said: watched.errors.append(said.text) if said.type in ("error", "warning") else None
            )
            watched.page.goto(url, wait_until="load")
            yield watched
        finally:
            browser.close()
