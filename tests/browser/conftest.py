"""A real browser, Debian's Chromium, which looks at pages as people do: on a phone, a screen and paper.

Where it is missing the tests are skipped, and say so; on continuous integration (CI=true) they fail.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

PHONE, SCREEN, PAPER = 390, 1200, 690  # pixels; paper is A4 without its margins
_QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def _lacking() -> str:
    """What a browser test needs and is not there."""
    if shutil.which("chromium") is None:
        return "Chromium is missing (Debian: apt-get install chromium)"
    for module in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is missing (make test-browser installs it)"
    return ""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    reason = _lacking()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=shutil.which("chromium"), headless=True, args=list(_QUIET)
        )
        yield chromium
        chromium.close()


class Seen:
    """A page as a browser shows it, and all that it complained about."""

    def __init__(self, tab: Any, path: Path) -> None:
        self.tab = tab
        self.complaints: list[str] = []
        self.requests: list[str] = []
        tab.on("console", lambda message: self.complaints.append(message.text))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("request", lambda request: self.requests.append(request.url))
        tab.goto(path.resolve().as_uri())

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.tab.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def unfold(self) -> None:
        self.tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")

    def violations(self) -> list[str]:
        """What axe-core finds wrong, with the element."""
        self.tab.evaluate((resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
        found = self.tab.evaluate(
            "(rules) => axe.run(document, { runOnly: { type: 'tag', values: rules } })", _RULES
        )
        return [
            f"{each['id']}: {node['html'][:200]}" for each in found["violations"] for node in each["nodes"]
        ]

    def unseen_pictures(self) -> list[str]:
        """Pictures that the browser could not draw."""
        return list(
            self.tab.evaluate("[...document.images].filter((i) => !i.naturalWidth).map((i) => i.alt)")
        )


@pytest.fixture
def look(browser: Any) -> Iterator[Any]:
    """look(path, width, scheme="light" | "dark", javascript=True) -> Seen"""
    contexts = []

    def seen(path: Path, width: int = SCREEN, scheme: str = "light", javascript: bool = True) -> Seen:
        context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme=scheme, java_script_enabled=javascript
        )
        contexts.append(context)
        return Seen(context.new_page(), path)

    yield seen
    for context in contexts:
        context.close()


def inspected(look: Any, path: Path) -> None:
    """What holds of every page, wherever it is read."""
    for width in (PHONE, SCREEN):
        for scheme in ("light", "dark"):
            page = look(path, width, scheme)
            page.unfold()
            assert page.overflow() <= 0, (width, scheme)
            assert page.violations() == [], (width, scheme)
            assert page.unseen_pictures() == []
            assert page.complaints == []
            assert all(address.startswith(("file:", "data:")) for address in page.requests)
    paper = look(path, PAPER)
    paper.tab.emulate_media(media="print")
    assert paper.overflow() <= 0
