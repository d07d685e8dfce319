"""A run cut short at every single step of its writing ends as if nothing had happened."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from bonafed.runs import folder as folders
from bonafed.runs import prepare, private, training
from bonafed.runs.log import RunLog

CHANGES = [
    "training.rounds=3",
    "run.checkpoint_every=2",
    "training.participation=0.5",
    "privacy.clip=1",
    "privacy.epsilon=2",
    "privacy.delta=1e-5",
]


class Killed(BaseException):
    pass


class Killer:
    """Raises just before the n-th write, flush, rename or truncation."""

    def __init__(self, monkeypatch, after):
        self.left = after
        for owner, name in (
            (os, "fsync"),
            (Path, "replace"),
            (RunLog, "append"),
            (RunLog, "cut"),
        ):
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, function):
        def call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                raise Killed
            return function(*args, **kwargs)

        return call


def outcome(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
    return folders.read_checkpoint(folder).state["model"], (folder / "model.pt").read_bytes(), lines


@pytest.mark.usefixtures("one_secret")
def test_cut_short_anywhere_it_ends_the_same(make, small, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # slow, and no process is really killed here
    made = prepare.prepare(make(*CHANGES), dataset=small)
    training.train(made, tmp_path / "whole")
    weights, model, lines = outcome(tmp_path / "whole")
    assert [line["round"] for line in lines] == [1, 2, 3]
    after = 0
    while True:
        after += 1
        folder = tmp_path / f"cut{after}"
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, after)
            try:
                training.train(made, folder)
            except Killed:
                pass
            else:
                break  # every step has had its turn
        if folders.holds_run(folder):
            if not folders.is_finished(folder):
                with (folder / "metrics.jsonl").open("ab") as file:
                    file.write(b'{"round": ')  # half a line, as a kill may leave it
            training.train(made, folder, resume=True)
        else:
            training.train(made, folder)
        assert np.array_equal(outcome(folder)[0], weights)
        assert outcome(folder)[1:] == (model, lines)
        assert not private.private_folder(folder).exists()  # the secret is gone, whenever it was killed
    assert after > 20


def test_what_was_tampered_with_is_refused(make, small, tmp_path, kill_in):
    made = prepare.prepare(make(*CHANGES), dataset=small)
    with pytest.raises(kill_in.error):
        training.train(made, tmp_path / "run", on_round=kill_in(3))
    path = tmp_path / "run" / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(
        folders.UnreadableFile, match=r"metrics\.jsonl: must hold the \d+ bytes that its checkpoint"
    ):
        training.train(made, tmp_path / "run", resume=True)
    path.write_bytes(whole.replace(b'{"round": 2', b'{"round": 1'))
    with pytest.raises(
        folders.UnreadableFile, match=r"metrics\.jsonl: was changed since the last checkpoint"
    ):
        training.train(made, tmp_path / "run", resume=True)
    (tmp_path / "run" / "checkpoint.npz").write_bytes(b"PK nonsense")
    with pytest.raises(folders.UnreadableFile, match="the checkpoint is damaged"):
        training.train(made, tmp_path / "run", resume=True)


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"PK nonsense", "cut", "another"])
def test_a_damaged_checkpoint_is_told_and_without_it_the_run_starts_over(make, small, tmp_path, damage):
    made = prepare.prepare(make("training.rounds=2"), dataset=small)
    place, path = tmp_path / "run", tmp_path / "run" / "checkpoint.npz"
    training.train(made, place)
    ended = folders.read_checkpoint(place).state["model"]
    if damage == "another":
        np.savez(path, other=np.ones(2))
    else:
        path.write_bytes(path.read_bytes()[:-30] if damage == "cut" else damage)
    with pytest.raises(folders.UnreadableFile) as refused:
        training.train(made, place, resume=True)
    rule = "the checkpoint is damaged: delete this file, and the run starts over when resumed"
    assert str(refused.value) == f"{path}: {rule}"
    path.unlink()
    training.train(made, place, resume=True)
    assert folders.read_checkpoint(place).state["model"].tobytes() == ended.tobytes()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_set_up_that_does_not_succeed_leaves_nothing(make, small, tmp_path, monkeypatch, error, at):
    """Neither a folder without a run, which --resume would refuse, nor the secret of a run that is none."""
    made, calls = prepare.prepare(make(*CHANGES), dataset=small), []
    real = os.open

    def failing(path, flags, *args, **options):
        if str(path).startswith(str(tmp_path / "run")) and flags & os.O_CREAT:
            calls.append(path)
            if len(calls) == at:
                raise error
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(type(error)):
        training.train(made, tmp_path / "run")
    assert len(calls) >= at
    assert not any(tmp_path.iterdir())


def test_a_secret_that_cannot_be_overwritten_is_removed(tmp_path, monkeypatch):
    private.create_secret(tmp_path / "run", private.NOISE)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    private.erase_secret(tmp_path / "run", private.NOISE)
    assert not any(tmp_path.iterdir())
