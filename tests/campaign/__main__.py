"""`python -m tests.campaign`: all campaigns, or some; see `--help` and docs/reliability.md."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is loaded: every core has its own cases
os.environ.pop("COLUMNS", None)

from tests.campaign import cases, controls, corruption, faults, kills, kinds, mutation  # noqa: E402

CAMPAIGNS = {module.NAME: module for module in (mutation, kills, corruption, faults)}
MEMORY = "/dev/shm"  # files in memory: forcing thousands of them to a real disk takes most of the time
SHORT_CASES = {"mutation": 18, "kills": 5, "corruption": 5, "faults": 5}


def main() -> int:
    """Exit code 1 if anything fails."""
    asked = _arguments()
    quick = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bonafed-campaign-", dir=quick) as workspace:
        tempfile.tempdir = workspace
        cases.warm()
        kinds.add_price_lottery()
        kinds.data_file()
        if asked.replay is not None:
            return _replay(asked.replay)
        if asked.controls:
            failed = _all(asked) if asked.short else 0
            return controls.main(_tell) or failed
        return _all(asked)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default: 0)")
    parser.add_argument(
        "--only", action="append", choices=list(CAMPAIGNS), help="this campaign; repeatable"
    )
    parser.add_argument(
        "--kind", action="append", choices=list(kinds.KINDS), help="this kind of run; repeatable"
    )
    parser.add_argument("--cases", type=int, help="at most so many of each campaign, drawn at random")
    parser.add_argument("--match", default="", help="only cases whose JSON contains this text")
    parser.add_argument("--short", action="store_true", help="the short form of `make test`")
    parser.add_argument(
        "--controls",
        action="store_true",
        help="broken code that each campaign must catch; with --short, after it",
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one failed case again")
    parser.add_argument(
        "--failed", type=Path, default=Path("build/campaign"), help="folder of failed cases"
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    return parser.parse_args()


def _all(asked: argparse.Namespace) -> int:
    names = asked.kind or (kinds.SHORT if asked.short else list(kinds.KINDS))
    tallies, begun = [], time.monotonic()
    failed = asked.failed.resolve()
    for name in asked.only or CAMPAIGNS:
        most = SHORT_CASES[name] if asked.short and asked.cases is None else asked.cases
        campaign = CAMPAIGNS[name].campaign(asked.seed, names, most)
        if asked.match:
            found = [case for case in campaign.cases if asked.match in case.to_json()]
            campaign = replace(campaign, cases=found, total=len(found))
        tallies.append(cases.carry_out(campaign, failed, asked.workers, _tell))
    for tally in tallies:
        for failure in tally.failures:
            _tell(f"{tally.campaign}: {failure}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = f"{used.ru_utime + used.ru_stime:.0f} s of CPU"
    _tell(f"seed {asked.seed}, {asked.workers} processes, {time.monotonic() - begun:.0f} s, {cpu}")
    for tally in tallies:
        _tell(tally.line())
    return int(any(tally.failures for tally in tallies))


def _replay(path: Path) -> int:
    case = cases.read_case(path)
    verdict = cases.judged(CAMPAIGNS[case.campaign].judge, case)
    _tell(verdict.failure or "no failure")
    return int(bool(verdict.failure))


def _tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
