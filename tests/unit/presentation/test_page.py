"""A page is one file that asks for nothing, and in which names from outside stay names."""

import json
import re
from html.parser import HTMLParser

import pytest

from bonafed.errors import InvalidValue
from bonafed.presentation.documents import Column, Sketch, Table
from bonafed.presentation.figures import sheet
from bonafed.presentation.page import (
    Badge,
    Details,
    Facts,
    Grid,
    Link,
    Page,
    Part,
    Point,
    Slider,
    Words,
    embedded,
)  # fmt: skip
from bonafed.presentation.page_pictures import compact_png, compact_svg, files, picture

HOSTILE = "</script></style></title>--><script>alert(1)</script><img src=x onerror=y> & \"'\u2028\ud800\x1b"


class Tags(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, content):
        super().__init__()
        self.found = []
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def named(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def everything(name):
    """Every kind of block, with a name from outside wherever one can be."""
    table = Table(name, (Column(name, left=True), Column("")), ((name, 1.5), (name, None)), name)
    slider = Slider("mine", name, name, (Point(name, ((name, name),), (name,)), Point("b")), 1)
    blocks = (
        name, Words((name, Link(name, "#one"), Badge(name)), "note"), table, Grid(table, {(0, 0): "#one"}),
        Facts(((name, name), ("b", Words((Badge("holds"),))))), Details(name, (table,)), slider,
        picture(drawn(name), name, name),
    )  # fmt: skip
    parts = (Part(name, "one", blocks, (Part(name, "two", ()),)),)
    return Page(name, (name,), parts, {"data": {name: [name, float("nan")]}}, name)


def drawn(name):
    figure = sheet(4.0, 3.0)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], label="a line")
    axes.set_title(name.replace("\ud800", ""), parse_math=False)
    axes.legend()
    return figure


@pytest.mark.filterwarnings("ignore:Glyph")  # characters that no font has
def test_names_from_outside_are_no_elements():
    tags, plain = Tags(everything(HOSTILE).to_html()), Tags(everything("ada").to_html())
    assert [tag for tag, _ in tags.found] == [tag for tag, _ in plain.found]
    assert not any(name.startswith("on") for _, attributes in tags.found for name in attributes)


@pytest.mark.filterwarnings("ignore:Glyph")
def test_data_come_back_as_they_were():
    data = embedded(everything(HOSTILE).to_html(), "data")
    assert data == {HOSTILE: [HOSTILE, None]}
    with pytest.raises(InvalidValue, match="must hold data called other"):
        embedded(everything("ada").to_html(), "other")


def test_it_loads_nothing_and_allows_only_its_own():
    content = everything("ada").to_html()
    tags = Tags(content)
    sources = [a.get("src") or a.get("href") for _, a in tags.found if "src" in a or "href" in a]
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert not re.search(rb"@import|url\(http", content)
    (policy,) = [a["content"] for a in tags.named("meta") if "Content-Security" in a.get("http-equiv", "")]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not any("style" in attributes for _, attributes in tags.found)  # the policy would not allow it


def test_without_a_slider_there_is_no_script():
    content = Page("Title", (), (Part("A", "a", ("words",)),)).to_html()
    assert b"<script" not in content
    assert b"script-src 'none'" in content


def test_it_can_be_read_by_ear():
    tags = Tags(everything("ada").to_html())
    assert tags.named("html") == [{"lang": "en"}]
    assert len(tags.named("h1")) == len(tags.named("main")) == len(tags.named("title")) == 1
    assert all(image["alt"] for image in tags.named("img"))
    (label,), (slider,) = tags.named("label"), tags.named("input")
    assert label["for"] == slider["id"]
    scrolling = [a for a in tags.named("div") if a.get("class") == "scroll"]
    assert scrolling
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in scrolling)


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "http://example.org", "data:text/html,x", "", "//x"]
)
def test_links_lead_to_safe_places_only(address):
    with pytest.raises(InvalidValue, match="address must be an anchor"):
        Link("here", address)


@pytest.mark.parametrize("address", ["#a", "https://example.org", "../errata.md#s-e1", "figures/a.svg"])
def test_other_links_are_fine(address):
    assert Link("here", address).address == address


def test_anchors_are_simple():
    with pytest.raises(InvalidValue, match="anchor must be"):
        Part("title", 'a" onclick="b')


def test_what_is_no_block_is_refused():
    with pytest.raises(TypeError, match="no block of a page: Sketch"):
        Page("Title", (Sketch("x", (0.0, 1.0), ()),), ()).to_html()


def test_verdicts_have_a_colour_and_a_word():
    blocks = (Words((Badge("holds with a correction (F-D9)"), Badge("undecided, 9 seeds would decide"))),)
    content = Page("Title", blocks, ()).to_html().decode()
    assert '<span class="badge fair">holds with a correction (F-D9)</span>' in content
    assert '<span class="badge open">undecided, 9 seeds would decide</span>' in content


def test_figures_are_small_and_the_same_every_time(tmp_path):
    figure = drawn("Growth of $x$ & <more>")
    small = compact_svg(figure)
    assert small == compact_svg(drawn("Growth of $x$ & <more>"))
    assert "Growth of $x$ &amp; &lt;more&gt;" in small
    assert len(small) < 12_000
    assert compact_png(figure) == compact_png(figure)
    written = files(figure, tmp_path / "faithful-fig1.2")
    assert [path.name for path in written] == ["faithful-fig1.2.png", "faithful-fig1.2.svg"]
    assert max(map(len, written.values())) < 20_000


def test_digits_in_words_of_a_figure_stay():
    figure = drawn("0.123456 of 1.000001")
    assert "0.123456 of 1.000001" in compact_svg(figure)


def test_points_of_a_slider_are_data():
    content = everything("ada").to_html()
    points = embedded(content, "mine-points")["points"]
    assert json.loads(json.dumps(points)) == [
        {"at": "ada", "facts": [["ada", "ada"]], "words": ["ada"]}, {"at": "b", "facts": [], "words": []},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "cell", "kinds"),
    [
        (4, "1.2345", set()),
        (14, "1.2345", {"wide"}),
        (40, "1.2345", {"wide", "widest"}),
        (2, "a" * 200, set()),  # is broken where its cell ends
    ],
)
def test_a_table_is_set_as_small_as_it_must(columns, cell, kinds):
    table = Table("t", tuple(Column("value", left=True) for _ in range(columns)), ((cell,) * columns,))
    tags = Tags(Page("p", (), (Part("P", "p", (table,)),)).to_html())
    (found,) = tags.named("table")
    assert set(found.get("class", "").split()) == kinds
    assert all(
        ("long" in cell.get("class", "")) == (len(kinds) == 0 and columns == 2) for cell in tags.named("td")
    )
