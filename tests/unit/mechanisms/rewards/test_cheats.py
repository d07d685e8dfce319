"""Free riders and cheats: what they upload, what they receive, who sees them."""

from functools import cache

import numpy as np
import pytest
from tests.oracles.rewards import digits_federation, quadratic

from bonafed.errors import InvalidValue
from bonafed.learning.federation import Failure, Federation, Question, Reply, Task, Train
from bonafed.learning.function_federation import FunctionFederation
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.rewards import FederatedAveraging, Standalone, run, train_with_rewards
from bonafed.mechanisms.rewards import cheats as c
from bonafed.mechanisms.rewards.measures import cosine_gradient

TARGETS = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
MODELS = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
HONEST = TARGETS - MODELS
MEMBERS = quadratic(TARGETS, 1.0).members


def honest():
    return quadratic(TARGETS, 1.0)


def ask(clients, round_number=1, models=MODELS, who=("0", "1", "2")):
    """(N, P) what a federation sends; zeros from those who are not asked."""
    work = Train(LocalTraining(4, 0.1), round_number, 0)
    tasks = [Task(f"{round_number}/{name}", name, models[int(name)][None], work) for name in who]
    answers, found = clients.replies(tasks), np.zeros_like(models)
    for task in tasks:
        found[int(task.client)] = answers[task.identifier].values[0]
    return found


def sent(cheat, client=1, round_number=1, models=MODELS):
    found = ask(c.CheatingFederation(honest(), {str(client): cheat}), round_number, models)
    others = np.arange(3) != client
    assert (found[others] == (TARGETS - models)[others]).all()
    return found[client]


def test_what_each_cheat_uploads():
    assert sent(c.free_ride()).tolist() == [0, 0]
    assert sent(c.amplify(3.0)) == pytest.approx(3 * HONEST[1])
    assert sent(c.amplify(-1.0)) == pytest.approx(-HONEST[1])
    assert sent(c.copy_update(2)) == pytest.approx(HONEST[2])
    noise = sent(c.send_noise(seed=4, scale=2.0))
    assert np.linalg.norm(noise) == pytest.approx(2 * np.linalg.norm(HONEST[1]))
    assert sent(c.as_cheat(lambda _models, own: 0.5 * own)) == pytest.approx(0.5 * HONEST[1])


def test_noise_is_new_every_round_and_the_same_again():
    cheat = c.send_noise(seed=4)
    first, second = sent(cheat), sent(cheat, round_number=2)
    assert np.abs(first - second).max() > 0.1
    assert (sent(c.send_noise(seed=4)) == first).all()


def test_a_stale_client_repeats_its_first_update():
    cheat = c.stale()
    first = sent(cheat)
    assert first == pytest.approx(HONEST[1])
    assert sent(cheat, round_number=2, models=MODELS + 5) == pytest.approx(first)


def test_an_absent_cheat_sends_nothing():
    clients = c.CheatingFederation(honest(), {"1": c.copy_update(2)})
    assert ask(clients, who=("0", "2"))[1].tolist() == [0, 0]
    copied = c.CheatingFederation(honest(), {"0": c.copy_update(1)})  # who is not there
    assert ask(copied, who=("0", "2"))[0].tolist() == [0, 0]


def test_a_cheat_that_fails_fails_all_the_same():
    silent = FunctionFederation(MEMBERS, lambda tasks: {})
    work = Train(LocalTraining(4, 0.1), 1, 0)
    answers = c.CheatingFederation(silent, {"1": c.free_ride()}).replies([Task("a", "1", MODELS[:1], work)])
    assert isinstance(answers["a"], Failure)


def test_a_federation_with_cheats_is_a_federation():
    clients = c.CheatingFederation(honest(), {"1": c.free_ride()})
    assert isinstance(clients, Federation)
    assert list(clients.members.names) == ["0", "1", "2"]
    assert clients.replies([]) == {}
    with pytest.raises(InvalidValue, match="cheats must be in a federation that shows replies"):
        clients.total([], np.zeros(0))
    with pytest.raises(InvalidValue, match="state must be a function"):
        clients.report(Question("cost", "money"))
    assert list(clients.vouched) == [name for name in honest().vouched if name != "1"]


def test_what_a_reply_says_besides_stays():
    def answers(tasks):
        return {task.identifier: Reply(np.ones((1, 2)), loss=0.5, steps=7) for task in tasks}

    clients = c.CheatingFederation(FunctionFederation(MEMBERS, answers), {"1": c.free_ride()})
    work = Train(LocalTraining(4, 0.1), 1, 0)
    reply = clients.replies([Task("a", "1", MODELS[:1], work)])["a"]
    assert (reply.values.tolist(), reply.loss, reply.steps) == ([[0, 0]], 0.5, 7)


def test_bad_input():
    with pytest.raises(InvalidValue, match=r"cheats must be clients of the federation: 0, 1, 2, got '3'"):
        c.CheatingFederation(honest(), {"3": c.free_ride()})
    with pytest.raises(InvalidValue, match="upload of client 1 in round 2 is required"):
        sent(c.as_cheat(lambda _models, _own: None), round_number=2)
    with pytest.raises(InvalidValue, match=r"scale must not be negative, got -1\.0"):
        c.send_noise(seed=0, scale=-1)


CHEATS = {
    "zeros": c.free_ride,
    "noise": lambda: c.send_noise(seed=1),
    "opposite": lambda: c.amplify(-1.0),
    "amplified": lambda: c.amplify(3.0),
    "copy": lambda: c.copy_update(0),
}
CHEAT = "7"  # the one that cheats


@cache
def reports(partition, measured):
    """Every cheat in a digits federation, seed 0; contributions by cosine or fixed before training."""
    fed = digits_federation(partition, 0)
    alone = run(Standalone(sizes=fed.sizes), fed.federation, np.zeros(650), rounds=20)[0]
    p = cosine_gradient(scale=2.0) if measured else fed.accuracy(alone)

    def train(clients):
        return train_with_rewards(
            clients, np.zeros(650), p, rounds=20, sizes=fed.sizes, sharing=0.0, recovery=0.0, seed=0
        )

    found = c.examine(
        train, fed.federation, CHEATS, CHEAT, accuracy=fed.accuracy, standalone=fed.accuracy(alone)
    )
    return {one.cheat: one for one in found}


def test_contributions_fixed_before_training_see_no_cheat():
    found = reports("C3", measured=False)
    assert list(found) == list(CHEATS)
    for one in found.values():
        assert one.reward_rate == one.honest_reward_rate
        assert one.share == one.honest_share
        assert not one.seen
        assert one.client == CHEAT
    # The free rider keeps the others' work: far better than alone, though it did nothing.
    assert found["zeros"].accuracy >= found["zeros"].standalone_accuracy
    assert found["zeros"].accuracy > found["zeros"].standalone_accuracy + 0.15


def test_the_cosine_measure_sees_cheats_where_data_are_alike():
    found = reports("iid", measured=True)
    for name in ("zeros", "noise", "opposite"):
        assert found[name].seen, name
        assert found[name].reward_rate < 0.1 < 0.9 < found[name].honest_reward_rate
        assert found[name].gain < -0.01
    assert found["opposite"].accuracy < found["opposite"].standalone_accuracy
    # Directions only: length is normalised away, and a copy points as well as its original.
    for name in ("amplified", "copy"):
        assert not found[name].seen
        assert found[name].reward_rate == pytest.approx(found[name].honest_reward_rate, abs=0.03)
    harm = {name: one.others_honest_accuracy - one.others_accuracy for name, one in found.items()}
    assert harm["opposite"] > 0.01 > max(harm["zeros"], harm["copy"])


def test_the_cosine_measure_rewards_a_copy_where_data_differ():
    """Three classes each: an honest update points away from the mean of all, a popular one towards it."""
    found = reports("C3", measured=True)
    assert found["zeros"].seen
    copy = found["copy"]
    assert not copy.seen
    assert copy.reward_rate > 0.9 > 0.2 > copy.honest_reward_rate
    assert copy.gain > 0.03  # honesty was not its best choice


def test_cheats_act_on_baselines_too():
    method = FederatedAveraging(sizes=np.ones(3), fine_tuning=False)
    models, _ = run(method, c.CheatingFederation(honest(), {"0": c.free_ride()}), np.zeros(2), rounds=1)
    assert models[0] == pytest.approx((TARGETS[1] + TARGETS[2]) / 3)


def test_bad_examinations():
    def train(clients):
        return train_with_rewards(clients, np.zeros(2), [1, 1, 1], rounds=1)

    options = {"accuracy": lambda m: m[:, 0], "standalone": [0, 0, 0]}
    with pytest.raises(InvalidValue, match=r"client must be one of 0, 1, 2, got '3'"):
        c.examine(train, honest(), {}, "3", **options)
    with pytest.raises(InvalidValue, match="standalone must have 3 values, got 1"):
        c.examine(train, honest(), {}, "0", **{**options, "standalone": [0.5]})
    with pytest.raises(InvalidValue, match="tolerance must be between 0 and 1"):
        c.examine(train, honest(), {}, "0", tolerance=2, **options)
    nobody = train_with_rewards(honest(), np.zeros(2), [1, 1, 1], rounds=1, participation=[[False] * 3])
    with pytest.raises(InvalidValue, match="state must have a round that somebody attended"):
        c.contribution_shares(nobody)
