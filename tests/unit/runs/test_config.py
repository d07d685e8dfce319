"""The config: TOML in both directions, every mistake refused under its dotted name."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed import Discrete, InvalidValue, NormalMixture, Uniform, UnreadableFile
from bonafed.mechanisms.catalogue import CATALOGUE
from bonafed.mechanisms.sampling.section import SamplingSection
from bonafed.runs import config, toml

MINIMAL = {
    "data": {"name": "digits"},
    "partition": {"clients": 10},
    "model": {"name": "softmax"},
    "training": {"rounds": 5, "learning_rate": 0.1},
}
CONTRACT = {"prior": "uniform:0.5,1.5", "total_budget": 100}
PRIVATE = ["privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5"]


MEMORY = ["training.aggregation=memory", "training.participation=0.5"]


def changed(*changes):
    tables = MINIMAL
    for change in changes:
        tables = toml.override(tables, change)
    return config.from_tables(tables)


def test_defaults_are_filled_in():
    made = config.from_tables(MINIMAL)
    assert made.training.epochs == 1
    assert made.training.steps is None
    assert made.training.participation == 1.0
    assert made.run.checkpoint_every == 1
    assert made.privacy is None
    assert made.own is None
    assert made.mechanism == "fedavg"


PAID = ["sampling.prior=uniform:0.5,1.5", "sampling.total_budget=10", "training.rounds=5"]
BLIND = ["sampling.scheme=prior-free", "sampling.highest=2", *PAID[1:]]


@pytest.mark.parametrize(
    ("changes", "aggregation", "weight"),
    [
        ([], "plain", None),
        (["training.participation=0.5"], "plain", None),
        (MEMORY, "memory", 0.5),
        (PAID, "memory", 0.5),
        ([*PAID, "training.memory_weight=0.25"], "memory", 0.25),
        ([*PAID, *PRIVATE], "memory", 0.5),
        ([*PAID, "training.aggregation=plain"], "plain", None),
        ([*PAID, "sampling.total_budget=7.4"], "plain", None),  # does not pay 1.5 in each of five rounds
        ([*PAID, "sampling.total_budget=7.5"], "memory", 0.5),
        ([*PAID, "sampling.total_budget=7.4", "training.aggregation=memory"], "memory", 0.5),
        ([*PAID, "training.learning_rate=proposition-1"], "plain", None),
        (BLIND, "memory", 0.5),
        ([*BLIND, "sampling.highest=2.1"], "plain", None),
        ([*PAID, *PRIVATE, "training.on_bad_update=skip"], "plain", None),
    ],
)
def test_updates_are_remembered_under_a_contract_where_that_is_for_the_better(changes, aggregation, weight):
    made = changed(*changes)
    assert (made.training.aggregation, made.training.memory_weight) == (aggregation, weight)
    assert f'aggregation = "{aggregation}"' in config.to_toml(made)


def test_keys_of_the_server_get_defaults_where_they_mean_something():
    server = changed("training.server_optimizer=momentum").training
    assert (server.server_learning_rate, server.server_momentum, server.server_tau) == (1.0, 0.9, None)
    adam = changed("training.server_optimizer=adam", "training.server_learning_rate=0.1").training
    assert (adam.server_momentum, adam.server_beta_2, adam.server_tau) == (0.9, 0.99, 1e-3)
    assert changed().training.server_learning_rate == 1.0


@pytest.mark.parametrize(
    ("batches", "adjacency"), [("passes", "replace one"), ("poisson", "add or remove one")]
)
def test_a_promise_says_what_it_is_for(batches, adjacency):
    made = changed(*PRIVATE, f"privacy.batches={batches}")
    assert made.privacy.adjacency == adjacency
    assert f'adjacency = "{adjacency}"' in config.to_toml(made)


FULL = [
    [],
    ["training.steps=7", "training.participation=0.3", "run.seed=99"],
    ['training.participation="all"', "training.learning_rate=1"],
    ["partition.kind=label_dirichlet", "partition.beta=0.5", "partition.minimum=3"],
    ["privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5", "privacy.calibration=printed"],
    ["privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5", "privacy.batches=poisson"],
    ["privacy.clip=1", "privacy.epsilon=2", "privacy.delta=1e-5", "privacy.adjacency=replace one"],
    ["sampling.prior=uniform:0.5,1.5", "sampling.total_budget=10", "sampling.confidence=0.9"],
    [
        "sampling.prior=discrete:1,0.5,2,0.5",
        "sampling.total_budget=10",
        "sampling.scheme=complete information",
    ],
    ["sampling.prior=mixture:0.2,2,0.5,0.6,0.1,0.5,1.5,0.15", "sampling.total_budget=1e3"],
    ["training.learning_rate=proposition-1", "training.smoothness=2", "training.strong_convexity=0.1"],
    [*MEMORY, "training.memory_weight=0.25", "training.server_optimizer=momentum"],
    ["training.server_optimizer=adam", "training.server_learning_rate=0.1", "training.server_tau=0.01"],
    ['data.name="a \\"quoted\\" café\\u007f\\t\\\\ 😀.npz"', "data.folder=some folder"],
]


@pytest.mark.parametrize("changes", FULL, ids=range(len(FULL)))
def test_the_text_of_a_config_gives_the_same_config(changes):
    made = changed(*changes)
    again = config.from_tables(tomllib.loads(config.to_toml(made)))
    assert config.to_tables(again) == config.to_tables(made)
    assert config.to_toml(again) == config.to_toml(made)
    assert config.differences(made, again) == []


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        (["data.folder=/elsewhere", "run.cores=2"], []),  # where the data are; their digest tells what
        (["data.name=/elsewhere/renamed.csv"], []),
        (["data.name=mnist"], ["data.name"]),
        (["data.name=/elsewhere/renamed.csv", "run.seed=4"], ["run.seed"]),
    ],
)
def test_data_that_have_moved_are_no_difference(changes, keys):
    began = changed("data.name=/here/mine.npz")
    assert [
        key for key, _, _ in config.differences(changed("data.name=/here/mine.npz", *changes), began)
    ] == keys


def test_named_data_are_not_the_users_own():
    assert config.differences(changed("data.name=mine.npz"), changed())[0][0] == "data.name"
    assert config.differences(changed("data.name=synthetic"), changed())[0][0] == "data.name"
    assert config.differences(changed("data.folder=/elsewhere"), changed()) == []


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_examples_are_configs_of_their_mechanism(name):
    assert config.read(CATALOGUE[name].example).mechanism == name


def test_a_prior_may_be_a_table_or_an_object():
    table = {"kind": "uniform", "low": 0.5, "high": 1.5}
    one = config.from_tables({**MINIMAL, "sampling": {**CONTRACT, "prior": table}})
    assert one.own.prior == Uniform(0.5, 1.5)
    for prior in (Discrete([1, 2], [0.5, 0.5]), NormalMixture([1.0], [1.0], [0.2], 0.5, 1.5)):
        assert SamplingSection(prior=prior, total_budget=1.0).table()["prior"] == prior.to_json()


BAD = [
    (["training.rounds=0"], "training.rounds must be a whole number of at least 1, got 0"),
    (["training.rounds=2.5"], "training.rounds must be a whole number of at least 1, got 2.5"),
    (["training.rounds=many"], "training.rounds must be a number, got 'many'"),
    (["training.rounds=true"], "training.rounds must be a number, got True"),
    (["training.learning_rate=-1"], "training.learning_rate must be positive, got -1.0"),
    (["training.learning_rate=nan"], "training.learning_rate must be finite, got nan"),
    (
        ["training.learning_rate=fast"],
        'training.learning_rate must be a number, "proposition-1" or "proposition-1-printed", got \'fast\'',
    ),
    (
        ["training.lerning_rate=0.1"],
        "training.lerning_rate is unknown (did you mean learning_rate?), got 0.1",
    ),
    (
        ["trainin.rounds=1"],
        "trainin is unknown (did you mean training?), got {'rounds': 1}",
    ),
    (["training.epochs=1", "training.steps=2"], "training.steps must not be given with epochs, got 2"),
    (["training.participation=0"], "training.participation must be positive, got 0.0"),
    (["training.participation=1.5"], "training.participation must be between 0 and 1, got 1.5"),
    (["training.learning_rate_decay=2"], "training.learning_rate_decay must be between 0 and 1, got 2.0"),
    (
        ["training.smoothness=2"],
        'training.smoothness must not be given unless learning_rate is "proposition-1", got 2.0',
    ),
    (
        ["training.learning_rate=proposition-1", "training.learning_rate_decay=0.9"],
        "training.learning_rate_decay must be 1 with proposition-1, which decays by itself, got 0.9",
    ),
    (
        ["partition.kind=dirichlet"],
        "partition.kind must be one of iid, label_dirichlet, label_count, feature_noise, "
        "quantity_dirichlet, similarity, typicality, natural, got 'dirichlet'",
    ),
    (
        ["training.optimizer=adam", "training.momentum=0.5"],
        'training.momentum must not be given unless optimizer is "momentum" (it is "adam"), got 0.5',
    ),
    (
        ["training.momentum=0.5"],
        'training.momentum must not be given unless optimizer is "momentum" (it is "sgd"), got 0.5',
    ),
    (
        ["partition.kind=label_dirichlet"],
        "partition.beta is required for label_dirichlet, such as beta = 0.5",
    ),
    (
        ["partition.beta=0.5"],
        "partition.beta is unknown (known keys: kind, clients), got 0.5",
    ),
    (["partition.clients=0"], "partition.clients must be a whole number of at least 1, got 0"),
    (["data.name=3"], "data.name must be text, got 3"),
    (['model.name=""'], "model.name must not be empty, got ''"),
    (
        ["privacy.epsilon=1"],
        "2 mistakes: (1) privacy.clip is required, such as clip = 1.0; "
        "(2) privacy.delta is required, such as delta = 1e-5",
    ),
    (
        ["privacy.clip=1", "privacy.epsilon=1", "privacy.delta=1e-5", "privacy.calibration=loose"],
        "privacy.calibration must be one of exact, zcdp, printed, got 'loose'",
    ),
    (
        [*PRIVATE, "privacy.batches=shuffled"],
        "privacy.batches must be one of passes, poisson, got 'shuffled'",
    ),
    (
        [*PRIVATE, "privacy.batches=poisson", "privacy.adjacency=replace one"],
        'privacy.adjacency must be "add or remove one" with batches = "poisson", whose promise it is, '
        "got 'replace one'",
    ),
    (
        [*PRIVATE, "privacy.adjacency=add or remove one"],
        'privacy.adjacency must be "replace one" with batches = "passes", whose promise it is, '
        "got 'add or remove one'",
    ),
    (
        [*PRIVATE, "privacy.batches=poisson", "privacy.calibration=zcdp"],
        'privacy.calibration must be "exact" with batches = "poisson": the others do not account for '
        "sampled batches, got 'zcdp'",
    ),
    (["sampling.total_budget=1"], 'sampling.prior is required for optimal, such as prior = "uniform:0,1"'),
    (["contract.total_budget=1"], "[contract] is now [sampling]: rename the table"),
    (
        ["sampling.prior=uniform:2,1", "sampling.total_budget=1"],
        "sampling.prior: low must be below high = 1, got 2.0",
    ),
    (
        ["sampling.prior=3", "sampling.total_budget=1"],
        "sampling.prior must be a table with a kind, or KIND:NUMBER,NUMBER,..., got 3",
    ),
    (
        ["sampling.prior=uniform:1,2", "sampling.total_budget=1", "training.participation=0.5"],
        "training.participation must be left to the contract, got 0.5",
    ),
    (
        ["training.aggregation=memory"],
        "training.aggregation must be plain where all clients are in every round: nothing is left to "
        "remember, got 'memory'",
    ),
    (["training.aggregation=median"], "training.aggregation must be one of plain, memory, got 'median'"),
    (
        [*PRIVATE, *MEMORY, "training.on_bad_update=skip"],
        "training.aggregation must be plain in a private run that skips who fails: what is remembered "
        "would tell who did, got 'memory'",
    ),
    (
        ["training.memory_weight=0.5"],
        'training.memory_weight must not be given unless aggregation is "memory" (it is "plain"), got 0.5',
    ),
    ([*MEMORY, "training.memory_weight=1.5"], "training.memory_weight must be between 0 and 1, got 1.5"),
    (
        ["training.server_optimizer=lion"],
        "training.server_optimizer must be one of sgd, momentum, adam, got 'lion'",
    ),
    (
        ["training.server_optimizer=adam"],
        'training.server_learning_rate is required for server_optimizer = "adam", '
        "such as server_learning_rate = 0.01",
    ),
    (["training.server_learning_rate=0"], "training.server_learning_rate must be positive, got 0.0"),
    (
        ["training.server_momentum=0.5"],
        'training.server_momentum must not be given unless server_optimizer is "momentum" or "adam" '
        '(it is "sgd"), got 0.5',
    ),
    (
        ["training.server_optimizer=momentum", "training.server_momentum=1"],
        "training.server_momentum must be below 1, got 1.0",
    ),
    (
        ["training.server_optimizer=momentum", "training.server_tau=0.1"],
        'training.server_tau must not be given unless server_optimizer is "adam" (it is "momentum"), '
        "got 0.1",
    ),
    (
        ["training.server_optimizer=momentum", "training.server_beta_2=0.9"],
        'training.server_beta_2 must not be given unless server_optimizer is "adam" (it is "momentum"), '
        "got 0.9",
    ),
    (
        ["training.learning_rate=proposition-1", "training.server_optimizer=momentum"],
        "training.server_optimizer must be sgd with proposition-1, whose theorem adds up the changes as "
        "they are, got 'momentum'",
    ),
    (
        ["training.learning_rate=proposition-1", "training.server_learning_rate=0.5"],
        "training.server_learning_rate must be 1 with proposition-1, whose theorem adds up the changes as "
        "they are, got 0.5",
    ),
    (["run.seed=-1"], "run.seed must be a whole number of at least 0, got -1"),
    ([f"run.seed={2**64}"], f"run.seed must not exceed {2**64 - 1}, got {2**64}"),
    (["run.cores=-1"], "run.cores must be a whole number of at least 0, got -1"),
    (["rounds=3"], "--set must be SECTION.KEY=VALUE, got 'rounds=3'"),
    (["training.rounds"], "--set must be SECTION.KEY=VALUE, got 'training.rounds'"),
    (["data.name.first=1"], "--set must name a key, and name is not a table, got data.name.first"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[" ".join(c) for c, _ in BAD])
def test_mistakes_are_named(changes, message):
    with pytest.raises(InvalidValue) as refused:
        changed(*changes)
    assert str(refused.value) == message


def test_missing_sections_and_keys_are_named():
    with pytest.raises(
        InvalidValue, match=r"^4 mistakes: \(1\) data\.name is required, such as "
    ) as refused:
        config.from_tables({})
    missing = [problem.name for problem in refused.value.problems]
    assert missing == [
        "data.name", "partition.clients", "model.name", "training.rounds",
    ]  # fmt: skip
    with pytest.raises(InvalidValue, match=r"^partition\.clients is required, such as clients = 10$"):
        config.from_tables({**MINIMAL, "partition": {"kind": "iid"}})
    with pytest.raises(InvalidValue, match=r"^model must be a section \[model\], got 'softmax'$"):
        config.from_tables({**MINIMAL, "model": "softmax"})


def test_a_file_that_is_not_toml_says_so(tmp_path):
    path = tmp_path / "c.toml"
    with pytest.raises(UnreadableFile, match="No such file"):
        config.read(path)
    path.write_text("[data\n")
    with pytest.raises(UnreadableFile, match=r"not TOML: .*line 1"):
        config.read(path)


_VALUES = st.recursive(
    st.text() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), _VALUES, max_size=3), max_size=3))
def test_whatever_is_written_is_read_back(tables):
    assert tomllib.loads(toml.dumps(tables)) == tables


@pytest.mark.parametrize("tables", [None, "fedavg.toml", [("data", {})]])
def test_what_is_no_table_is_refused(tables):
    with pytest.raises(InvalidValue, match=r"^config must be tables by name, such as .*, got ") as refused:
        config.from_tables(tables)
    assert str(refused.value).endswith(repr(tables))
