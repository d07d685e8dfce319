"""Every file of a run, damaged in every way: told by name, or without any effect. Nothing in between."""

import random
import re
import shutil
import subprocess

import pytest

from bonafed import InvalidValue, UnreadableFile
from bonafed.runs import coins, config, folder, integrity, listing, log, prepare, private, training

KINDS = {
    "averaging": ("training.rounds=5", "run.checkpoint_every=2"),
    "private": (
        "training.rounds=5", "run.checkpoint_every=2", "privacy.clip=1", "privacy.epsilon=2",
        "privacy.delta=1e-5",
    ),
    "coins": (
        "training.rounds=5", "run.checkpoint_every=2", "sampling.prior=uniform:0.5,1.5",
        "sampling.total_budget=12", "sampling.coins=verifiable",
    ),
}  # fmt: skip
FLIPS = 12  # bits flipped per file, at random places


class Whole:
    """Runs of one kind: stopped in round 3, ended, and another one of each to take files from."""

    def __init__(self, made, other, place, killer):
        self.made, self.open, self.ended = made, place / "open" / "run", place / "ended" / "run"
        for setting_, name in ((made, "open"), (other, "other-open")):
            with pytest.raises(killer.error):
                training.train(setting_, place / name / "run", on_round=killer(3), entropy=fixed())
        training.train(made, self.ended, entropy=fixed())
        training.train(other, place / "other-ended" / "run")
        self.others = {self.open: place / "other-open" / "run", self.ended: place / "other-ended" / "run"}


def fixed():
    """Entropy that is the same in every run."""
    rng = random.Random(7)
    return rng.randbytes


@pytest.fixture
def whole(request, make, small, tmp_path, kill_in, monkeypatch):
    monkeypatch.setattr(private.secrets, "token_bytes", lambda size: bytes(range(size)))
    changes = KINDS[request.param]
    one, other = (prepare.prepare(make(*changes, f"run.seed={s}"), dataset=small) for s in (3, 4))
    return Whole(one, other, tmp_path, kill_in)


def damages(path, other, rng):
    """The damaged contents of a file, and what was done to it."""
    content = path.read_bytes()
    for _ in range(FLIPS):
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(flipped)
    for length in {0, 1, len(content) // 2, len(content) - 1, rng.randrange(len(content))}:
        yield f"cut to {length} bytes", content[:length]
    yield "with a byte more", content + b"\n"
    lines = content.splitlines(keepends=True)
    if len(lines) > 2:
        yield "without its last line", b"".join(lines[:-1])
    if (other / path.name).is_file() and (other / path.name).read_bytes() != content:
        yield "of another run", (other / path.name).read_bytes()


def refused(action, path):
    """Whether something is refused in one line that names the file."""
    try:
        action()
    except (UnreadableFile, InvalidValue) as error:
        line = str(error)
    else:
        return False
    assert re.fullmatch(f".*{re.escape(path.name)}.*", line)
    return True


def summaries(place):
    """What `runs` and `statement` show."""
    shown = {**listing.overview(place), "folder": "", "name": ""}
    return shown, folder.read_json(place, folder.SUMMARY) if folder.is_finished(place) else None


@pytest.mark.parametrize("whole", KINDS, indirect=True)
def test_a_run_that_goes_on_from_a_damaged_file_is_refused_or_ends_the_same(whole, tmp_path, ending):
    rng, tried, seen = random.Random(0), 0, 0
    due = ending(whole.ended)
    told = summaries(whole.open)
    for path in sorted(whole.open.iterdir()):
        for what, content in damages(path, whole.others[whole.open], rng):
            place = tmp_path / f"damaged-{tried}" / "run"
            shutil.copytree(whole.open, place)
            apart = private.private_folder(whole.open)
            if apart.exists():
                shutil.copytree(apart, private.private_folder(place))
            (place / path.name).write_bytes(content)
            tried += 1
            if not refused(lambda place=place: listing.overview(place), path):
                assert summaries(place) == told, (path.name, what)
            states = {state.file: state.verdict for state in integrity.check(place)}
            if refused(
                lambda place=place: training.train(whole.made, place, resume=True, entropy=fixed()), path
            ):
                seen += 1
                assert states.get(path.name) == "DAMAGED", (path.name, what)
                assert [name for name in states if states[name] == "DAMAGED"] == [path.name], what
            else:
                assert ending(place) == due, (path.name, what)
    assert seen > 0.8 * tried > 60  # what follows the last checkpoint may change: it is written again


@pytest.mark.parametrize("whole", KINDS, indirect=True)
def test_a_damaged_file_of_a_run_that_has_ended_is_told_wherever_it_is_read(whole, tmp_path):
    rng, told = random.Random(0), summaries(whole.ended)
    place = tmp_path / "damaged" / "run"
    shutil.copytree(whole.ended, place)
    for path in sorted(whole.ended.iterdir()):
        for what, content in damages(path, whole.others[whole.ended], rng):
            (place / path.name).write_bytes(content)
            states = {state.file: state.verdict for state in integrity.check(place)}
            damaged = [name for name, verdict in states.items() if verdict == "DAMAGED"]
            assert damaged == [path.name], what
            if not refused(lambda: summaries(place), path):
                assert summaries(place) == told
            assert refused(lambda: folder.require_unchanged(place), path), (path.name, what)
            if (place / "coins.json").exists() and not refused(lambda: coins.verify_run(place), path):
                assert path.name in ("versions.json", "start.npy", "checkpoint.npz", "model.pt")
        shutil.copy(path, place / path.name)
    assert {state.verdict for state in integrity.check(place)} == {"verified"}


@pytest.mark.parametrize("whole", ["averaging"], indirect=True)
def test_the_model_of_a_run_that_has_ended_is_not_loaded_if_it_is_damaged(whole):
    path = whole.ended / "model.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(UnreadableFile, match=r"model\.pt: was changed since the run ended"):
        training.finished(whole.made, whole.ended)


@pytest.mark.parametrize("whole", ["coins"], indirect=True)
def test_what_a_run_ended_with_can_be_checked_with_other_tools(whole):
    if shutil.which("sha256sum") is None:
        pytest.skip("no sha256sum here")
    words = ["sha256sum", "--strict", "--check", "SHA256SUMS"]
    done = subprocess.run(words, cwd=whole.ended, capture_output=True, text=True, check=True)
    names = {line.removesuffix(": OK") for line in done.stdout.splitlines()}
    assert names == {path.name for path in whole.ended.iterdir()} - {"SHA256SUMS"}


@pytest.mark.parametrize("whole", ["averaging"], indirect=True)
def test_folders_of_before_there_were_digests_are_refused_by_name(whole):
    (whole.ended / "SHA256SUMS").unlink()
    with pytest.raises(UnreadableFile, match=r"SHA256SUMS: is missing: nothing vouches for what the run"):
        listing.overview(whole.ended)
    (whole.open / "SHA256SUMS").unlink()
    with pytest.raises(UnreadableFile, match=r"SHA256SUMS: is missing: nothing vouches for what the run"):
        training.train(whole.made, whole.open, resume=True)
    (state,) = [state for state in integrity.check(whole.open) if state.file == "SHA256SUMS"]
    assert state.verdict == "DAMAGED"


@pytest.mark.parametrize("whole", ["averaging"], indirect=True)
def test_what_follows_the_last_checkpoint_is_not_told_and_happens_again(whole, ending):
    path = whole.open / "metrics.jsonl"
    assert path.read_bytes().count(b"\n") == 3
    assert [record["round"] for record in folder.read_rounds(whole.open)] == [1, 2]
    assert listing.overview(whole.open)["rounds"] == 2
    (lines,) = [state.text for state in integrity.check(whole.open) if state.file == path.name]
    assert lines == "as it was at the last checkpoint, 2 rounds; 1 round after it happens again"
    text = path.read_text()
    path.write_text(re.sub(r'("round": 3.*"steps": )\d+', r"\g<1>999", text))
    assert path.read_text() != text
    training.train(whole.made, whole.open, resume=True)
    assert ending(whole.open) == ending(whole.ended)


def test_a_run_that_starts_over_can_be_killed_then(make, small, tmp_path):
    """The checkpoint goes before the lines it vouches for."""
    made, place = prepare.prepare(make("training.rounds=2"), dataset=small), tmp_path / "run"
    training.train(made, place)
    with log.RunLog(place, new=False) as run_log:
        run_log.cut(folder.read_checkpoint(place))
        run_log.start_over()
    assert not (place / "checkpoint.npz").exists()
    assert folder.read_rounds(place) == []
    assert training.train(made, place, resume=True).summary["rounds"] == 2


def test_a_config_that_was_changed_is_not_even_parsed(make, small, tmp_path, kill_in):
    made, place = prepare.prepare(make(), dataset=small), tmp_path / "run"
    with pytest.raises(kill_in.error):
        training.train(made, place, on_round=kill_in(2))
    (place / "config.toml").write_text("a = [")
    with pytest.raises(UnreadableFile, match=r"config\.toml: was changed since the run began"):
        config.of_run(place)


def test_lines_are_not_appended_through_a_link(make, small, tmp_path):
    victim, place = tmp_path / "victim", tmp_path / "run"
    victim.write_bytes(b"")
    place.mkdir()
    (place / "metrics.jsonl").symlink_to(victim)
    with pytest.raises((OSError, InvalidValue), match=r"metrics\.jsonl"):
        training.train(prepare.prepare(make(), dataset=small), place)
    assert victim.read_bytes() == b""


def verdicts(place):
    """By file, and whether nothing is damaged."""
    states = integrity.check(place)
    return {state.file: state.verdict for state in states}, integrity.check_document({"run": states})


@pytest.mark.parametrize("whole", KINDS, indirect=True)
def test_what_the_digests_of_an_end_list_is_damaged_if_it_is_not_there(whole):
    listed = set(folder.read_manifest(whole.ended).digests) - {"summary.json"}
    (whole.ended / "summary.json").unlink()
    for name in sorted(listed):
        content = (whole.ended / name).read_bytes()
        (whole.ended / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        found, document = verdicts(whole.ended)
        assert (found[name], found["summary.json"], document.holds) == ("DAMAGED", "DAMAGED", False), name
        (whole.ended / name).unlink()
        found, document = verdicts(whole.ended)
        assert (found[name], document.holds) == ("DAMAGED", False), name
        (whole.ended / name).write_bytes(content)
    (whole.ended / "SHA256SUMS").write_bytes(b"")
    assert verdicts(whole.ended)[0]["SHA256SUMS"] == "DAMAGED"


@pytest.mark.parametrize("whole", ["averaging", "private"], indirect=True)
def test_a_run_killed_before_its_summary_is_not_damaged_and_ends_again(whole, ending, monkeypatch):
    place, write = whole.open, log.write_together

    def killed(files):
        if place / "summary.json" in files:
            raise KeyboardInterrupt
        write(files)

    with monkeypatch.context() as patch:
        patch.setattr(log, "write_together", killed)
        with pytest.raises(KeyboardInterrupt):
            training.train(whole.made, place, resume=True, entropy=fixed())
    found, document = verdicts(place)
    assert found.pop("summary.json") == "missing"
    assert set(found.values()) == {"verified"}
    assert document.holds
    assert document.blocks[-1] == (
        "No file is damaged. Missing, the end happens again when resumed: run/summary.json"
    )
    training.train(whole.made, place, resume=True, entropy=fixed())
    assert ending(place) == ending(whole.ended)
    assert set(verdicts(place)[0].values()) == {"verified"}


@pytest.mark.parametrize("whole", ["private"], indirect=True)
def test_a_lost_summary_is_damage_where_no_secret_is_left_to_end_again_with(whole):
    (whole.ended / "summary.json").unlink()
    found, document = verdicts(whole.ended)
    assert (found["summary.json"], document.holds) == ("DAMAGED", False)


def test_a_run_that_happens_again_has_no_digests_of_its_end(make, small, tmp_path, kill_in):
    """Without a checkpoint all rounds happen again: the old digests would call the new lines damaged."""
    made, place = prepare.prepare(make("training.rounds=3"), dataset=small), tmp_path / "run"
    training.train(made, place)
    (place / "summary.json").unlink()
    (place / "checkpoint.npz").unlink()
    with pytest.raises(kill_in.error):
        training.train(made, place, resume=True, on_round=kill_in(2))
    assert verdicts(place)[1].holds
