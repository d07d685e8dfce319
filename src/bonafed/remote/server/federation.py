"""The server's side: a federation whose clients answer messages.

    gather      who is there, and what each says of what it holds: the roster of the run
    publish     the mechanism is made; its contract is what clients will report under
    report      what each states, signed
    conclude    the terms, which all must accept
    total, replies   the work of a round; one message per client, however many tasks and models
    account     the statement, held against every client's own ledger

A client is asked by its name, and its answer counts only if it is signed with the key that the roster
binds to this name, for this run and this request. Whatever else comes is a `Failure` that says why: it is
left out of the exchange, and after so many faults in a row it is not asked again in this run
(`exclude_after`).
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.coins import Coins
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.economics.findings import Finding
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import (
    Failure,
    Question,
    Reply,
    Roster,
    Task,
    Total,
    answer_shape,
)
from bonafed.learning.function_federation import usable_answer
from bonafed.mechanisms.protocol import Config, Mechanism
from bonafed.remote.messages import (
    SERVER,
    BadMessage,
    JSONObject,
    Message,
    Sealed,
    Sign,
    Transport,
    Verify,
    digest_of,
    seal,
    unseal,
)
from bonafed.remote.participation_coins import SALT_BYTES, coins_to_json, seed_commitment, tossed
from bonafed.remote.roster import roster_from_json, roster_to_json
from bonafed.remote.server.evidence import Evidence
from bonafed.remote.sums import NOT_SECURE, add_up, parts_of
from bonafed.remote.tasks import Asked, Refusal, pack_tasks, unpack_answers
from bonafed.runs.config import to_tables
from bonafed.text import natural_order

ANSWER_WITHIN = 120.0  # seconds that a client has for an answer
EXCLUDE_AFTER = 3  # faults in a row after which a client is not asked again
Tell = Callable[[str], None]
_FACTS = ("records", "shape", "classes", "class_names", "vocabulary", "feature_bound", "smoothness",
          "strong_convexity")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """Who asks: the federation's name, the keys, and what carries messages."""

    federation: str
    keys: Mapping[str, str]  # public key of each member on the roster, by name
    sign: Sign
    verify: Verify  # of members
    transport: Transport
    answer_within: float = ANSWER_WITHIN
    exclude_after: int = EXCLUDE_AFTER
    tell: Tell = lambda _text: None
    colluders: int | None = None  # that secure sums allow for; None: the server sees single answers


class RemoteFederation:
    """Clients that answer messages; made by `gather` or `again`."""

    def __init__(self, operator: Operator, run: str, members: Roster, records: Evidence) -> None:
        self.members, self.run = members, run
        self._operator, self._records = operator, records
        self._faults = dict.fromkeys(members.names, 0)
        self._accepted: dict[str, list[str]] = {name: [] for name in members.names}  # to be told
        self._counted: dict[str, list[str]] = {name: [] for name in members.names}  # told or not
        self._reports: dict[str, Sealed] = {}
        self._contract: PublishedContract | None = None  # what clients report under
        self._seed: JSONObject = {}  # opens the commitment to run.seed
        self._nonces: dict[str, bytes] = {}  # what clients revealed, for coins
        self._concluded = False
        self.exchanges = 0

    @property
    def vouched(self) -> Collection[str]:
        """No client: nobody vouches for what another process answers."""
        return ()

    @classmethod
    def gather(cls, operator: Operator, config: Config, run: str, records: Evidence) -> RemoteFederation:
        """Ask everybody on the roster what it holds; who answers is in this run."""
        names = tuple(operator.keys)
        asking = cls(operator, run, Roster(names, np.zeros(len(names), dtype=np.int64)), records)
        salt = secrets.token_bytes(SALT_BYTES)
        content: JSONObject = {
            "federation": operator.federation, "config": sent_tables(config),
            "contract": None if config.contract is None else _contract_data(config.contract),
            "seed": seed_commitment(config.run.seed, salt), "secure": operator.colluders,
        }  # fmt: skip
        answers = asking._ask("describe", dict.fromkeys(names, content))
        members = _roster(answers, operator.tell)
        records.begin(run, operator.federation, roster_to_json(members), operator.colluders)
        gathered = cls(operator, run, members, records)
        gathered.exchanges = asking.exchanges
        gathered._seed = {"value": config.run.seed, "salt": salt.hex()}
        return gathered

    @classmethod
    def again(cls, operator: Operator, records: Evidence) -> RemoteFederation:
        """The federation of a run that goes on: the roster and the terms are those it began with."""
        run, members, counted = records.begun()
        federation = cls(operator, run, roster_from_json(members), records)
        federation._concluded = True
        for name, identifiers in counted.items():
            if name in federation._counted:
                federation._counted[name] = list(identifiers)
                federation._accepted[name] = list(identifiers)
        return federation

    def publish(self, mechanism: Mechanism[Any]) -> None:
        """The contract that clients will report under."""
        if mechanism.config.noise_at == "sum" and self._operator.colluders is None:  # before reports
            raise InvalidValue("noise_at", NOT_SECURE, '"sum"')
        self._contract = mechanism.contract
        if mechanism.question is None and not self._concluded:
            self._ask_reports(None)

    def report(self, question: Question) -> Mapping[str, float]:
        """What clients state, signed."""
        return self._ask_reports(question)

    def _ask_reports(self, question: Question | None) -> dict[str, float]:
        asked = None if question is None else {"name": question.name, "unit": question.unit}
        content: JSONObject = {
            "members": roster_to_json(self.members), "question": asked,
            "contract": None if self._contract is None else self._contract.digest,
            "keys": {name: self._operator.keys[name] for name in self.members.names},
        }  # fmt: skip
        reports, silent = dict[str, float](), list[str]()
        answers = self._ask("report", dict.fromkeys(self.members.names, content))
        for name, answer in answers.items():
            if isinstance(answer, Failure):
                silent.append(f"{name}: {answer.reason}")
                continue
            self._records.keep(answer)
            self._reports[name] = answer
            if question is not None:
                reports[name] = checks.number(f"report of {name}", answer.message.content.get("report"))
        if silent:
            rule = "must come from everybody in this run"
            raise InvalidValue("reports", rule, "; ".join(silent))
        return reports

    def conclude(self, agreement: Agreement) -> None:
        """Send everybody the terms; all must accept them before anybody works."""
        if self._concluded:
            return
        signed = {
            name: {"header": _text(sealed.header), "signature": _text(sealed.signature)}
            for name, sealed in self._reports.items()
        }
        data = agreement.to_json()
        content: JSONObject = {
            "reports": signed if agreement.reports else None, "agreement": data, "seed": self._seed,
            "commitments": self._commitments,
        }  # fmt: skip
        digest = digest_of(data)
        answers = self._ask("agree", dict.fromkeys(self.members.names, content))
        refusals = []
        for name, answer in answers.items():
            if isinstance(answer, Failure):
                refusals.append(f"{name}: {answer.reason}")
            elif answer.message.content.get("accepts") != digest:
                refusals.append(f"{name}: accepts something else")
            else:
                self._records.keep(answer)
                self._take_nonce(name, answer.message.content.get("nonce"))
        if refusals:
            rule = "must be accepted by everybody before training begins"
            raise InvalidValue("terms", rule, "; ".join(refusals))
        self._records.concluded()
        self._concluded = True

    @property
    def _commitments(self) -> dict[str, str] | None:
        """To everybody's nonce; None: there are no coins to toss."""
        if self._contract is None or self._contract.coin_commitment is None:
            return None
        return {
            name: str(sealed.message.content.get("commitment")) for name, sealed in self._reports.items()
        }

    def _take_nonce(self, name: str, nonce: object) -> None:
        """Who does not reveal is not admitted: the coins say so."""
        if isinstance(nonce, str) and len(nonce) == 64:
            with suppress(ValueError):
                self._nonces[name] = bytes.fromhex(nonce)

    def toss(self, agreement: Agreement, secret: bytes) -> Coins:
        """Coins from the server's secret and what clients revealed."""
        commitments = self._commitments
        if agreement.contract is None or commitments is None:
            rule = "must be published with a commitment to their secret (quote --commit-coins)"
            raise InvalidValue("contract of verifiable coins", rule, "one without")
        return tossed(agreement.contract, agreement.reports, commitments, self._nonces, secret)

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        return self._work([Asked(task, 0.0) for task in tasks])

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        if not tasks:
            return Total(np.zeros((1, 1)), ())
        parts = parts_of(tasks, shares, noise)
        replies = self._work([part.asked for part in parts])
        return add_up(tasks, parts, replies, self.members)

    def account(self, statement: Statement, agreement: Agreement) -> Statement:
        """The statement, once everybody has held it against its own ledger."""
        data = statement.to_json()
        coins = None if agreement.coins is None else coins_to_json(agreement.coins)
        contents = {
            name: {"statement": data, "accepted": self._counted[name], "coins": coins}
            for name in self.members.names
        }
        answers = self._ask("settle", contents, excluded=True)
        agreed, disputed, silent = list[str](), list[str](), list[str]()
        for name, answer in answers.items():
            if isinstance(answer, Failure):
                silent.append(f"{name} ({answer.reason})")
                continue
            self._records.keep(answer)
            if answer.message.content.get("agrees") is True:
                agreed.append(name)
            else:
                told = answer.message.content.get("differences")
                disputed.append(f"{name}: {'; '.join(map(str, told)) if isinstance(told, list) else told}")
        text = f"{len(agreed)} of {len(self.members)} participants' own ledgers say the same"
        if disputed:
            text += "; DISPUTED by " + ", ".join(disputed)
        if silent:
            text += "; no receipt from " + ", ".join(silent)
        finding = Finding("receipts", not disputed, text, float(len(disputed)))
        keys = {name: self._records.key_digests.get(name, "") for name in statement.clients}
        return replace(
            statement, findings=(*statement.findings, finding), facts={**statement.facts, "keys": keys},
            columns={**statement.columns, "key": [digest[:16] for digest in keys.values()]},
        )  # fmt: skip

    def _work(self, asked: Sequence[Asked]) -> dict[str, Reply | Failure]:
        """The answer of each task or why there is none, by identifier, in the order of the tasks."""
        by_client = dict[str, list[Asked]]()
        for each in asked:
            if each.task.client not in self.members.index:
                raise InvalidValue("client", "must be in the roster", repr(each.task.client))
            by_client.setdefault(each.task.client, []).append(each)
        contents, numbers = dict[str, JSONObject](), dict[str, Any]()
        for name, own in by_client.items():
            self._ask_again(name, {each.task.identifier for each in own})
            rows, numbers[name] = pack_tasks(own)
            contents[name] = {"tasks": rows, "accepted": self._accepted[name]}
        answers = self._ask("work", contents, numbers)
        replies = dict[str, Reply | Failure]()
        for name, own in by_client.items():
            replies |= self._usable(name, own, answers[name])
        return {each.task.identifier: replies[each.task.identifier] for each in asked}

    def _ask_again(self, name: str, identifiers: set[str]) -> None:
        """Answers that were lost with a killed server count once they have come again."""
        if lost := [one for one in self._counted[name] if one in identifiers]:
            self._counted[name] = [one for one in self._counted[name] if one not in identifiers]
            self._accepted[name] = [one for one in self._accepted[name] if one not in identifiers]
            self._records.uncount(name, lost)

    def _usable(
        self, name: str, asked: Sequence[Asked], answer: Sealed | Failure
    ) -> dict[str, Reply | Failure]:
        if isinstance(answer, Failure):
            return {each.task.identifier: answer for each in asked}
        position, message = self.members.index[name], answer.message
        try:
            given = unpack_answers(message.content.get("answers"), message.numbers, position)
        except InvalidValue as error:
            self._fault(name, str(error))
            return {each.task.identifier: Failure(str(error)) for each in asked}
        self._records.keep(answer)
        replies, accepted = dict[str, Reply | Failure](), list[str]()
        for each in asked:
            task = each.task
            one = given.get(task.identifier)
            if isinstance(one, Refusal):
                replies[task.identifier] = Failure(f"refused: {one.reason}")
                continue
            replies[task.identifier] = usable = usable_answer(
                one, answer_shape(task), task.models.dtype, position
            )
            if isinstance(usable, Reply):
                accepted.append(task.identifier)
        bad = next((reply for reply in replies.values() if isinstance(reply, Failure)), None)
        if bad is None:
            self._faults[name] = 0
        else:
            self._fault(name, bad.reason)
        self._accepted[name] = accepted
        self._counted[name] += accepted
        self._records.count(name, accepted)
        return replies

    def _ask(
        self,
        kind: str,
        contents: Mapping[str, JSONObject],
        numbers: Mapping[str, Any] | None = None,
        *,
        excluded: bool = False,
    ) -> dict[str, Sealed | Failure]:
        """One exchange: a signed answer of each, or why there is none; by name, in the order asked."""
        operator, results = self._operator, dict[str, Sealed | Failure]()
        sealed, outgoing = dict[str, Sealed](), dict[str, bytes]()
        for name, content in contents.items():
            if not excluded and self._faults[name] >= operator.exclude_after:
                results[name] = Failure(f"excluded after {self._faults[name]} faults in a row", absent=True)
                continue
            message = Message(
                kind, self.run, SERVER, name, content, None if numbers is None else numbers[name]
            )
            sealed[name], outgoing[name] = seal(message, operator.sign)
        came = operator.transport.exchange(outgoing, operator.answer_within) if outgoing else {}
        self.exchanges += bool(outgoing)
        for name in outgoing:
            results[name] = self._checked(
                name, sealed[name], came.get(name, Failure("nothing", absent=True))
            )
        return {name: results[name] for name in contents}

    def _checked(self, name: str, asked: Sealed, came: bytes | Failure) -> Sealed | Failure:
        """An answer that is this client's, to this request."""
        if isinstance(came, Failure):
            self._fault(name, came.reason)
            return came
        try:
            answer = unseal(came, self._operator.verify)
        except BadMessage as error:
            self._fault(name, str(error))
            return Failure(str(error))
        message, wrong = answer.message, ""
        if message.sender != name or message.recipient != SERVER:
            wrong = f"sender must be {name!r}, got {message.sender!r}"
        elif message.kind == "refused":
            reason = str(message.content.get("reason"))[:500]
            self._fault(name, f"refused: {reason}")
            return Failure(f"refused: {reason}")
        elif message.run != self.run or message.answers != asked.digest:
            wrong = "answer must be to this request, got one to another"
        elif message.kind != asked.message.kind:
            wrong = f"kind must be {asked.message.kind!r}, got {message.kind!r:.60}"
        if wrong:
            self._fault(name, wrong)
            return Failure(wrong)
        if message.kind != "work":  # whether work can be used is seen when it is looked at
            self._faults[name] = 0
        return answer

    def _fault(self, name: str, reason: str) -> None:
        self._faults[name] += 1
        self._operator.tell(f"{name}: {reason}")
        if self._faults[name] == self._operator.exclude_after:
            self._operator.tell(f"{name} is not asked again in this run, after {self._faults[name]} faults")


def sent_tables(config: Config) -> JSONObject:
    """The config as participants see it: nothing of the server's own data and folders."""
    tables = {name: dict(table) for name, table in to_tables(config).items()}
    kept = {"classes": config.data.classes} if config.data.classes is not None else {}
    tables["data"] = {"name": "federation", **_plain(kept)}
    tables["partition"] = {"kind": "iid", "clients": config.partition.clients or 1}
    tables["run"] = {}  # the seed is opened when everybody has reported
    plain: JSONObject = _plain(tables)
    return plain


def _plain(value: Any) -> Any:
    """Tables without what is not set."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items() if part is not None}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _contract_data(contract: PublishedContract) -> JSONObject:
    data: JSONObject = json.loads(contract.content)
    return data


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _roster(answers: Mapping[str, Sealed | Failure], tell: Tell) -> Roster:
    """Who is in: everybody who described records like the others'."""
    facts, reasons = dict[str, JSONObject](), list[str]()
    for name, answer in answers.items():
        if isinstance(answer, Failure):
            tell(f"{name} is not in this run: {answer.reason}")
            reasons.append(f"{name}: {answer.reason}")
            continue
        content = dict(answer.message.content)
        if sorted(content) != sorted(_FACTS):
            tell(f"{name} is not in this run: it describes itself by {', '.join(sorted(content))[:200]}")
            continue
        facts[name] = content
    if not facts:
        rule = "must have a member that joins this run"
        raise InvalidValue("federation", rule, f"nobody ({'; '.join(reasons)[:600]})")
    names = sorted(facts, key=natural_order)  # as the owners of records in a table are listed
    for key in ("shape", "classes", "class_names", "vocabulary", "strong_convexity"):
        first = facts[names[0]][key]
        for name in names[1:]:
            if facts[name][key] != first:
                rule = f"must be as that of {names[0]}, {first!r}"
                raise InvalidValue(f"{key} of {name}", rule, repr(facts[name][key])[:60])
    one = facts[names[0]]
    return roster_from_json(
        {
            "names": names, "sizes": [facts[name]["records"] for name in names],
            **{key: one[key] for key in ("shape", "classes", "class_names", "vocabulary",
                                         "strong_convexity")},
            **{key: _largest([facts[name][key] for name in names]) for key in (
                "feature_bound", "smoothness")},
        }
    )  # fmt: skip


def _largest(values: Sequence[Any]) -> float | None:
    """A bound that holds for everybody; None: somebody states none."""
    if any(value is None for value in values):
        return None
    return max(checks.positive("bound", value) for value in values)
