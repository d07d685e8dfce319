"""A federation for trials: members that hold the parts of a known data set, as a config splits it.

The same config that runs on one machine runs on these members, with the same records, names and reports, so
that both can be compared. Keys and settings are made for it, in a folder that can be thrown away.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bonafed.contracts.terms import Reports
from bonafed.files import write_together
from bonafed.flower.folder import Folder
from bonafed.flower.setup import DEFAULT_ADDRESS, Plan, make_federation
from bonafed.mechanisms.protocol import Config
from bonafed.remote.roster import Membership
from bonafed.runs import toml
from bonafed.runs.config import read_tables
from bonafed.runs.holdings import hold
from bonafed.runs.prepare import prepare


def make_trial(
    path: Path, config: Config, reports: Reports | None = None, address: str = DEFAULT_ADDRESS
) -> Membership:
    """Write the folder of a federation whose members hold what simulated clients of this config would."""
    setting = prepare(config, reports=reports, contract=config.contract)
    question, members = setting.mechanism.question, setting.agreement.members
    membership = make_federation(path, Plan(members.names, address))
    config, folder = hold(config).config, Folder(path)  # with paths that are valid from any folder
    files = {}
    for number, name in enumerate(members.names):
        costs = {} if question is None else {question.name: float(setting.agreement.reports[name])}
        settings = trial_settings(folder.settings(name), config, number, costs)
        files[folder.settings(name)] = toml.dumps(settings).encode()
    write_together(files)
    return membership


def trial_settings(
    path: Path, config: Config, number: int, costs: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """The settings in a file, with part `number` of the config's data, and these costs."""
    tables = read_tables(path)
    data = {key: value for key, value in config.data.table().items() if value not in (None, "")}
    split = {key: value for key, value in config.partition.table().items() if value is not None}
    data["part"] = {"number": number, "seed": config.run.seed, **split}
    policy = {**tables["policy"], "reproducible_noise": config.noise == "reproducible"}
    return {**tables, "data": data, "costs": dict(costs), "policy": policy}
