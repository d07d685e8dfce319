"""Every file of a run folder, damaged in a hundred ways: refused by name, or the same result to the bit.

Of every mechanism each file in turn, in all its kinds of run, finished and interrupted, gets flipped bits,
changed digits, cuts, lost, doubled and swapped lines, other runs' contents; then everything that reads the
folder is tried:

    runs --check    says so, unless what is left of the file means the same
    runs, statement refuse in one line that names the file, or print what they would have printed
    train --resume  refuses likewise, or ends with the bits of the run that was not disturbed
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random

from tests.campaign import kills
from tests.campaign.cases import Campaign, Case, Ended, Tally, Verdict, command, in_child, several
from tests.campaign.kinds import RUN, contents, difference, reference, repeatable

NAME = "corruption"
TIMES = 100  # every file name, at least
OF_MECHANISM = 25  # of these in the runs of each mechanism that has the file, at least
FINISHED, INTERRUPTED = "finished", "interrupted"
CHECK = ("runs", "--check", RUN)
READING = (CHECK, ("runs", RUN, "--json"), ("statement", RUN, "--json"))
_HAPPENS_AGAIN = {  # without this file a run is as it was before, and goes on from there
    (INTERRUPTED, f"{RUN}/checkpoint.npz"), (FINISHED, f"{RUN}/summary.json"),
}  # fmt: skip


def campaign(seed: int, names: Sequence[str], cases: int | None = None) -> Campaign:
    """A hundred damages of each file at least, over all kinds of run that have it."""
    found = list(_cases(seed, names))
    if cases is not None and cases < len(found):
        found = Random(seed).sample(found, cases)
        return Campaign(NAME, found, judge, len(found))
    return Campaign(NAME, found, judge, len(found), _every_file_often_enough)


def _every_file_often_enough(tally: Tally) -> str:
    """What is wrong if some file was not damaged as often as is claimed."""
    counts = {name: count for name, count in tally.counts.items() if name.startswith(RUN)}
    seldom = [f"{name} ({count})" for name, count in sorted(counts.items()) if count < TIMES]
    return f"damaged fewer than {TIMES} times: {', '.join(seldom)}" if seldom else ""


def _cases(seed: int, names: Sequence[str]) -> Iterator[Case]:
    number = 0
    for file, places in sorted(_places(names).items()):
        times = max(OF_MECHANISM, -(-TIMES // len(places)))  # in each mechanism
        for mechanism in places.values():
            for time in range(max(times, len(mechanism))):
                number += 1
                kind, state = mechanism[time % len(mechanism)]
                about = {"kind": kind, "state": state, "file": file}
                yield Case(NAME, number, {**about, "seed": f"{seed} {kind} {file} {time}"})


def _places(names: Sequence[str]) -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Of each file, by mechanism: the kinds of run and the states that have it."""
    places: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for state in (FINISHED, INTERRUPTED):
        for kind in names:
            for file in _files(state_of(kind, state)):
                places.setdefault(file, {}).setdefault(_mechanism(kind), []).append((kind, state))
    return places


def _mechanism(kind: str) -> str:
    mechanism: str = json.loads(reference(kind).after[f"{RUN}/summary.json"])["mechanism"]
    return mechanism


def _files(place: Path) -> list[str]:
    """What belongs to the run: its folder, and the private one."""
    return [name for name in contents(place) if name.startswith((f"{RUN}/", f"{RUN}.private/"))]


@cache
def state_of(kind: str, state: str) -> Path:
    """A case folder with a run that is finished, or was killed soon after its second checkpoint.

    A run with simulated cheats has none, since nobody knows what they remember: there, soon after its
    second round was written down.
    """
    whole, place = reference(kind), Path(tempfile.mkdtemp(prefix=f"{kind}-{state}-"))
    if state == FINISHED:
        for name, content in whole.after.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        return place
    whole.begin(place)
    operations = list(enumerate(whole.operations, 1))
    moved = [number for number, operation in operations if operation.target == f"{RUN}/checkpoint.npz"]
    noted = [
        number for number, operation in operations if operation[:2] == ("write", f"{RUN}/metrics.jsonl")
    ]
    moments = moved or noted
    ended = whole.train(place, kills.killer(moments[min(1, len(moments) - 1)] + 3, False))
    if ended.signal != 9 or (place / RUN / "checkpoint.npz").is_file() != bool(moved):
        raise RuntimeError(f"{kind} was not killed where it should be: {ended}")
    return place


@cache
def expected(kind: str, state: str) -> list[Ended]:
    """What the commands print of the run as it was left."""
    return several(READING, state_of(kind, state), repeatable)


def judge(case: Case, place: Path) -> Verdict:
    """Damage a file, then try everything that reads it."""
    kind, state, file = (case.about[name] for name in ("kind", "state", "file"))
    shutil.copytree(state_of(kind, state), place, dirs_exist_ok=True)
    content, rng = (place / file).read_bytes(), Random(case.about["seed"])
    damaged, how = damage(content, rng, _another(kind, state, file))
    while damaged == content:  # zeros in place of zeros: no damage yet
        damaged, how = damage(content, rng, _another(kind, state, file))
    if damaged is None:
        (place / file).unlink()
    else:
        (place / file).write_bytes(damaged)
    told = False
    happens_again = how == "lost" and (state, file) in _HAPPENS_AGAIN
    for words, ended, due in zip(
        READING, several(READING, place, repeatable), expected(kind, state), strict=False
    ):
        if ended[:4] == due[:4] or (happens_again and not ended.problem):
            continue
        if words == CHECK and ended.code == 0 and not ended.problem:
            continue  # nothing that matters is damaged, it says; if that is wrong, it shows below
        told = True
        if problem := _badly_refused(ended, file):
            return Verdict(f"{case.about}, {how}: {' '.join(words)}: {problem}")
    failure, resumed = _resumed(kind, state, place, file, told)
    if failure:
        return Verdict(f"{case.about}, {how}: resumed: {failure}")
    if not (told or happens_again) and state == FINISHED and _means_something(file):
        return Verdict(f"{case.about}, {how}: nothing was said about it")
    said = "told" if told or resumed == "refused to resume" else "harmless"
    return Verdict(counts=(resumed, said, how, file))


def _resumed(kind: str, state: str, place: Path, file: str, told: bool) -> tuple[str, str]:
    """What is wrong with how the run goes on, and how it does."""
    damaged = contents(place).get(file)
    ended = in_child(lambda: command(("train", "--resume", RUN)), place, repeatable)
    if ended.code == 2 and not ended.problem:
        return _badly_refused(ended, file), "refused to resume"
    if ended.problem or ended.code != 0:
        return ended.problem or f"exit code {ended.code}", ""
    now, then = contents(place), dict(reference(kind).after)
    kept = state == FINISHED and told and now.get(file) == damaged  # a finished run is shown, not mended
    if kept or not _means_something(file):
        now.pop(file, None)
        then.pop(file, None)
    return difference(now, then), "ended with the same bits"


def _badly_refused(ended: Ended, file: str) -> str:
    if ended.problem:
        return ended.problem
    if (
        ended.code == 1 and file in ended.out.rpartition("damaged: ")[2].replace(",", "").split()
    ):  # runs --check
        return ""
    if ended.code != 2:
        return f"something else was printed without a word: exit code {ended.code}, {ended.out[-300:]!r}"
    names = [Path(file).name]
    if file == f"{RUN}/config.toml":  # without which the folder holds no run
        names.append("must hold a run")
    return (
        "" if any(name in ended.error for name in names) else f"the error does not name it: {ended.error}"
    )


def _means_something(file: str) -> bool:
    return not file.startswith(f"{RUN}.private/")  # what only the simulation knows; nothing reads it


def _another(kind: str, state: str, file: str) -> bytes | None:
    """The same file of another run."""
    others = [name for name in ("fedavg", "sampling", "sampling-coins", "jsam", "rewards") if name != kind]
    for other in others:
        if file in reference(other).after:
            return reference(other).after[file]
    return None


Damage = Callable[[bytes, Random], bytes]


def damage(content: bytes, rng: Random, another: bytes | None) -> tuple[bytes | None, str]:
    """The file damaged, or None for a file that is gone; and how."""
    choices = list(_DAMAGES)
    if rng.random() < 0.03:
        return None, "lost"
    if another is not None and rng.random() < 0.03:
        return another, "another run's"
    name = rng.choice(choices)
    return _DAMAGES[name](content, rng), name


def _flip(content: bytes, rng: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _digit(content: bytes, rng: Random) -> bytes:
    """Another digit in place of one: the file stays well formed."""
    places = [n for n, byte in enumerate(content) if chr(byte).isdigit()]
    if not places:
        return _flip(content, rng)
    changed = bytearray(content)
    place = rng.choice(places)
    changed[place] = rng.choice([d for d in b"0123456789" if d != changed[place]])
    return bytes(changed)


def _cut(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content) or 1)]


def _lines(content: bytes, rng: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return _cut(content, rng)
    one, other = rng.sample(range(len(lines)), 2)
    how = rng.randrange(3)
    if how == 0:
        lines[one], lines[other] = lines[other], lines[one]
    elif how == 1:
        del lines[one]
    else:
        lines.insert(other, lines[one])
    return b"".join(lines)


def _block(content: bytes, rng: Random) -> bytes:
    """Zeros over a block, as a disk may leave them."""
    start, length = rng.randrange(len(content) or 1), rng.choice((1, 16, 512))
    return content[:start] + bytes(len(content[start : start + length])) + content[start + length :]


_DAMAGES: dict[str, Damage] = {
    "flipped bits": _flip,
    "another digit": _digit,
    "cut": _cut,
    "lines": _lines,
    "zeros": _block,
    "emptied": lambda _content, _rng: b"",
    "longer": lambda content, rng: content + rng.choice((b"\n", b"\0", b"{}\n", content[-20:])),
}
