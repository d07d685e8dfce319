"""A participant's side: it believes nothing that it can compute, and answers nothing that it did not sell.

What it is asked, all of it signed by the operator:

    describe   (1) the config, and the contract where one is published. It verifies the contract, holds both
                   against its policy, and says how many records it has and of which shape
    report     (2) who is in, and what is asked. It makes the mechanism of the config by itself: the
                   contract must be the one that follows. It states its cost, signed, once in this run
    agree      (3) what everybody reported, each signed. It computes the terms by itself; if they are the
                   server's, cover its cost and sell no more than its policy allows, it signs their digest
    work       (4) tasks, each with an identifier. Asked again, it gives the same answer; other content
                   under the same identifier is refused, and so is what exceeds what it sold by its ledger
    keys, shares, input, unmask    instead of (4) in a run of secure sums (`summing`)
    settle     (5) the statement. It is held against its own ledger, and a receipt names what differs

Everything it answers is on disk before it leaves (`journal`), so that being killed changes nothing.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bonafed import checks
from bonafed.contracts.published import Agreement
from bonafed.errors import BonafedError, InvalidValue, MissingValue
from bonafed.learning.engine.resources import single_threaded
from bonafed.learning.federation import Failure, Reply
from bonafed.learning.noise import Reproducible, Secret, Source
from bonafed.learning.privacy import require_small_delta
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.contract_files import contract_from_json
from bonafed.mechanisms.protocol import Config, Mechanism
from bonafed.remote.keys import key_digest, member_public
from bonafed.remote.messages import (
    SERVER,
    BadMessage,
    JSONObject,
    Message,
    Sealed,
    Sign,
    Verify,
    digest_of,
    first_difference,
    holds,
    seal,
    unseal,
)
from bonafed.remote.participant.journal import Journal
from bonafed.remote.participant.known_run import KnownRun
from bonafed.remote.participant.local_data import Bench, Holding
from bonafed.remote.participant.own_account import OwnAccount, differences, own_account
from bonafed.remote.participant.policy import Policy
from bonafed.remote.participant.summing import Summing
from bonafed.remote.participation_coins import opened_seed, own_commitment, revealed, times_by_coins
from bonafed.remote.roster import roster_from_json
from bonafed.remote.tasks import (
    Answer,
    Asked,
    Refusal,
    answer_to_json,
    pack_answers,
    releases_from,
    unpack_tasks,
    work_to_json,
)
from bonafed.runs.config import from_tables
from bonafed.runs.prepare import under

REFUSED = "refused"  # kind of an answer that says why there is no other


class Participant:
    """One client: `handle` answers a request, whoever carries it."""

    def __init__(
        self,
        name: str,
        federation: str,
        holding: Holding,
        costs: Mapping[str, float],
        policy: Policy,
        journal: Journal,
        sign: Sign,
        verifier: Callable[[Mapping[str, str]], Verify],
        secret: bytes,
        on_event: Callable[[str], None] = lambda _text: None,
        others: Mapping[str, str] | None = None,
    ) -> None:
        """`verifier` makes a check of signatures of the operator and of members with these public keys.

        `others` are the digests of the keys on the roster that I was given by name; None: none was, and the
        server could make others up.
        """
        self._others, self._lock = others, threading.Lock()
        self.name, self._federation, self._holding, self._costs = name, federation, holding, costs
        self._policy, self._journal, self._sign = policy, journal, sign
        self._verifier, self._secret, self._tell = verifier, Secret(secret), on_event
        self._known: dict[str, KnownRun] = {}
        self._kinds: Mapping[str, Callable[[Sealed], tuple[JSONObject, Any]]] = {
            "describe": self._once(self._describe), "report": self._once(self._report),
            "agree": self._once(self._agree), "work": self._work, "settle": self._settle,
            "keys": self._sum, "shares": self._sum, "input": self._sum, "unmask": self._sum,
        }  # fmt: skip

    def handle(self, data: bytes) -> bytes:
        """The signed answer to a request; a refusal is one as well, and says why. One at a time."""
        with self._lock:
            return self._handled(data)

    @single_threaded()
    def _handled(self, data: bytes) -> bytes:
        try:
            request = unseal(data, self._verifier({}))
            self._require_mine(request.message)
        except BadMessage as error:
            refusal = Message(REFUSED, "0" * 32, self.name, SERVER, {"reason": str(error)})
            return seal(refusal, self._sign)[1]
        message = request.message
        try:
            content, numbers = self._kinds[message.kind](request)
            kind = message.kind
        except BonafedError as error:
            kind, content, numbers = REFUSED, {"reason": str(error)[:1000]}, None
            self._tell(f"refused {message.kind} of run {message.run[:8]}: {error}")
        except Exception as error:  # nothing that is asked may stop a participant
            kind, content, numbers = REFUSED, {"reason": f"cannot be read ({type(error).__name__})"}, None
            self._tell(f"refused {message.kind} of run {message.run[:8]}: {error!r}")
        answer = Message(kind, message.run, self.name, SERVER, content, numbers, answers=request.digest)
        return seal(answer, self._sign)[1]

    def _require_mine(self, message: Message) -> None:
        if message.sender != SERVER or message.answers:
            raise BadMessage(f"sender must be the server, with a request, got {message.sender!r:.60}")
        if message.recipient != self.name:
            raise BadMessage(f"recipient must be {self.name!r}, got {message.recipient!r:.60}")
        if message.kind not in self._kinds:
            known = ", ".join(self._kinds)
            raise BadMessage(f"kind must be one of {known}, got {message.kind!r:.60}")

    def _once(self, answer: Callable[[Sealed], JSONObject]) -> Callable[[Sealed], tuple[JSONObject, Any]]:
        """A request that is answered once in a run; asked again, the answer is the same."""

        def answered(request: Sealed) -> tuple[JSONObject, Any]:
            message = request.message
            # signatures of the same reports may differ; what is agreed on may not
            digest = digest_of(message.content.get("agreement", message.content))
            before = self._journal.answered(message.run, message.kind)
            if before is not None:
                if before.digest != digest:
                    rule = "must be what was asked before in this run"
                    raise InvalidValue(message.kind, rule, f"other content ({digest[:12]}...)")
                return before.answer, None
            content = answer(request)
            self._journal.keep(message.run, message.kind, digest, content)
            return content, None

        return answered

    # (1)

    def _describe(self, request: Sealed) -> JSONObject:
        run, content = request.message.run, request.message.content
        if content.get("federation") != self._federation:
            rule = f"must be {self._federation!r}"
            raise InvalidValue("federation", rule, repr(content.get("federation"))[:60])
        config = self._config(content)
        for note in self._policy.check_config(config, len(self._holding)):
            self._tell(f"run {run[:8]}: warning: {note}")
        if config.contract is not None:
            self._policy.check_contract(config.contract)
        described = self._holding.described(config)
        self._journal.note(run, describe=dict(content))
        self._tell(f"run {run[:8]}: {config.mechanism}, asked to describe what I hold")
        return described

    def _config(self, content: Mapping[str, Any]) -> Config:
        tables, stated = content.get("config"), content.get("contract")
        if not isinstance(tables, dict):
            raise MissingValue("config")
        if stated is None:
            return from_tables(tables)
        if not isinstance(stated, dict):
            raise InvalidValue("contract", "must be an object", type(stated).__name__)
        return under(tables, contract_from_json(stated))

    # (2)

    def _report(self, request: Sealed) -> JSONObject:
        run, content = request.message.run, request.message.content
        if self._journal.fact(run, "describe") is None:
            raise InvalidValue("run", "must have been described to me first", run[:12])
        self._require_own_facts(run, content)
        self._journal.note(run, report=dict(content))
        self._known.pop(run, None)  # of a report that was refused
        known = self._knows(run)
        contract = known.mechanism.contract
        digest = None if contract is None else contract.digest
        if content.get("contract") != digest:
            rule = f"must be the one that follows from the config, {str(digest)[:12]}..."
            raise InvalidValue("contract", rule, repr(content.get("contract"))[:60])
        if contract is not None and known.config.contract is None:
            self._policy.check_contract(contract)
        return {
            "report": self._stated(known.mechanism, content.get("question")),
            "commitment": own_commitment(contract, self.name, self._secret, run),
        }

    def _require_own_facts(self, run: str, content: Mapping[str, Any]) -> None:
        """The roster says of me what I said of myself, and the others are who they are known to be."""
        members = roster_from_json(content.get("members"))
        if self.name not in members.index:
            raise InvalidValue("members", f"must include me, {self.name!r}", len(members))
        records = int(members.sizes[members.index[self.name]])
        if records != len(self._holding):
            raise InvalidValue("members", f"must say that I hold {len(self._holding)} records", records)
        keys = content.get("keys")
        if not isinstance(keys, dict) or set(keys) != set(members.names):
            raise InvalidValue("keys", "must be one for every member", repr(keys)[:60])
        for name in members.names if self._others is not None else ():
            digest = key_digest(member_public(str(keys[name]), f"key of {name}"))
            if self._others is None or self._others.get(name) != digest:
                raise InvalidValue(f"key of {name}", "must be the one on the roster that I have", digest)
        if self._others is None and self._journal.fact(run, "describe").get("secure") is not None:
            rule = "is required for secure sums: without it the server could make up everybody else"
            raise MissingValue("federation.roster", rule)

    def _stated(self, mechanism: Mechanism[Any], question: object) -> float | None:
        """My cost, if that is what the mechanism asks for."""
        due = mechanism.question
        if due is None:
            if question is not None:
                raise InvalidValue("question", "must be none: this mechanism asks for nothing", question)
            return None
        if question != {"name": due.name, "unit": due.unit}:
            raise InvalidValue("question", f"must be {due.name!r} in {due.unit}", repr(question)[:90])
        if due.name not in self._costs:
            raise MissingValue(f"costs.{due.name}", f"is required to report it ({due.unit})")
        return checks.number(f"costs.{due.name}", self._costs[due.name])

    # (3)

    def _agree(self, request: Sealed) -> JSONObject:
        run, content = request.message.run, request.message.content
        before = self._journal.answered(run, "report")
        if before is None:
            raise InvalidValue("run", "must have asked for my report first", run[:12])
        known = self._knows(run)
        reports = self._signed_reports(run, known, content.get("reports"))
        own = before.answer["report"]
        if own is not None and reports.get(self.name) != own:
            raise InvalidValue("reports", f"must have mine, {own!r}", reports.get(self.name))
        agreement = known.mechanism.agree(known.members, reports)
        due, said = agreement.to_json(), content.get("agreement")
        if (difference := first_difference(said, due, "agreement")) is not None:
            raise InvalidValue(difference, "must be what I compute from the reports", "something else")
        position = known.members.index[self.name]
        promised = known.mechanism.promised(agreement)
        if promised is not None:
            require_small_delta("delta", promised.delta, len(self._holding))
        question = known.mechanism.question
        cost = None if question is None else self._costs.get(question.name)
        self._policy.check_terms(agreement, promised, position, cost)
        committed = self._journal.fact(run, "describe").get("seed")
        nonce = revealed(
            known.mechanism.contract, reports, content.get("commitments"), self.name, self._secret, run
        )
        self._journal.note(
            run,
            reports=reports,
            sold=None if promised is None else [float(promised.epsilon[position]), promised.delta],
            seed=opened_seed(content.get("seed"), committed),
            commitments=content.get("commitments"),
        )
        del self._known[run]  # what follows from the seed is made with it
        self._tell(f"run {run[:8]}: agreed to the terms")
        return {"accepts": digest_of(said), "nonce": nonce}

    def _signed_reports(self, run: str, known: KnownRun, rows: object) -> dict[str, float]:
        """What everybody stated in this run, each with its signature."""
        if known.mechanism.question is None:
            return {}
        if not isinstance(rows, dict):
            raise MissingValue("reports")
        verify, reports = self._verifier(self._journal.fact(run, "report")["keys"]), dict[str, float]()
        for name in known.members.names:
            row = rows.get(name)
            try:
                header = base64.b64decode(row["header"], validate=True)  # type: ignore[index]
                signature = base64.b64decode(row["signature"], validate=True)  # type: ignore[index]
            except (TypeError, KeyError, ValueError, binascii.Error) as error:
                raise InvalidValue("reports", f"must have a signed one of {name}", "none") from error
            said = holds(header, signature, verify)
            if said is None or (said.sender, said.run, said.kind) != (name, run, "report"):
                raise InvalidValue("reports", f"must have one that {name} signed in this run", "another")
            reports[name] = checks.number(f"report of {name}", said.content.get("report"))
        return reports

    # (4)

    def _work(self, request: Sealed) -> tuple[JSONObject, Any]:
        message = request.message
        run = message.run
        if self._journal.answered(run, "agree") is None:
            raise InvalidValue("run", "must have been agreed on before I work", run[:12])
        if self._colluders(run) is not None:
            raise InvalidValue(
                "kind", "must be that of secure sums, as agreed: I answer nobody alone", "work"
            )
        self._note_accepted(run, message.content.get("accepted"))
        asked = unpack_tasks(message.content.get("tasks"), message.numbers, self.name)
        answers = self.answers(run, asked)
        rows, numbers = pack_answers(answers)
        return {"answers": rows}, numbers

    def answers(self, run: str, asked: list[Asked]) -> dict[str, Answer]:
        """Old answers again, new ones computed and kept, refusals for what was not agreed on."""
        answers, new, again = dict[str, Answer](), list[Asked](), list[Asked]()
        known = self._knows(run)
        for each in asked:
            identifier = each.task.identifier
            before = self._journal.answered(run, identifier)
            try:
                if before is None:
                    known.require_sold(each, new)
                    new.append(each)
                elif before.digest != each.digest:
                    rule = "must not be reused for different work"
                    raise InvalidValue("identifier", rule, repr(identifier))
                elif "failure" in before.answer:
                    answers[identifier] = Failure(before.answer["failure"])
                elif before.numbers is None:
                    again.append(each)
                else:
                    row = before.answer
                    values = before.numbers.reshape(row["shape"])
                    loss = float("nan") if row["loss"] is None else float(row["loss"])
                    releases = releases_from(row["releases"], known.bench.position)
                    answers[identifier] = Reply(values, loss, row["steps"], releases)
            except InvalidValue as error:
                answers[identifier] = Refusal(str(error))
                self._tell(f"run {run[:8]}: refused {identifier}: {error}")
        fresh = known.bench.answers([*new, *again])
        for each in new:
            self._keep(run, each, fresh[each.task.identifier], known)
        answers |= fresh
        return {each.task.identifier: answers[each.task.identifier] for each in asked}

    def _keep(self, run: str, asked: Asked, answer: Answer, known: KnownRun) -> None:
        identifier, digest = asked.task.identifier, asked.digest
        releases = known.bench.release_of(asked) or ()
        kind = {"work": work_to_json(asked.task.work)["kind"]}
        if isinstance(answer, Reply):
            row, numbers = {**answer_to_json(answer), **kind}, answer.values.ravel()
            self._journal.keep(run, identifier, digest, row, numbers, releases)
        else:
            failed = {"failure": answer.reason, **kind}
            self._journal.keep(run, identifier, digest, failed, None, releases)

    def _colluders(self, run: str) -> int | None:
        """How many colluders secure sums allow for in this run; None: the server sees single answers."""
        secure = self._journal.fact(run, "describe").get("secure")
        return None if secure is None else checks.whole("secure", secure, at_least=0)

    def _sum(self, request: Sealed) -> tuple[JSONObject, Any]:
        """A step of a secure sum."""
        message, run = request.message, request.message.run
        colluders = None if self._journal.answered(run, "agree") is None else self._colluders(run)
        if colluders is None:
            raise InvalidValue("run", "must have been agreed on, with secure sums", run[:12])
        known, content = self._knows(run), message.content
        verify = self._verifier(self._journal.fact(run, "report")["keys"])
        noise = Secret(self._secret.derived(b"run", run.encode()))
        summing = Summing(self.name, run, self._journal, self._sign, verify, self._secret, noise)
        if message.kind == "keys":
            return summing.keys(content, known.members.names, colluders), None
        if message.kind == "shares":
            return summing.shares(content), None
        if message.kind == "unmask":
            return summing.unmask(content), None
        self._note_accepted(run, content.get("accepted"))
        return summing.input(
            content, message.numbers, known.bench, known.charge, known.require_agreed,
        )  # fmt: skip

    def _note_accepted(self, run: str, identifiers: object) -> None:
        if not isinstance(identifiers, list) or not all(isinstance(one, str) for one in identifiers):
            raise InvalidValue("accepted", "must be a list of identifiers", type(identifiers).__name__)
        self._journal.accept(run, identifiers)

    # (5)

    def _settle(self, request: Sealed) -> tuple[JSONObject, Any]:
        message, run = request.message, request.message.run
        if self._journal.answered(run, "agree") is None:
            raise InvalidValue("run", "must have been agreed on", run[:12])
        self._note_accepted(run, message.content.get("accepted"))
        known = self._knows(run)
        account = own_account(self._journal, run, self.name, known.members)
        agreement = self.agreement(run)
        differing = differences(message.content.get("statement"), account, agreement, self.name)
        differing += self._by_coins(run, known, message.content, account)
        self._journal.note(run, statement=message.content.get("statement"), differences=differing)
        self._tell(
            f"run {run[:8]}: the statement is "
            + ("; ".join(differing) if differing else "as my ledger says")
        )
        return {
            "agrees": not differing,
            "differences": differing,
            "account": account.to_json(),
        }, None

    def _by_coins(
        self, run: str, known: KnownRun, content: Mapping[str, Any], account: OwnAccount
    ) -> list[str]:
        """Whether I was asked as often as the coins say, where nobody may have chosen them."""
        contract, reports = known.mechanism.contract, self._journal.fact(run, "reports")
        if contract is None or contract.coin_commitment is None:
            return []
        commitments = self._journal.fact(run, "commitments")
        try:
            due = times_by_coins(contract, reports, commitments, content.get("coins"), self.name)
        except InvalidValue as error:
            return [str(error)]
        if account.asked == due:
            return []
        return [f"coins: I was asked to take part {account.asked} times, the coins say {due}"]

    def agreement(self, run: str) -> Agreement:
        """What was agreed on in a run, computed again."""
        known = self._knows(run)
        return known.mechanism.agree(known.members, self._journal.fact(run, "reports") or {})

    def _knows(self, run: str) -> KnownRun:
        """Config, roster, mechanism and program of a run, from the journal."""
        if run in self._known:
            return self._known[run]
        told, content = self._journal.fact(run, "describe"), self._journal.fact(run, "report")
        if told is None or content is None:
            raise InvalidValue("run", "must be known to me", run[:12])
        config, members = self._config(told), roster_from_json(content["members"])
        seed = self._journal.fact(run, "seed") or 0  # unknown until everybody has reported
        config = replace(config, run=replace(config.run, seed=seed))
        bench = Bench(self._holding, config, members, self.name, self._noise(run, config))
        part = catalogue.entry(config.mechanism).load()
        mechanism = part.make(config, members, bench.program.size)
        self._known[run] = KnownRun(
            run, self.name, mechanism.config, members, mechanism, bench, self._journal, self._policy
        )
        return self._known[run]

    def _noise(self, run: str, config: Config) -> Source:
        """My own secret, another one in every run; or, where my policy allows it, the run's seed."""
        if config.noise == "reproducible":
            return Reproducible(config.run.seed)
        return Secret(self._secret.derived(b"run", run.encode()))
