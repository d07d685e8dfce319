from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bonafed.errors import InvalidValue
from bonafed.learning.federation import (
    Alone,
    Failure,
    Gradients,
    Losses,
    Objective,
    Reply,
    Slopes,
    Task,
    Train,
    Work,
)
from bonafed.learning.privacy.ledger import Release
from bonafed.learning.work import LocalTraining
from bonafed.remote.tasks import (
    Asked,
    Refusal,
    pack_answers,
    pack_tasks,
    unpack_answers,
    unpack_tasks,
    work_from_json,
    work_to_json,
)

TRAINING = LocalTraining(
    batch_size=8, learning_rate=0.1, clip=1.0, later_rates=(0.05, 0.01), steps=3, epochs=None
)
WORKS: list[Work] = [
    Train(TRAINING, 3, 7, 1, 2.5),
    Gradients(Objective(0.1, scale=2.0), 1.5, 40),
    Losses(Objective(0.1, "module")),
    Losses(Objective(0.0, shorten=True), 0.7, 3),
    Gradients(Objective(0.1), 1.5, (40, 50, 90)),
    Losses(Objective(0.1), (0.7, 0.1), (3, 9)),
    Alone(Objective(0.1), 1e-6, 100, 0.2),
    Slopes(Objective(0.1), (0.0, 0.5, 1.0)),
]


@pytest.mark.parametrize("work", WORKS, ids=lambda work: type(work).__name__)
class TestWork:
    def test_there_and_back(self, work: Work) -> None:
        import json

        assert work_from_json(json.loads(json.dumps(work_to_json(work)))) == work

    def test_a_key_more_or_less_is_refused(self, work: Work) -> None:
        data = work_to_json(work)
        for key in list(data):
            less = {name: value for name, value in data.items() if name != key}
            with pytest.raises(InvalidValue):
                work_from_json(less)
        with pytest.raises(InvalidValue, match="must be absent"):
            work_from_json({**data, "more": 1})

    @pytest.mark.parametrize("value", ["x", [1, "x"], [-1], {"a": 1}, True, float("inf")])
    def test_other_types_are_refused(self, work: Work, value: Any) -> None:
        data = work_to_json(work)
        for key in data:
            if data[key] == value or (key == "shorten" and value is True):
                continue
            with pytest.raises(InvalidValue):
                work_from_json({**data, key: value})


class TestBundles:
    def test_models_are_sent_once(self) -> None:
        shared, own = np.ones((1, 5), dtype=np.float32), np.zeros((2, 5), dtype=np.float32)
        asked = [
            Asked(Task("a", "ada", shared, WORKS[0]), 0.0),
            Asked(Task("b", "ada", shared, WORKS[0]), 0.5),
            Asked(Task("c", "ada", own, WORKS[1]), 1.0),
        ]
        rows, numbers = pack_tasks(asked)
        assert numbers.size == 15
        back = unpack_tasks(rows, numbers, "ada")
        assert [each.digest for each in back] == [each.digest for each in asked]
        assert len({each.digest for each in asked}) == 3

    def test_answers_keep_the_precision_of_the_most_precise(self) -> None:
        release = Release(2, 1, 3.5, 2, 4, None)
        answers = {
            "a": Reply(np.ones((1, 3), dtype=np.float32), 0.5, 4, (release,)),
            "b": Reply(np.full((2, 3), 0.1)),
            "c": Failure("no"),
            "d": Refusal("I sold less"),
        }
        rows, numbers = pack_answers(answers)
        back = unpack_answers(rows, numbers, 2)
        first, second = back["a"], back["b"]
        assert isinstance(first, Reply)
        assert isinstance(second, Reply)
        assert first.releases == (release,)
        assert (first.loss, first.steps) == (0.5, 4)
        assert np.array_equal(second.values, np.full((2, 3), 0.1))
        assert back["c"] == Failure("no")
        assert back["d"] == Refusal("I sold less")

    @pytest.mark.parametrize(
        "change",
        [{"at": 14}, {"at": -1}, {"shape": [1]}, {"shape": [3, 6]}, {"shape": "1"}, {"noise": -1.0},
         {"noise": float("inf")}, {"identifier": ""}, {"more": 1}, {"work": None}],
    )  # fmt: skip
    def test_what_does_not_fit_is_refused(self, change: dict[str, Any]) -> None:
        models = np.ones((3, 5))
        rows, numbers = pack_tasks([Asked(Task("a", "ada", models, WORKS[0]), 0.0)])
        with pytest.raises(InvalidValue):
            unpack_tasks([{**rows[0], **change}], numbers, "ada")

    def test_noise_may_be_one_for_each_row(self) -> None:
        models = np.ones((3, 5))
        asked = [
            Asked(Task("a", "ada", models, Gradients(Objective(0.1), 1.5, (0, 5, 10))), (0.5, 1.0, 2.0)),
            Asked(Task("b", "ada", models, Losses(Objective(0.1), (0.7, 0.1), (3, 9))), (0.5, 1.0)),
        ]
        rows, numbers = pack_tasks(asked)
        back = unpack_tasks(rows, numbers, "ada")
        assert [each.noise for each in back] == [each.noise for each in asked]
        assert [each.digest for each in back] == [each.digest for each in asked]
        assert Asked(asked[0].task, (0.5, 1.0, 2.5)).digest != asked[0].digest

    @pytest.mark.parametrize(
        ("work", "noise", "shape"),
        [
            (Gradients(Objective(0.1), 1.5), [0.5, 1.0], [3, 5]),
            (Gradients(Objective(0.1), 1.5), [0.5, -1.0, 1.0], [3, 5]),
            (Gradients(Objective(0.1), 1.5), [0.5, None, 1.0], [3, 5]),
            (Gradients(Objective(0.1), 1.5, (0, 5)), 1.0, [3, 5]),
            (Losses(Objective(0.1), (0.7, 0.1, 0.2)), 1.0, [3, 5]),
            (Losses(Objective(0.1), 0.7), 1.0, [1, 5]),  # from no model to the first
            (Gradients(Objective(0.1), 1.5), 1.0, [0, 5]),
            (Slopes(Objective(0.1), (0.0, 1.0)), 0.0, [1, 5]),
        ],
    )
    def test_what_is_said_for_each_row_must_fit_the_rows(
        self, work: Work, noise: Any, shape: list[int]
    ) -> None:
        rows, numbers = pack_tasks([Asked(Task("a", "ada", np.ones((3, 5)), WORKS[1]), 0.0)])
        with pytest.raises(InvalidValue):
            unpack_tasks(
                [{**rows[0], "work": work_to_json(work), "noise": noise, "shape": shape}], numbers, "ada"
            )

    def test_one_identifier_twice_is_refused(self) -> None:
        models = np.ones((1, 5))
        rows, numbers = pack_tasks([Asked(Task("a", "ada", models, WORKS[0]), 0.0)])
        with pytest.raises(InvalidValue, match="one task only"):
            unpack_tasks([rows[0], rows[0]], numbers, "ada")
        answers, values = pack_answers({"a": Reply(models)})
        with pytest.raises(InvalidValue, match="answered once"):
            unpack_answers([answers[0], answers[0]], values, 0)
