"""Worker: pfl-research, FederatedAveraging on its simulated backend with PyTorch models."""

import sys

import torch
from common import Case, Gate, build, get, load_case, put
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn


class Model(nn.Module):
    """What pfl asks of a module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of a batch."""
        return nn.functional.cross_entropy(self.inner(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Asked for in the warm-up round only; must not be empty."""
        return {"samples": Weighted(0.0, len(y))}


class Turns(TrainingProcessCallback):
    """Holds pfl between two rounds."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        return not self._gate.ready(get(model.pytorch_model)), Metrics()


def datasets(case: Case) -> FederatedDataset:
    """Users with their samples already in the order of training, as tensors."""
    users = {}
    for client in range(len(case.sizes)):
        own = case.own(client)
        users[client] = Dataset((case.features[own], case.labels[own]), user_id=str(client))
    return FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))


def main(path: str, out: str) -> None:
    """Central iterations with every client in the cohort."""
    case = load_case(path)
    module = Model(build(case.model))
    put(module, case.start)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    data = datasets(case)
    backend = SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()])
    many = 1_000_000  # the gate says when to stop
    rounds = NNAlgorithmParams(
        central_num_iterations=many, evaluation_frequency=many,
        train_cohort_size=len(case.sizes), val_cohort_size=0,
    )  # fmt: skip
    local = NNTrainHyperParams(
        local_batch_size=case.batch, local_num_epochs=1, local_learning_rate=case.rate
    )
    gate = Gate(out)
    if gate.ready(case.start):
        FederatedAveraging().run(
            rounds, backend, model, local, NNEvalHyperParams(local_batch_size=None),
            callbacks=[Turns(gate)], send_metrics_to_platform=False,
        )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
