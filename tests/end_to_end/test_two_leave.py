"""What the page about payments says of clients that do not report is what the commands print."""

import json
import shlex

from tests.end_to_end.test_documentation import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "pay.md"
SECTION = PAGE.read_text(encoding="utf-8").split("### What if two leave?")[1].split("\n### ")[0]


def test_both_commands_go_on_and_say_what_the_page_says(bonafed, tmp_path):
    for kind, content in blocks(PAGE):
        _, _, name = kind.partition(" ")
        if name:
            (tmp_path / name).write_text(content, encoding="utf-8")
    first = next(content for kind, content in blocks(PAGE) if kind == "console").splitlines()[0]
    assert bonafed(*shlex.split(first)[2:])[0] == 0
    (said,) = [line for line in SECTION.splitlines() if line.startswith("3 of 5")]
    settle, train = [line for line in SECTION.splitlines() if line.startswith("$ bonafed ")]
    code, out, _ = bonafed(*shlex.split(settle)[2:])
    assert code == 0
    assert said in out
    assert "4.7 of 20" in SECTION
    assert "Rounds without anybody: 4.7 of 20 are to be expected." in out
    code, out, _ = bonafed(*shlex.split(train)[2:], "--json")
    assert code == 0
    assert json.loads(out)["clients"] == 3
    _, out, _ = bonafed("statement", "runs/three", "--json")
    assert said in json.loads(out)["notes"]
