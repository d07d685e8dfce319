"""A real browser, Debian's Chromium, which looks at pages as people do: on a phone, a screen and paper.

Where it is missing the tests are skipped, and say so; on continuous integration (CI=true) they fail.
"""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import unicodedata
from collections import Counter
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
_LONGEST = 24  # letters of a word that a page keeps in one piece
# words that a browser set on two lines; what people themselves separate may be
_BROKEN = """(longest) => {
  const broken = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    for (const word of node.data.matchAll(/[A-Za-z0-9_.%]+/g)) {
      if (word[0].length > longest || !node.parentElement.checkVisibility()) continue;
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((line) => Math.round(line.top)));
      if (lines.size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""
# elements that hold more than they show, with what they are called
_CLIPPED = """() => [...document.querySelectorAll('body *')]
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible')
  .map((e) => `${e.className} ${e.getAttribute('aria-label')}: ${e.scrollWidth} > ${e.clientWidth}`)"""
_SENTENCES = ("Findings", "What was promised", "Verification")  # tables of words, which fit a phone
# what passed is neither gathered nor sent: in a table of a thousand cells that is most of the work
_VIOLATIONS = """async (rules) => {
  const options = { runOnly: { type: 'tag', values: rules }, resultTypes: ['violations'] };
  const found = await axe.run(document, options);
  return found.violations.flatMap(
    (each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 200)}`));
}"""
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


def _lacking() -> str:
    """What a browser test needs and is not there."""
    if shutil.which("chromium") is None:
        return "Chromium is missing (Debian: apt-get install chromium)"
    for module in ("playwright", "axe_playwright_python", "pypdf"):
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

    def broken_words(self) -> list[str]:
        """Words that begin on one line and end on another."""
        return list(self.tab.evaluate(_BROKEN, _LONGEST))

    def clipped(self) -> list[str]:
        """What can only be seen by scrolling sideways."""
        return list(self.tab.evaluate(_CLIPPED))

    def missing_on_paper(self) -> list[str]:
        """Words of the page that its print lacks, as often as they lack."""
        words = self.tab.evaluate(
            "(() => { const all = document.body.cloneNode(true);"
            "all.querySelectorAll('nav, .skip, .slider, script').forEach((e) => e.remove());"
            "all.querySelectorAll('*').forEach((e) => e.append(' ')); return all.textContent; })()"
        ).split()
        import pypdf

        pages = pypdf.PdfReader(io.BytesIO(self.tab.pdf(format="A4"))).pages
        printed = unicodedata.normalize(
            "NFKC", "".join("".join(page.extract_text().split()) for page in pages)
        )
        counts = Counter(unicodedata.normalize("NFKC", word) for word in words if len(word) <= _LONGEST)
        return [word for word, count in counts.items() if printed.count(word) < count]

    def violations(self) -> list[str]:
        """What axe-core finds wrong, with the element."""
        self.tab.evaluate((resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
        return list(self.tab.evaluate(_VIOLATIONS, _RULES))

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
        page = look(path, width)
        page.unfold()
        for scheme in ("light", "dark"):  # no script of a page knows of them: it need not be loaded again
            page.tab.emulate_media(color_scheme=scheme)
            assert page.overflow() <= 0, (width, scheme)
            assert page.violations() == [], (width, scheme)
            assert page.unseen_pictures() == []
            assert page.complaints == []
            assert all(address.startswith(("file:", "data:")) for address in page.requests)
    paper = look(path, PAPER)
    paper.tab.emulate_media(media="print")
    assert paper.overflow() <= 0


def whole(look: Any, path: Path) -> None:
    """Of pages about runs and contracts: all is seen, in words that are not broken, also on paper."""
    page = look(path)
    assert page.missing_on_paper() == []
    page.unfold()
    assert page.clipped() == []  # on a phone, wide tables scroll by themselves
    for media, width in (("screen", SCREEN), ("screen", PHONE), ("print", PAPER)):
        page.tab.emulate_media(media=media)
        page.tab.set_viewport_size({"width": width, "height": 844})
        assert page.overflow() <= 0, (media, width)
        assert page.broken_words() == [], (media, width)
        if width == PHONE:
            assert [each for each in page.clipped() if any(title in each for title in _SENTENCES)] == []
