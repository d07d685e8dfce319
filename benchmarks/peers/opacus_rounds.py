"""Worker: one client after the other with Opacus, per-sample clipping and no noise."""

import sys

from common import Case, Gate, build, get, load_case, put
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn, optim


class PrivateTrainer:
    """One wrapped model for all clients: wrapping once is the kindest way to count."""

    def __init__(self, case: Case) -> None:
        assert case.clip is not None
        self._case = case
        self._model = GradSampleModule(build(case.model))
        self._optimizer = DPOptimizer(
            optim.SGD(self._model.parameters(), case.rate), noise_multiplier=0.0,
            max_grad_norm=case.clip, expected_batch_size=case.batch,
        )  # fmt: skip

    def train(self, start: Tensor, client: int) -> Tensor:
        """Weights after one client's local training."""
        case, optimizer = self._case, self._optimizer
        put(self._model, start)
        optimizer.expected_batch_size = min(case.batch, case.sizes[client])
        for index in case.batches(client):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(self._model(case.features[index]), case.labels[index])
            loss.backward()
            optimizer.step()
        return get(self._model)


def main(path: str, out: str) -> None:
    """Rounds with the weighted mean of all clients."""
    case = load_case(path)
    trainer = PrivateTrainer(case)
    gate, weights = Gate(out), case.start
    while gate.ready(weights):
        total = weights.double()
        for client, size in enumerate(case.sizes):
            total += size / sum(case.sizes) * (trainer.train(weights, client) - weights).double()
        weights = total.float()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
