"""Pages in a real browser: nothing is complained about, nothing sticks out, all can be read and reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bonafed.papers import register
from bonafed.papers.claim import Claim, Estimate, Settings, at_least, number, printed
from bonafed.papers.report import report_files
from bonafed.papers.reproducing import reproduce
from bonafed.presentation.documents import Column
from bonafed.presentation.figures import sheet
from bonafed.presentation.page import Details, Page, Part, Table
from bonafed.presentation.page_pictures import picture
from tests.browser.conftest import PHONE, inspected

HOSTILE = '</script><script>document.title = "taken"</script><b onclick="x">&amp; "quoted" \u202egnitirw'
LONG = "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft" * 2


def a_figure(_rows: Any) -> Any:
    figure = sheet(9.0, 3.0)
    axes = figure.subplots()
    axes.plot([1, 2, 3], [1, 4, 9], label=HOSTILE)
    axes.set(xlabel="money", ylabel=LONG[:40])
    axes.set_title(HOSTILE, parse_math=False)
    axes.legend()
    return figure


def awkward(identifier: str, paper: str, value: float) -> Claim:
    """Of one's own, with names that nobody would choose."""

    def rows(settings: Settings, _: Any) -> list[dict[str, Any]]:
        return [
            {f"column {k} of {HOSTILE}": value * k for k in range(20)} | {"value": value, "who": LONG}
        ] * 50

    def judge(table: Any) -> list[Any]:
        ours = Estimate(number(table[0], "value"))
        return [at_least(HOSTILE, ours, 0.0), printed(LONG, ours, 1.0, 0.5)]

    presets = {name: Settings(seeds=k) for k, name in enumerate(("smoke", "quick", "paper"), 1)}
    return Claim(
        identifier, paper, f"figure 1, {HOSTILE}", f"{LONG} {HOSTILE}.", presets, rows, judge, a_figure,
        {"seed": 1}, about=f"{HOSTILE}\n\n{LONG} and `code`.",
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the register and of awkward claims, one of them at two sizes."""
    folder = tmp_path_factory.mktemp("report")
    mine = awkward("mine-first", "mine", 1.0)
    claims = [register.find("faithful-fig2"), mine, awkward("mine <second>", HOSTILE, -3.0)]
    done = reproduce(claims, "smoke", folder / "cells", cores=1)
    done += reproduce([mine], "paper", folder / "cells", cores=1)
    files = report_files(done, folder, f"bonafed reproduce {HOSTILE}")
    for path, content in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return folder / "index.html"


def test_the_report(look: Any, report: Path) -> None:
    inspected(look, report)


def test_no_name_becomes_an_element(look: Any, report: Path) -> None:
    page = look(report)
    assert page.tab.title() == "The papers' claims, put to the test"
    assert page.tab.evaluate("document.querySelectorAll('b, [onclick]').length") == 0
    assert page.tab.evaluate("document.querySelectorAll('script:not([type])').length") == 0
    claims = json.loads(page.tab.evaluate("document.getElementById('claims').textContent"))
    assert claims[1]["place"] == f"figure 1, {HOSTILE}"


def test_every_link_of_the_report_leads_somewhere(look: Any, report: Path) -> None:
    page = look(report)
    broken = page.tab.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].map((a) => a.getAttribute('href').slice(1))"
        ".filter((anchor) => !document.getElementById(anchor))"
    )
    assert broken == []


def test_wide_tables_scroll_by_themselves_and_by_keyboard(look: Any, report: Path) -> None:
    page = look(report, PHONE)
    page.unfold()
    inside = page.tab.evaluate(
        "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth)"
        ".map((e) => e.tabIndex)"
    )
    assert inside
    assert set(inside) == {0}


def test_figures_are_seen_on_black(look: Any, tmp_path: Path) -> None:
    """Ink of a figure differs from the page it is on, in light and in dark."""
    path = tmp_path / "page.html"
    drawn = picture(a_figure([]), "a line")
    path.write_bytes(Page("One figure", (), (Part("It", "it", (drawn,)),)).to_html())
    for scheme, backdrop in (("light", 255), ("dark", 0x18)):
        shot = look(path, scheme=scheme).tab.locator("figure img").screenshot()
        shades = grey(shot)
        assert min(abs(shade - backdrop) for shade in shades) < 16
        assert max(abs(shade - backdrop) for shade in shades) > 180


def grey(png: bytes) -> set[int]:
    import io

    from PIL import Image

    counts = Image.open(io.BytesIO(png)).convert("L").histogram()
    return {shade for shade, count in enumerate(counts) if count}


def test_a_policy_stops_what_got_in(look: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    page = Page("A page", (), (Part("Part", "part", ("words",)),)).to_html()
    path.write_bytes(page.replace(b"words", b"<script>document.title = 'taken'</script>"))
    seen = look(path)
    assert seen.tab.title() == "A page"
    assert any("Content Security Policy" in text for text in seen.complaints)


def test_a_table_with_names_from_outside(look: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    table = Table(
        HOSTILE, (Column(HOSTILE, left=True), Column("")), ((LONG, 1.0), (HOSTILE, None)), HOSTILE
    )
    path.write_bytes(Page(HOSTILE, (HOSTILE,), (Part(HOSTILE, "a", (Details(LONG, (table,)),)),)).to_html())
    inspected(look, path)
