"""Everything bonafed raises on purpose, one tree:

    BonafedError
    ├── InvalidValue (also a ValueError)   an argument breaks a rule: name, rule, value
    │   ├── MissingValue                   a value that is required is not there: name, rule
    │   │   └── OldName                    nothing has this name any more: name, and its new name
    │   ├── InvalidValues                  several values break rules: all of them, told at once
    │   └── ReportRefused                  a report the published contract does not admit
    ├── UnusablePlugin                     a mechanism of another package: which, whose and why
    ├── UnreadableFile                     a file from outside does not parse: path, line, reason
    ├── NoSolution                         a printed formula of a paper has no solution here
    ├── BadUpdate, BadModel, Diverged      training gave NaN or infinity: who, in which round
    ├── BadReport, UnusableReport          an agent's report is not a gradient: whose, when and why
    │   └── MissingReport                  it gave none, and nothing goes on without it: who, when and why
    ├── AskFailed                          no reports at all came in: when, and the model reached
    ├── MemberLost, CrewNotStarted         a training process was killed, or could not be started
    └── MissingExtra                       a package is not installed: what for, and how to install it

The message always says the name, the rule and the value, on one line:

>>> raise InvalidValue("budget", "must be positive", -3.0)
Traceback (most recent call last):
    ...
bonafed.errors.InvalidValue: budget must be positive, got -3.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bonafed.text import printable


class BonafedError(Exception):
    """Root of every error bonafed raises on purpose; its message is one printable line."""

    def __str__(self) -> str:
        # what a library says of its own errors may go over several lines
        return printable(" ".join(line.strip(" \r") for line in super().__str__().split("\n")))


class InvalidValue(BonafedError, ValueError):
    """An argument breaks a rule."""

    def __init__(self, name: str, rule: str, value: object) -> None:
        self.name, self.rule, self.value = name, rule, value
        super().__init__(self.text())

    def text(self) -> str:
        """The message of the error, in one line."""
        return f"{self.name} {self.rule}, got {self.value}"

    def renamed(self, name: str) -> InvalidValue:
        """The same error about the same value under another name."""
        return type(self)(name, self.rule, self.value)

    def named(self, name: Callable[[str], str]) -> InvalidValue:
        """The same error, its name changed by a function."""
        return self.renamed(name(self.name))

    @property
    def problems(self) -> tuple[InvalidValue, ...]:
        """Each value that breaks a rule, on its own."""
        return (self,)


class InvalidValues(InvalidValue):
    """Several values break rules; `problems` are all of them, and the first one gives the name.

    >>> raise InvalidValues([InvalidValue("budget", "must be positive", -3.0), MissingValue("clients")])
    Traceback (most recent call last):
        ...
    bonafed.errors.InvalidValues: 2 mistakes: (1) budget must be positive, got -3.0; (2) clients is required
    """

    def __init__(self, problems: Sequence[InvalidValue]) -> None:
        self._problems = tuple(part for problem in problems for part in problem.problems)
        first = self._problems[0]
        super().__init__(first.name, first.rule, first.value)

    def text(self) -> str:
        """The messages of all, numbered."""
        each = (f"({number}) {problem.text()}" for number, problem in enumerate(self._problems, 1))
        return f"{len(self._problems)} mistakes: " + "; ".join(each)

    @property
    def problems(self) -> tuple[InvalidValue, ...]:
        """Each value that breaks a rule, on its own."""
        return self._problems

    def renamed(self, name: str) -> InvalidValue:
        """The same errors, those of the first one's name under another."""
        return self.named(lambda known: name if known == self.name else known)

    def named(self, name: Callable[[str], str]) -> InvalidValue:
        """The same errors, their names changed by a function."""
        return InvalidValues([problem.named(name) for problem in self._problems])


def refuse(problems: Sequence[InvalidValue]) -> None:
    """Raise what is wrong, if anything is: all of it at once."""
    if len(problems) == 1 and len(problems[0].problems) == 1:
        raise problems[0]
    if problems:
        raise InvalidValues(problems)


class MissingValue(InvalidValue):
    """A value that is required is not there.

    >>> raise MissingValue("sampling.prior", "is required for optimal")
    Traceback (most recent call last):
        ...
    bonafed.errors.MissingValue: sampling.prior is required for optimal
    """

    def __init__(self, name: str, rule: str = "is required", value: None = None) -> None:
        super().__init__(name, rule, value)

    def text(self) -> str:
        """The message; there is no value to show."""
        return f"{self.name} {self.rule}"


class OldName(MissingValue):
    """What is named has another name now, and nothing has the old one.

    >>> raise OldName("[contract]", "is now [sampling]: rename the table")
    Traceback (most recent call last):
        ...
    bonafed.errors.OldName: [contract] is now [sampling]: rename the table
    """


class ReportRefused(InvalidValue):
    """A report that the published contract does not admit."""


class UnusablePlugin(BonafedError, UserWarning):
    """A mechanism that another package offers cannot be used; says which package, and why.

    It is a warning where the mechanism is passed over, and an error where it was asked for by name.
    """

    def __init__(self, package: str, name: str, reason: str) -> None:
        self.package, self.name, self.reason = package, name, reason
        super().__init__(f"mechanism {name} of package {package} cannot be used: {reason}")


class UnreadableFile(BonafedError):
    """A file from outside does not parse; says where."""

    def __init__(self, path: Path | str, reason: str, line: int | None = None) -> None:
        self.path, self.reason, self.line = path, reason, line
        where = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {reason}")


class MissingExtra(BonafedError, ImportError):
    """A package that comes with an extra of bonafed is not installed.

    >>> raise MissingExtra("training", "train")
    Traceback (most recent call last):
        ...
    bonafed.errors.MissingExtra: training needs: pip install 'bonafed[train]'
    """

    def __init__(self, what: str, extra: str) -> None:
        self.what, self.extra = what, extra
        super().__init__(f"{what} needs: pip install 'bonafed[{extra}]'")


class NoSolution(BonafedError):
    """A formula printed in a paper has no solution for these inputs (its erratum says why)."""


class BadUpdate(BonafedError):
    """A client gave no usable update; says which client, in which round, and why."""

    def __init__(self, client: str, round_number: int, reason: str) -> None:
        self.client, self.round_number, self.reason = client, round_number, reason
        rule = reason if reason.startswith("must") else f"must be usable, got {reason}"
        super().__init__(
            f"update of client {client} in round {round_number} {rule} "
            '(on_bad_update = "skip" leaves such a client out of the round)'
        )


class BadModel(BonafedError):
    """The model is not finite after a round, although every update was; says the round."""

    def __init__(self, round_number: int) -> None:
        self.round_number = round_number
        super().__init__(
            f"model after round {round_number} must be finite, got NaN or inf; "
            "a smaller learning rate may help"
        )


class Diverged(BonafedError):
    """The reports drive the model away from a minimum, and nobody can be blamed for it."""


class BadReport(BonafedError):
    """An agent's report is not a gradient of its loss; says which agent, when, and why."""

    def __init__(
        self,
        agent: int,
        where: str,
        problem: str,
        model: NDArray[np.float64],
        advice: str = 'on_bad_report = "leave out" goes on without it',
        name: str | None = None,
    ) -> None:
        self.agent, self.where, self.problem = agent, where, problem
        self.model = model  # (P,) the last training model that the agent was sent
        self.name = str(agent) if name is None else name
        super().__init__(
            f"report of agent {self.name} in {where} must be a gradient of its loss, "
            f"got {problem} ({advice})"
        )

    def advised(self, advice: str) -> BadReport:
        """The same error with other advice."""
        return BadReport(self.agent, self.where, self.problem, self.model, advice, self.name)


class MissingReport(BadReport):
    """An agent gave no answer where nobody can be left out; the run can be resumed when it is back."""

    def __init__(
        self, agent: int, where: str, problem: str, model: NDArray[np.float64], name: str | None = None
    ) -> None:
        super().__init__(agent, where, problem, model, name=name)
        self.args = (
            f"agent {self.name} did not answer in {where}: {problem} (a private sum needs everybody; "
            "resume the run when it is back: nobody gives away anything twice)",
        )


class UnusableReport(BonafedError):
    """What an agent reported is not a gradient of its loss; says which agent, and what came instead."""

    def __init__(self, agent: int, problem: str, *, certain: bool = True) -> None:
        self.agent, self.problem = agent, problem
        self.certain = certain  # whether no honest agent could have reported this
        super().__init__(f"report of agent {agent} must be a gradient of its loss, got {problem}")


class AskFailed(BonafedError):
    """`ask` failed as a whole, which says nothing about any agent; keeps what was reached.

    By exchanges `faithful(..., resume=error.progress)` goes on where this ended; by steps
    `faithful(..., start=error.model)` with the steps left does, of a problem without the agents of
    `left_out`, if any.
    """

    def __init__(
        self,
        reason: str,
        where: str = "",
        model: NDArray[np.float64] | None = None,
        steps: int = 0,
        left_out: tuple[int, ...] = (),
        progress: object = None,
        unit: str = "steps of training",
    ) -> None:
        self.reason, self.where = reason, where
        self.model = model  # (P,) the last training model that was sent out
        self.steps = steps  # training steps that led to it
        self.left_out = left_out  # agents that this training left out
        self.progress = progress  # all that was reached by exchanges
        when = f" in {where}, after {steps:,} {unit}" if where else ""
        super().__init__(f"asking the agents failed{when}: {reason}")


class MemberLost(BonafedError):
    """A process of the crew ended before its work was done."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(
            f"a process that trains clients ended with code {exit_code} before its work was done; "
            "if memory is short, try fewer cores"
        )


class CrewNotStarted(BonafedError):
    """The system provides no processes or no memory."""

    def __init__(self, cores: int, problem: OSError) -> None:
        super().__init__(
            f"cannot start processes to train clients on {cores} cores: {problem.strerror}; try fewer cores"
        )
