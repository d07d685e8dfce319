"""What a participant sees of a contract, who signed it, and what `settle` has to say."""

import base64
import hashlib
import json
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from bonafed.contracts.canonical import read_object
from bonafed.mechanisms.sampling import contract_from_json
from bonafed.mechanisms.sampling.published import SamplingContract
from bonafed.mechanisms.sampling.rules import PriorFreeContract

SMALL = ["--clients", "3", "--rounds", "100", "--budget", "120"]
UNIFORM = ["--prior", "uniform:0.5,1.5", *SMALL]


@pytest.fixture
def contract(bonafed):
    assert bonafed("quote", "sampling", *UNIFORM, "--save", "c.json")[0] == 0
    return Path("c.json")


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class TestWhatIsSigned:
    def test_verify_prints_it(self, bonafed, contract):
        code, out, _ = bonafed("verify", "c.json")
        assert code == 0
        for text in ("3", "100", "120 over the run", "uniform, low 0.5, high 1.5", sha256(contract)):
            assert text in out
        assert "nothing in this file binds" in " ".join(out.replace("│", " ").split())
        said = json.loads(bonafed("verify", "c.json", "--json")[1])
        assert (said["clients"], said["rounds"], said["budget"]) == (3, 100, 120)
        assert said["sha256"] == sha256(contract)
        assert said["groups"][0]["prior"] == {"kind": "uniform", "low": 0.5, "high": 1.5}
        assert (said["confidence"], said["coin_commitment"], said["holds"]) == (None, None, True)

    def test_confidence_and_committed_coins_too(self, bonafed):
        assert bonafed("quote", "sampling", *UNIFORM, "--confidence", "0.9", "--save", "c.json")[0] == 0
        data = {**read_object("c.json"), "coins": {"commitment": "ab" * 32}}
        SamplingContract.from_json(data).write("c.json")
        code, out, _ = bonafed("verify", "c.json")
        assert code == 0
        assert "ab" * 32 in out
        assert "with probability 0.9" in " ".join(out.replace("│", " ").split())
        said = json.loads(bonafed("verify", "c.json", "--json")[1])
        assert (said["confidence"], said["coin_commitment"]) == (0.9, "ab" * 32)
        assert said["intended_spend"] < 120

    def test_rules_too(self, bonafed):
        assert (
            bonafed("quote", "sampling", "--prior-free", "--highest", "1.5", *SMALL, "--save", "r.json")[0]
            == 0
        )
        PriorFreeContract.from_json(read_object("r.json")).with_coins("cd" * 32).write("r.json")
        code, out, _ = bonafed("verify", "r.json")
        assert code == 0
        for text in ("Prior-free rules", "120 over the run", "highest", "cd" * 32, sha256("r.json")):
            assert text in out
        code, _, err = bonafed("verify", "r.json", "--cost", "1")
        assert code == 2
        assert "cost cannot be priced alone" in err


class TestWhatIsEarned:
    def test_mean_spread_and_best_lie(self, bonafed, contract):
        code, out, _ = bonafed("verify", "c.json", "--cost", "0.9")
        assert code == 0
        assert "A client of cost 0.9" in out
        assert "No lie gains" in out
        (said,) = json.loads(bonafed("verify", "c.json", "--cost", "0.9", "--json")[1])["prospects"]
        q, r = map(float, contract_from_json(read_object("c.json")).menu.price(0.9))
        assert (said["probability"], said["payment"]) == (q, r)
        assert said["income"] == pytest.approx(100 * q * r)
        assert said["profit"] == pytest.approx(100 * q * (r - 0.9))
        assert said["profit_sd"] == pytest.approx((100 * q * (1 - q)) ** 0.5 * (r - 0.9))
        assert said["income_low"] < said["income"] < said["income_high"]
        assert said["gain"] <= 0

    def test_of_a_cost_that_is_not_admitted(self, bonafed, contract):
        code, out, _ = bonafed("verify", "c.json", "--cost", "1.7")
        assert code == 0
        assert "not admitted, it earns nothing" in " ".join(out.split())
        (said,) = json.loads(bonafed("verify", "c.json", "--cost", "1.7", "--json")[1])["prospects"]
        assert said["profit"] == said["income"] == 0
        assert said["gain"] < 0

    def test_where_everybody_is_paid_the_same_there_is_no_lie(self, bonafed):
        words = ["--prior", "uniform:0.5,1.5", *SMALL[:-1], "450"]
        assert bonafed("quote", "sampling", *words, "--save", "c.json")[0] == 0
        assert "nothing to lie about" in " ".join(bonafed("verify", "c.json", "--cost", "1")[1].split())

    def test_a_cost_is_a_number_that_is_not_negative(self, bonafed, contract):
        assert bonafed("verify", "c.json", "--cost", "-1") == (
            2,
            "",
            "error: cost must not be negative, got -1.0\n",
        )


class TestSignatures:
    @pytest.fixture
    def signed(self, bonafed):
        assert bonafed("keygen", "op.pem")[0] == 0
        assert bonafed("quote", "sampling", *UNIFORM, "--save", "c.json", "--sign", "op.pem")[0] == 0
        return Path("c.json")

    def test_keys_are_for_their_owner_and_never_replaced(self, bonafed):
        assert bonafed("keygen", "op.pem")[0] == 0
        assert stat.S_IMODE(Path("op.pem").stat().st_mode) == 0o600
        assert "PRIVATE" not in Path("op.pub.pem").read_text()
        before = Path("op.pem").read_bytes()
        code, _, err = bonafed("keygen", "op.pem")
        assert (code, err) == (2, "error: key must be a new file: a key is never replaced, got op.pem\n")
        assert Path("op.pem").read_bytes() == before

    def test_a_signed_contract_is_recognised(self, bonafed, signed):
        code, out, _ = bonafed("verify", "c.json", "--key", "op.pub.pem")
        assert code == 0
        assert "signature" in out
        assert sha256("c.json") in out
        assert bonafed("sign", "c.json", "--key", "op.pem")[0] == 0  # again: the same signature
        assert bonafed("verify", "c.json", "--key", "op.pub.pem")[0] == 0

    def test_what_is_signed_is_what_it_says_not_how_it_is_laid_out(self, bonafed, signed):
        signed.write_text(json.dumps(json.loads(signed.read_text())))
        assert bonafed("verify", "c.json", "--key", "op.pub.pem")[0] == 0

    def test_another_key_another_contract_or_no_signature_fail_the_check(self, bonafed, signed):
        def failing():
            code, out, _ = bonafed("verify", "c.json", "--key", "op.pub.pem", "--json")
            return code, [c["text"] for c in json.loads(out)["findings"] if not c["holds"]]

        wrong = "c.json.sig does not match op.pub.pem, or not this contract"
        signature = Path("c.json.sig").read_bytes()
        Path("c.json.sig").write_bytes(b"not base64 !")
        assert failing() == (1, [wrong])
        Path("c.json.sig").unlink()
        assert failing() == (1, ["c.json.sig is missing: the contract is not signed"])
        assert bonafed("keygen", "other.pem")[0] == 0
        assert bonafed("sign", "c.json", "--key", "other.pem")[0] == 0
        assert failing() == (1, [wrong])
        other = ["quote", "sampling", *UNIFORM[:-1], "121", "--save", "c.json"]
        rule = "--save must not replace a contract that is signed (c.json.sig): name another file"
        refused = (2, "", f"error: {rule}, got c.json\n")
        assert bonafed(*other) == refused
        assert bonafed(*other, "--sign", "other.pem") == refused
        assert bonafed("quote", "sampling", *UNIFORM, "--save", "c.json")[0] == 0  # the same once more
        Path("c.json.sig").unlink()
        assert bonafed(*other)[0] == 0
        Path("c.json.sig").write_bytes(signature)
        assert failing() == (1, [wrong])

    def test_rules_are_signed_too(self, bonafed):
        assert bonafed("keygen", "op.pem")[0] == 0
        words = ["--prior-free", "--highest", "1.5", *SMALL, "--save", "r.json", "--sign", "op.pem"]
        assert bonafed("quote", "sampling", *words)[0] == 0
        assert bonafed("verify", "r.json", "--key", "op.pub.pem")[0] == 0

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (
                ["quote", "sampling", *UNIFORM, "--sign", "op.pem"],
                "--sign requires --save, got op.pem",
            ),
            (
                ["quote", "sampling", *UNIFORM, "--save", "d.json", "--sign", "none.pem"],
                "none.pem: No such file or",
            ),
            (
                ["quote", "sampling", *UNIFORM, "--save", "d.json", "--sign", "op.pub.pem"],
                "op.pub.pem: must be a private",
            ),
            (["sign", "c.json"], "--key is required: the private key that `bonafed keygen` wrote"),
            (["sign", "c.json", "--key", "c.json"], "c.json: must be a private key in PEM"),
            (["verify", "c.json", "--key", "op.pem"], "op.pem: must be a public key in PEM"),
            (["verify", "c.json", "--key", "none.pem"], "none.pem: No such file or directory"),
            (["keygen", "no/op.pem"], "output must be in an existing folder, got no/op.pem"),
        ],
    )
    def test_refusals_leave_nothing_behind(self, bonafed, signed, words, said):
        before = sorted(path.name for path in Path().iterdir())
        code, _, err = bonafed(*words)
        assert code == 2
        assert err.startswith(f"error: {said}")
        assert sorted(path.name for path in Path().iterdir()) == before

    def test_other_tools_can_check_it(self, bonafed, signed):
        """It is a signature of the file as written, by a key in the form that other tools read."""
        key = load_pem_public_key(Path("op.pub.pem").read_bytes())
        key.verify(base64.b64decode(Path("c.json.sig").read_text()), signed.read_bytes())


class TestCautions:
    def test_settle_says_that_the_reports_made_the_contract(self, bonafed):
        Path("stated.csv").write_text("2\n3.5\n9.5\n")
        words = ["--clients", "3", "--rounds", "100", "--budget", "1200"]
        assert (
            bonafed("quote", "sampling", "--past-costs", "stated.csv", *words, "--save", "c.json")[0] == 0
        )
        out = " ".join(bonafed("settle", "c.json", "--reports", "stated.csv")[1].split())
        assert "note: 3 of 3 reports are among the past costs that the contract was made from" in out
        assert "bonafed quote sampling --prior-free" in out
        drawn = json.loads(bonafed("settle", "c.json", "--draw", "0", "--json")[1])["cautions"]
        assert not any("past costs" in sentence for sentence in drawn)
        Path("others.csv").write_text("2.5\n3\n9\n")
        assert "past costs" not in bonafed("settle", "c.json", "--reports", "others.csv")[1]

    def test_settle_says_that_these_reports_exceed_the_budget(self, bonafed, contract):
        Path("cheap.csv").write_text("0.5\n0.5\n0.6\n")
        out = " ".join(bonafed("settle", "c.json", "--reports", "cheap.csv")[1].split())
        assert "note: the expected spend for these reports" in out
        assert "exceeds the budget of 120" in out
        Path("dear.csv").write_text("1.2\n1.3\n1.4\n")
        assert (
            json.loads(bonafed("settle", "c.json", "--reports", "dear.csv", "--json")[1])["cautions"] == []
        )


def test_past_costs_and_reports_are_two_things(bonafed):
    Path("f.csv").write_text("0.5\n0.6\n0.7\n")
    code, _, err = bonafed(
        "quote", "sampling", "--prior-free", "--highest", "1", "--past-costs", "f.csv", *SMALL
    )
    assert code == 2
    assert "use --reports for what the clients state" in err
    code, _, err = bonafed("quote", "sampling", "--past-costs", "f.csv", "--reports", "f.csv", *SMALL)
    assert (code, err) == (
        2,
        "error: --reports requires --prior-free; see also bonafed settle, got f.csv\n",
    )
    assert bonafed("quote", "sampling", "--costs", "f.csv", *SMALL)[0] == 2
