"""What a participant accepts: its own rules, held against what it is asked to agree to.

Whatever the server says, the participant computes again from the config, the contract and the reports that
others signed (`participant`). These rules come on top: they bound what may be asked at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from bonafed import checks
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import PaidTerms, Turns
from bonafed.economics.findings import all_hold
from bonafed.errors import InvalidValue
from bonafed.learning.privacy import checked_delta
from bonafed.mechanisms.protocol import Config, Promised
from bonafed.sections import Section, flag, key


@dataclass(frozen=True)
class Policy(Section):
    """[policy] of a participant."""

    max_epsilon: float | None = key(
        checks.positive, None, help="Privacy that a record may lose in one run at most; None: no limit."
    )
    max_epsilon_in_all: float | None = key(
        checks.positive, None, help="The same over all runs of my journal, added up; None: no limit."
    )
    max_rounds: int | None = key(checks.whole, None, help="Rounds of a run at most; None: no limit.")
    only_private: bool = key(flag, False, help="Refuse runs that do not hide records in noise.")
    verify: bool = key(flag, True, help="Accept only contracts that verify.")
    no_loss: bool = key(flag, True, help="Accept only terms that cover my cost.")
    reproducible_noise: bool = key(
        flag, False, help="Accept noise from the run's seed, which the server can take off: for trials."
    )

    def check_config(self, config: Config, records: int) -> list[str]:
        """Before anything is said about my records, so many; what I should know although I accept it."""
        training = config.training
        rounds = None if training is None else training.rounds
        if self.max_rounds is not None and rounds is not None and rounds > self.max_rounds:
            raise InvalidValue("training.rounds", f"must be at most {self.max_rounds}, my limit", rounds)
        if config.noise == "reproducible" and not self.reproducible_noise:
            rule = 'must be "secret": noise that the server can take off protects nobody'
            raise InvalidValue("noise", rule, '"reproducible"')
        epsilon = getattr(config.privacy, "epsilon", None)
        if self.max_epsilon is not None and epsilon is not None and epsilon > self.max_epsilon:
            rule = f"must be at most {self.max_epsilon:g}, what I sell at most"
            raise InvalidValue("epsilon", rule, f"{epsilon:g}")
        limits = (self.max_epsilon, self.max_epsilon_in_all)
        if config.noise is None and any(limit is not None for limit in limits):
            rule = "must be promised: without noise there is no limit to what is given away, and I have one"
            raise InvalidValue("privacy", rule, "nothing")
        if self.only_private and config.noise is None:
            raise InvalidValue("privacy", "must be promised: I join private runs only", "nothing")
        return [] if config.delta is None else checked_delta("delta", config.delta, [records])

    def check_contract(self, contract: PublishedContract) -> None:
        """Before anything is reported under it."""
        if self.max_rounds is not None and contract.rounds > self.max_rounds:
            raise InvalidValue("contract.rounds", f"must be at most {self.max_rounds}", contract.rounds)
        if self.verify:
            findings = contract.verify()
            if not all_hold(findings):
                failed = next(str(finding) for finding in findings if finding.holds is False)
                raise InvalidValue("contract", "must verify before I report under it", failed)

    def check_terms(
        self, agreement: Agreement, promised: Promised | None, position: int, cost: float | None
    ) -> None:
        """Before they are accepted; `cost` is my true one, None where the mechanism asks for none."""
        epsilon = None if promised is None else float(promised.epsilon[position])
        if epsilon is not None and self.max_epsilon is not None and epsilon > self.max_epsilon:
            rule = f"must be at most {self.max_epsilon:g}, what I sell at most"
            raise InvalidValue("epsilon", rule, f"{epsilon:g}")
        if not self.no_loss or cost is None or not isinstance(agreement.terms, PaidTerms):
            return
        row = {name: cells[position] for name, cells in agreement.terms.columns.items()}
        paid, due = row.get("payment"), cost
        if epsilon is not None and "epsilon_sold" in row:  # once, for all of the epsilon
            once = Turns.of((1,) * len(agreement.members))
            terms = agreement.terms
            paid, due = terms.amounts(once)[position] / 10**terms.decimals, cost * epsilon
        if isinstance(paid, int | float) and paid < due and (row.get("probability", 1) or epsilon):
            raise InvalidValue("payment", f"must cover my cost, {due:g}", f"{paid:g}")
