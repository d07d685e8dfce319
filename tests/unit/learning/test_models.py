"""The text model: padding has no part in what it makes of a sentence."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from bonafed.errors import InvalidValue
from bonafed.learning import architectures, models

SENTENCES = ([3, 7, 2], [5], [1, 1, 4, 9, 8, 2], [6, 2, 2, 2])


def padded(length):
    return torch.tensor([sentence + [0] * (length - len(sentence)) for sentence in SENTENCES])


@pytest.fixture
def model():
    return models.build("text-lstm", (6,), 3, seed=2, vocabulary=10).double()


def test_more_padding_changes_nothing(model):
    assert torch.equal(model(padded(6)), model(padded(40)))


def test_padding_changes_nothing_for_many_models_at_once(model):
    """Under vmap, as rounds call it: gradients too, and none of them for the word that is padding."""

    def loss(weights, tokens):
        return torch.func.functional_call(model, weights, (tokens,)).square().sum()

    weights = {name: torch.stack([value, 0.5 * value]) for name, value in model.named_parameters()}
    gradients = [
        torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(weights, padded(length))
        for length in (6, 9)
    ]
    for name in weights:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], rtol=1e-12, atol=1e-15)
    assert not gradients[1]["embedding.weight"][:, 0].any()


def test_both_directions_are_the_lstm_of_pytorch(model):
    """With packed sentences, and with each on its own without padding."""
    plain = nn.LSTM(300, 120, batch_first=True, bidirectional=True).double()
    for suffix, part in (("l0", model.forwards), ("l0_reverse", model.backwards)):
        for name, value in (
            ("weight_ih", part.into.weight),
            ("bias_ih", part.into.bias),
            ("weight_hh", part.back.weight),
            ("bias_hh", torch.zeros(480, dtype=torch.float64)),
        ):
            getattr(plain, f"{name}_{suffix}").data.copy_(value)
    lengths = [len(sentence) for sentence in SENTENCES]
    words = model.embedding(padded(11))
    packed = nn.utils.rnn.pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    final = plain(packed)[1][0]
    got = model(padded(11)).detach().numpy()
    expected = model.dense(torch.cat([final[0], final[1]], dim=1)).detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14)
    alone = [model(torch.tensor([sentence])).detach().numpy()[0] for sentence in SENTENCES]
    np.testing.assert_allclose(got, alone, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 15, 15), (3, 9, 7), (11,)])
@pytest.mark.parametrize("name", architectures.MODELS)
def test_what_is_known_without_building_a_model_is_so(name, shape):
    vocabulary = 50 if name == "text-lstm" else 0
    try:
        model = models.build(name, shape, 7, seed=0, vocabulary=vocabulary)
    except InvalidValue as refusal:
        with pytest.raises(InvalidValue, match=re.escape(str(refusal))):
            architectures.require_fit(name, shape, vocabulary)
        return
    count = architectures.parameter_count(name, shape, 7, vocabulary)
    assert count == sum(weights.numel() for weights in model.parameters())
    if not vocabulary:
        assert model(torch.zeros(2, *shape)).shape == (2, 7)
