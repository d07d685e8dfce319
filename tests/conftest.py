"""Shared by all tests: Hypothesis profiles (HYPOTHESIS_PROFILE), one thread per process, the command."""

import os
import sys

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded: tests run in parallel as it is
os.environ.pop("COLUMNS", None)  # output is as wide as where nothing limits it, whoever runs the tests

import pytest  # noqa: E402  # after the variables above, which NumPy reads when it is loaded
from hypothesis import HealthCheck, settings  # noqa: E402  # likewise

from tests import processors  # noqa: E402  # likewise

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=36, derandomize=True, **_COMMON)
settings.register_profile("deep", max_examples=5000, **_COMMON)
settings.register_profile("processors", max_examples=3, derandomize=True, **_COMMON)  # tests/processors.py
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "fast")
settings.load_profile(_PROFILE)


def pytest_collection_modifyitems(config, items):
    """Few sets of parameters where the same tests run once per kind of processor."""
    if _PROFILE == processors.PROFILE:
        items[:], left_out = processors.thinned(items)
        config.hook.pytest_deselected(items=left_out)


def pytest_runtest_setup():
    """PyTorch gives some warnings once per process: here each time, so that each fails a test."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_warn_always(True)


@pytest.fixture
def bonafed(monkeypatch, capsys, tmp_path):
    """Run the command in an empty folder: bonafed(...) -> (exit code, stdout, stderr)."""
    from bonafed.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["bonafed", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run
