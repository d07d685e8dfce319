"""The documentation is true: its commands run, its generated pages are current, its links exist."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from bonafed.cli import app, main
from bonafed.mechanisms import catalogue

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]


def blocks(page):
    """The fenced blocks of a page: what opens each, such as `toml federation.toml`, and its content."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\S[^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(page):
    """The `$ bonafed ...` lines of a page's console blocks, in order."""
    text = "\n".join(content for kind, content in blocks(page) if kind == "console").replace("\\\n", " ")
    return [line[2:] for line in text.splitlines() if line.startswith("$ bonafed")]


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
def test_every_command_shown_runs(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)  # one folder per page: later commands use files of earlier ones
    for kind, content in blocks(page):
        _, _, name = kind.partition(" ")
        if name:  # a file that the reader is to write
            (tmp_path / name).write_text(content, encoding="utf-8")
    for command in commands(page):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        assert stop.value.code == 0, f"{command}\n{captured.err}"
        assert captured.out


def test_the_readme_shows_all_commands():
    shown = {command.split()[1] for command in commands(ROOT / "README.md")}
    # those of a real federation run until they are stopped, and are tried in tests/flower
    text = "".join(content for kind, content in blocks(ROOT / "README.md") if kind == "text")
    shown |= set(re.findall(r"^bonafed (\w+)", text, re.MULTILINE))
    root = typer.main.get_command(app)
    assert shown == set(root.list_commands(root.context_class(root)))


def test_make_demo_shows_the_files_of_the_readme():
    named = {kind.partition(" ")[2]: content for kind, content in blocks(ROOT / "README.md")}
    demo = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "demo").iterdir()}
    assert demo == {name: content for name, content in named.items() if name}


def test_the_tour_of_all_mechanisms_from_python_is_short():
    code = [content for kind, content in blocks(ROOT / "README.md") if kind == "python"]
    lines = [line for line in "".join(code).splitlines() if line.startswith((">>>", "... "))]
    assert len(lines) <= 60
    tour = "\n".join(lines)
    for mechanism in catalogue.CATALOGUE.values():
        if mechanism.table is not None:
            assert f"bonafed.{mechanism.name}." in tour or f'"{mechanism.table}": {{' in tour, (
                mechanism.name
            )


def test_the_command_line_page_is_what_the_code_says():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    page = generate.command_line_page()
    assert (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8") == page
    assert "\\" not in page  # Typer escapes brackets for Rich, which does not print them here


def anchors(page):
    """The names of a page's headings in links: lower case, punctuation gone, spaces as hyphens. A report
    names its sections itself."""
    if page.suffix == ".html":
        return set(re.findall(r'<section id="([^"]+)"', page.read_text(encoding="utf-8")))
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted((ROOT / "benchmarks").glob("*.md")), ROOT / "CHANGELOG.md"],
    ids=lambda p: p.name,
)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            found = page.parent / target if target else page
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), f"{target}#{anchor}"
