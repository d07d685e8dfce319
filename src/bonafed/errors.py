"""Everything bonafed raises on purpose, one tree:

    BonafedError
    ├── InvalidValue (also a ValueError)   an argument breaks a rule: name, rule, value
    │   └── ReportRefused                  a report the published contract does not admit
    ├── UnreadableFile                     a file from outside does not parse: path, line, reason
    ├── NoSolution                         a printed formula of a paper has no solution here
    ├── BadUpdate, BadModel, Diverged      training gave NaN or infinity: who, in which round
    ├── BadReport, UnusableReport          an agent's report is no gradient: whose, when and why
    ├── AskFailed                          no reports at all came in: when, and the model reached
    └── MemberLost, CrewNotStarted         the system ended a process that trains, or gave none

The message always says the name, the rule and the value, on one line:

>>> raise InvalidValue("budget", "must be positive", -3.0)
Traceback (most recent call last):
    ...
bonafed.errors.InvalidValue: budget must be positive, got -3.0
"""

from __future__ import annotations

from pathlib import Path


class BonafedError(Exception):
    """Root of every error bonafed raises on purpose."""


class InvalidValue(BonafedError, ValueError):
    """An argument breaks a rule."""

    def __init__(self, name: str, rule: str, value: object) -> None:
        self.name, self.rule, self.value = name, rule, value
        super().__init__(f"{name} {rule}, got {value}")


class ReportRefused(InvalidValue):
    """A report that the published contract does not admit."""


class UnreadableFile(BonafedError):
    """A file from outside does not parse; says where."""

    def __init__(self, path: Path | str, reason: str, line: int | None = None) -> None:
        self.path, self.reason, self.line = path, reason, line
        place = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {reason}")


class NoSolution(BonafedError):
    """A formula printed in a paper has no solution for these inputs (its erratum says why)."""
