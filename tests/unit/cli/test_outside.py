"""What the world does to a command: full disks, missing packages, nonsense nested a thousand deep."""

import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import bonafed
from bonafed import errors

QUOTE = ("quote", "sampling", "--prior", "uniform:0.5,1.5", "--clients", "5", "--rounds", "20",
         "--budget", "50")  # fmt: skip
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
NEEDS = "training needs: pip install 'bonafed[train]'"


def without(packages, program, *words):
    """A program, or else the command line with these words, in a process that has no such packages."""
    source = BLOCKED.format(packages=packages) + program
    environment = {name: value for name, value in os.environ.items() if name != "BONAFED_DATA"}
    environment["XDG_CACHE_HOME"] = str(Path.cwd())
    return subprocess.run(
        [sys.executable, "-c", source, *words],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


COMMAND = "from bonafed.cli import main; main()"


class TestMissingPackages:
    @pytest.mark.parametrize(
        ("packages", "words"),
        [
            (("torch",), ("train", "fedavg.toml")),
            (("sklearn",), ("train", "fedavg.toml")),
            (("torch", "sklearn"), ("compare", "fedavg.toml")),
            (("torch", "sklearn"), ("audit", "rewards")),
            (("sklearn",), ("audit", "faithful")),
            (("torch", "sklearn", "pooch"), ("audit", "faithful")),
            (("pooch",), ("train", "fedavg.toml", "--set", "data.name=mnist")),
        ],
    )
    def test_a_command_says_what_to_install(self, bonafed, packages, words):
        assert bonafed("train", "--write-example", "fedavg")[0] == 0
        done = without(packages, COMMAND, *words)
        *progress, last = done.stderr.splitlines()
        assert (done.returncode, done.stdout, last) == (2, "", f"error: {NEEDS}")
        assert progress == []
        assert not Path("runs").exists()

    def test_claims_that_need_no_training_are_judged_all_the_same(self, bonafed):
        words = ("reproduce", "jsam-fig2", "jsam-fig7", "--preset", "smoke", "--cores", "1")
        done = without(("torch",), COMMAND, *words)
        assert done.returncode == 1
        assert NEEDS in done.stdout
        assert "2 claims: 1 not computed, 1 " in done.stdout

    @pytest.mark.parametrize("call", ["train", "compare"])
    def test_so_does_the_front_door(self, bonafed, call):
        assert bonafed("train", "--write-example", "fedavg")[0] == 0
        program = (
            "import bonafed\n"
            f"try:\n    bonafed.{call}('fedavg.toml')\n"
            "except bonafed.BonafedError as error:\n    print(type(error).__name__, error)\n"
        )
        done = without(("torch", "sklearn"), program)
        assert (done.stderr, done.stdout) == ("", f"MissingExtra {NEEDS}\n")

    def test_what_does_not_train_does_without(self, bonafed):
        assert bonafed("train", "--write-example", "fedavg")[0] == 0
        assert bonafed("train", "fedavg.toml", "--set", "training.rounds=1")[0] == 0
        for words in (QUOTE, ("runs",), ("runs", "--check"), ("statement", "runs/fedavg")):
            done = without(("torch", "sklearn", "pooch"), COMMAND, *words)
            assert (done.returncode, done.stderr) == (0, ""), words


class FullDisk:
    """A disk that takes no more after so many bytes."""

    def __init__(self, monkeypatch, room):
        self.room, write = room, os.write

        def limited(handle, data):
            if os.fstat(handle).st_mode & 0o170000 != 0o100000:
                return write(handle, data)  # no file
            if len(data) > self.room:
                raise OSError(28, "No space left on device")
            self.room -= len(data)
            return write(handle, data)

        monkeypatch.setattr(os, "write", limited)


class TestFullDisks:
    @pytest.mark.parametrize("option", ["--save", "--plot"])
    def test_the_file_is_named_and_the_old_one_kept(self, bonafed, monkeypatch, option):
        path = Path({"--save": "c.json", "--plot": "c.png"}[option])
        path.write_bytes(b"old")
        with monkeypatch.context() as patch:
            FullDisk(patch, 100)
            code, out, err = bonafed(*QUOTE, option, str(path))
        assert (code, out, err) == (2, "", f"error: {path}: No space left on device\n")
        assert path.read_bytes() == b"old"
        assert [place.name for place in Path().iterdir()] == [path.name]

    def test_secrets_and_keys_too(self, bonafed, monkeypatch):
        words = (*QUOTE, "--save", "c.json", "--commit-coins", "secret")
        for room, name in ((10, "secret"), (100, "c.json")):
            with monkeypatch.context() as patch:
                FullDisk(patch, room)
                assert bonafed(*words)[::2] == (2, f"error: {name}: No space left on device\n")
            assert list(Path().iterdir()) == []
        for room, name in ((10, "key.pem"), (150, "key.pub.pem")):
            with monkeypatch.context() as patch:
                FullDisk(patch, room)
                assert bonafed("keygen", "key.pem")[::2] == (2, f"error: {name}: No space left on device\n")
            assert list(Path().iterdir()) == []

    def test_a_run_names_its_file_wherever_the_disk_gets_full_and_goes_on_afterwards(
        self, bonafed, monkeypatch
    ):
        assert bonafed("train", "--write-example", "fedavg")[0] == 0
        words = ("train", "fedavg.toml", "--set", "training.rounds=2", "--folder")
        named = set()
        whole = None
        for room in (10, 800, 2000, 4000, 5000, 12_000, 15_000, 19_000, 22_000, 10**9):
            place = Path(f"room{room}")
            with monkeypatch.context() as patch:
                FullDisk(patch, room)
                code, _, err = bonafed(*words, str(place))
            if code:
                match = re.fullmatch(rf"error: {place}/([\w.]+): No space left on device\n", err)
                assert match is not None, err
                named.add(match[1])
                resumes = (place / "config.toml").exists()
                again = ("train", "--resume", str(place)) if resumes else (*words, str(place))
                assert bonafed(*again)[0] == 0
            assert bonafed("runs", "--check", str(place))[0] == 0
            model = (place / "model.pt").read_bytes()
            assert whole in (None, model)
            whole = model
        assert named >= {"SHA256SUMS", "versions.json", "start.npy", "checkpoint.npz", "model.pt"}

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_standard_output_is_named(self):
        words = [sys.executable, "-c", COMMAND, *QUOTE]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        error = "error: standard output: No space left on device\n"
        assert (done.returncode, done.stderr) == (2, error)


class TestNesting:
    DEEP = "[" * 3000 + "]" * 3000

    @pytest.mark.parametrize(
        "text",
        [
            f"a = {DEEP}",
            "a = [" * 3000,
            "a = " + "{b = " * 3000 + "1" + "}" * 3000,
            ".".join("a" * 3000) + " = 1",
            "a = " + "[" * 200 + "]" * 200,
            "a = " + "9" * 5000,
        ],
    )
    @pytest.mark.parametrize("command", ["train", "compare"])
    def test_a_config_is_refused_in_one_line(self, bonafed, text, command):
        Path("deep.toml").write_text(text)
        code, out, err = bonafed(command, "deep.toml")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: deep.toml: not TOML: ")

    @pytest.mark.parametrize("value", [DEEP, "9" * 5000, "[" * 300 + "]" * 300])
    def test_so_is_a_change(self, bonafed, value):
        assert bonafed("train", "--write-example", "fedavg")[0] == 0
        code, _, err = bonafed("train", "fedavg.toml", "--set", f"training.rounds={value}")
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith("error: --set must be a value (")
        assert len(err) < 120

    @pytest.mark.parametrize("depth", [3000, 970, 500, 40])
    @pytest.mark.parametrize("command", ["verify", "settle", "sign", "coins"])
    def test_so_is_a_contract(self, bonafed, command, depth):
        Path("deep.json").write_text('{"format": ' + "[" * depth + "]" * depth + "}")
        words = {
            "verify": ("verify", "deep.json"),
            "settle": ("settle", "deep.json", "--draw", "1"),
            "sign": ("sign", "deep.json", "--key", "key.pem"),
            "coins": ("verify", "--coins", "deep.json"),
        }[command]
        code, _, err = bonafed(*words)
        assert (code, err.count("\n")) == (2, 1)
        assert "nested too deeply" in err

    def test_so_are_tables_from_python(self):
        deep = 1
        for _ in range(3000):
            deep = [deep]
        with pytest.raises(errors.InvalidValue, match=r"^training must not be nested too deeply"):
            bonafed.train({"data": {"name": "digits"}, "training": {"rounds": deep}})
        with pytest.raises(errors.InvalidValue, match=r"^config must be TOML \(nested too deeply\)"):
            bonafed.train("a = 1\nb = " + self.DEEP)


@pytest.mark.parametrize(
    "words",
    [
        ("--prior", "exponential:1e155,0.5,1e154", "--budget", "1.5"),
        ("--prior", "normal:1e8,1,100,1e300", "--budget", "1"),
        ("--prior", "normal:0,1e-300,0,1.7e308", "--budget", "1"),
        ("--prior", "beta:172.4,0.1405,0.001889,100", "--budget", "1e-320"),
        ("--prior", "beta:1e-320,1e16,1e-160,1e-15", "--budget", "1e-160"),
        ("--prior", "uniform:0.0004919,11.84", "--budget", "1e-320"),
        ("--prior", "exponential:27.84,0.01843,8.829", "--budget", "5e-324"),
        ("--prior", "beta:5e-324,0.006919,1.315,1217", "--budget", "1e300"),
        ("--prior", "mixture:0,1e300,1,1e160,1e-160", "--budget", "5"),
    ],
)
def test_extreme_numbers_give_an_answer_or_one_line_and_no_warning(bonafed, words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, _, err = bonafed("quote", "sampling", "--clients", "10", "--rounds", "20", *words)
    assert (code, err.count("\n")) in ((0, 0), (2, 1))


class Telling(io.StringIO):
    """Standard output that looks whether a file is there when it is told to be."""

    def __init__(self):
        super().__init__()
        self.files = []

    def write(self, text):
        for name in re.findall(r"(?:wrote|in) (\S+?)(?:;|\s|$)", text):
            if name.startswith(("c.", "run", "fedavg", "terms", "ada", "roster")):
                assert Path(name).exists(), f"{text!r} before the file exists"
                self.files.append(name)
        if ": finished" in text:
            assert Path("run/summary.json").exists()
        return super().write(text)


def test_what_is_told_to_be_written_is_there(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    told = Telling()
    monkeypatch.setattr(sys, "stdout", told)
    csv = "client,cost\n" + "".join(f"{name},0.9\n" for name in ("a", "b", "c", "d", "e"))
    Path("reports.csv").write_text(csv)
    commands = [
        (*QUOTE, "--save", "c.json", "--plot", "c.png", "--commit-coins", "c.secret"),
        ("settle", "c.json", "--reports", "reports.csv", "--save", "terms.csv"),
        ("train", "--write-example", "fedavg"),
        ("train", "fedavg.toml", "--set", "training.rounds=1", "--folder", "run"),
        ("statement", "run", "--csv", "run.csv", "--plot", "run.png"),
        ("runs", "run", "--plot", "runs.png"),
        ("coins", "nonce", "c.json", "--client", "ada", "--save", "ada.nonce"),
    ]
    for words in commands:
        monkeypatch.setattr(sys, "argv", ["bonafed", *words])
        with pytest.raises(SystemExit) as ended:
            sys.modules["bonafed.cli"].main()
        assert ended.value.code == 0, words
    assert set(told.files) == {
        "c.json", "c.png", "c.secret", "terms.csv", "fedavg.toml", "run", "run.csv", "run.png", "runs.png",
        "ada.nonce",
    }  # fmt: skip
    assert json.loads(Path("c.json").read_text())["format"]
