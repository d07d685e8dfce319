"""The page on adding a claim has a claim like any other; test_documentation runs its commands."""

import re
from pathlib import Path

from bonafed.papers import register
from bonafed.papers.report import read_report, report_files
from bonafed.papers.reproducing import reproduce

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-claim.md"


def test_it_can_be_told_false_and_is_reported(tmp_path):
    (code,) = re.findall(r"^```python my_claim.py\n(.*?)^```$", PAGE.read_text("utf-8"), re.S | re.M)
    path = tmp_path / "my_claim.py"
    path.write_text(code, "utf-8")
    claim = register.own_claim(path)
    (honest,) = reproduce([claim], "smoke", tmp_path / "cells", cores=1)
    (control,) = reproduce([claim], "smoke", tmp_path / "cells", cores=1, control=True)
    assert honest.verdict == "holds"
    assert control.verdict == "contradicted"
    (tmp_path / "index.html").write_bytes(
        report_files([honest], tmp_path, "bonafed reproduce my_claim.py")[tmp_path / "index.html"]
    )
    assert read_report(tmp_path / "index.html")[0]["verdict"] == "holds"
