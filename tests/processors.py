"""Tests that compare computed numbers, as other processors compute them: `python -m tests.processors`.

Libraries choose their arithmetic by what a processor can do: how many numbers at a time, and in which order
they are added. Results then differ in the last bits, and a test that does not allow for that is red on
somebody else's machine. A setting here has a library believe in a processor that can do less.

Which tests: every test file that uses numbers (NUMBERS), and every page and module whose examples print
them. Nothing is listed, so nothing new is forgotten. To be cheap, each test tries few examples: the
Hypothesis profile `processors`, and at most FEW sets of its parameters (`thinned`, applied by conftest.py).

    python -m tests.processors             all settings, one by one
    python -m tests.processors --together  in half the time, as continuous integration does: settings of
                                           different libraries together, without the native one, which
                                           `make test` has tried

Settings run side by side, as many as there are cores, each in one process. The exit code is 1 if one is
red.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROFILE = "processors"  # of Hypothesis
FEW = 2  # sets of parameters of one test: the first and the last
NUMBERS = re.compile(r"\b(numpy|torch|scipy|approx|isclose|allclose)\b")
# folders of tests with targets of their own; of one that compares files with files of the same processor
ELSEWHERE = ("flower", "browser", "campaign")
PRINTED = re.compile(r"^\s*>>> .*\n(?:\s*(?:>>>|\.\.\.) .*\n)*(?!\s*(?:>>>|\.\.\.)).*\d\.\d", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Setting:
    """What libraries are to believe of the processor."""

    name: str
    variables: Mapping[str, str]  # of the environment
    needs: str = ""  # an instruction set that the processor must have; "": none
    shows: Mapping[str, str] = field(default_factory=dict)  # what `effects` must say, by library


SETTINGS = (
    Setting("native", {}),
    Setting("torch without vectors", {"ATEN_CPU_CAPABILITY": "default"}, "", {"ATen": "DEFAULT"}),
    Setting(
        "torch with AVX2",
        {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
        "avx2",
        {"ATen": "AVX2", "oneDNN": "AVX2"},  # MKL heeds it on Intel's processors only, and does not say so
    ),
    Setting("oneDNN with SSE4.1", {"ONEDNN_MAX_CPU_ISA": "SSE41"}, "sse4_1", {"oneDNN": "SSE4.1"}),
    Setting("OpenBLAS for Haswell", {"OPENBLAS_CORETYPE": "Haswell"}, "avx2", {"OpenBLAS": "Haswell"}),
)

_EFFECTS = """
import numpy, scipy.linalg, torch
from threadpoolctl import threadpool_info
print("ATen =", torch.backends.cpu.get_cpu_capability())
print("OpenBLAS =", *{str(i["architecture"]) for i in threadpool_info() if i["internal_api"] == "openblas"})
torch.nn.functional.conv2d(torch.ones(8, 3, 12, 12), torch.ones(4, 3, 3, 3))  # oneDNN says what it uses
"""


def effects(variables: Mapping[str, str]) -> dict[str, str]:
    """What libraries say they use in this environment."""
    said = subprocess.run(
        [sys.executable, "-c", _EFFECTS], env={**variables, "ONEDNN_VERBOSE": "1"}, check=True,
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    found = dict(re.findall(r"^(ATen|OpenBLAS) = (.*)$", said, re.MULTILINE))
    isa = re.search(r"info,cpu,isa:(?:Intel )?(.*)", said)
    return {**found, "oneDNN": isa[1] if isa else "not used"}


def instruction_sets() -> frozenset[str]:
    """Of this processor; empty where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    flags = re.search(r"^flags\s*: (.*)$", text, re.MULTILINE)
    return frozenset(flags[1].split()) if flags else frozenset()


def selected(root: Path = ROOT) -> list[Path]:
    """Test files that use numbers, and pages and modules whose examples print them."""
    tests = [
        path for path in (root / "tests").rglob("test_*.py")
        if path.relative_to(root).parts[1] not in ELSEWHERE and _uses_numbers(path, root)
    ]  # fmt: skip
    shown = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "src").rglob("*.py")]
    printing = [path for path in shown if PRINTED.search(path.read_text("utf-8"))]
    return sorted(tests) + sorted(printing)


def _uses_numbers(path: Path, root: Path) -> bool:
    """Whether a test file uses numbers, or a module of the tests that it imports does."""
    text = path.read_text("utf-8")
    if NUMBERS.search(text):
        return True
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            place = root.joinpath(*str(node.module).split("."))
            helpers = [place.with_suffix(".py"), *(place / f"{name.name}.py" for name in node.names)]
            if any(one.is_file() and NUMBERS.search(one.read_text("utf-8")) for one in helpers):
                return True
    return False


def thinned(items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Of each test FEW sets of parameters, from the first to the last; and all others."""
    sets: dict[str, list[Any]] = {}
    for item in items:
        sets.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {id(one) for some in sets.values() for one in _spread(some)}
    return [one for one in items if id(one) in kept], [one for one in items if id(one) not in kept]


def _spread(some: Sequence[Any]) -> Sequence[Any]:
    if len(some) <= FEW:
        return some
    return [some[round(place * (len(some) - 1) / (FEW - 1))] for place in range(FEW)]


def environment(setting: Setting) -> dict[str, str]:
    """This one, with the setting's variables instead of anybody's own."""
    mine = {
        name: text for name, text in os.environ.items() if all(name not in s.variables for s in SETTINGS)
    }
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**mine, **one, **setting.variables, "HYPOTHESIS_PROFILE": PROFILE}


def together(settings: Iterable[Setting]) -> list[Setting]:
    """The same settings in fewer: those that have no variable in common are one.

    Each library still believes in each processor once. Which library a red test is due to is for a run of
    the settings one by one to say.
    """
    groups: list[list[Setting]] = []
    for setting in settings:
        taken = [{name for one in group for name in one.variables} for group in groups]
        free = (
            group
            for group, names in zip(groups, taken, strict=True)
            if not names & setting.variables.keys()
        )
        group = next(free, None)
        if group is None:
            groups.append([setting])
        else:
            group.append(setting)
    return [
        Setting(
            " + ".join(one.name for one in group),
            {name: value for one in group for name, value in one.variables.items()},
            shows={library: used for one in group for library, used in one.shows.items()},
        )
        for group in groups
    ]


def skipped(setting: Setting, has: frozenset[str]) -> str:
    """Why a setting cannot be tried here; "": it can."""
    if setting.needs and setting.needs not in has:
        return f"this processor has no {setting.needs}"
    said = effects(environment(setting))
    for library, wanted in setting.shows.items():
        if said.get(library) != wanted:
            return f"took no effect: {library} uses {said.get(library)}, not {wanted}"
    return ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a setting: its line in the summary, and all that pytest said."""

    setting: Setting
    text: str
    code: int = 0
    said: str = ""


def tried(setting: Setting, files: Iterable[Path], has: frozenset[str]) -> Outcome:
    """The outcome of all files under one setting."""
    if why := skipped(setting, has):
        return Outcome(setting, f"skipped: {why}")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *map(str, files)],
        cwd=ROOT, env=environment(setting), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    seconds, last = time.monotonic() - began, done.stdout.rstrip().rpartition("\n")[2]
    counts = re.sub(r" in [\d.]+s.*", "", last.strip("= "))
    text = f"{'red' if done.returncode else 'green'}: {counts}, {seconds:.0f} s"
    return Outcome(setting, text, done.returncode, done.stdout)


def main(arguments: Sequence[str]) -> int:
    """Try all settings, say what came of each, and return the exit code."""
    if unknown := set(arguments) - {"--together"}:
        print(f"arguments must be none or --together, got {' '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    files, has = selected(), instruction_sets()
    settings = list(SETTINGS)
    if arguments:
        reasons = {setting.name: skipped(setting, has) for setting in SETTINGS[1:]}
        for name, why in reasons.items():
            if why:
                print(f"{name:22} skipped: {why}")
        settings = together(setting for setting in SETTINGS[1:] if not reasons[setting.name])
    print(
        f"{len(files)} files with tests that compare computed numbers; this processor: {_own()}", flush=True
    )
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        outcomes = list(pool.map(lambda setting: tried(setting, files, has), settings))
    for outcome in outcomes:
        if outcome.code:
            print(f"\n{outcome.setting.name}, {outcome.text}\n{outcome.said}")
    if arguments:
        print(f"{SETTINGS[0].name:22} left out: make test tries it")
    for outcome in outcomes:
        variables = " ".join(f"{name}={text}" for name, text in outcome.setting.variables.items())
        print(f"{outcome.setting.name:22} {outcome.text}  {variables}".rstrip())
    return int(any(outcome.code for outcome in outcomes))


def _own() -> str:
    return ", ".join(
        f"{library} uses {used}" for library, used in effects(environment(SETTINGS[0])).items()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
