"""Federated averaging as one writes it with Flower alone; run by `benchmarks/flower.py`.

The server has the initial model, test samples and a file to which it adds a line after every round. A node
has its samples and, as a benchmark wants the same steps on both sides, their order in every round. PyTorch
is imported when the app is, as in Flower's own examples.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn

torch.set_num_threads(1)
server = ServerApp()
client = ClientApp()


def build(parameters: int) -> nn.Sequential:
    """The model with so many weights, for 8 x 8 digits."""
    if parameters == 650:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def tensors(path: Path) -> dict[str, Tensor]:
    """What the benchmark wrote for one side."""
    with np.load(path) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


@client.train()
def train(message: Message, context: Context) -> Message:
    """The local training of one node."""
    settings, own = context.run_config, tensors(Path(str(context.node_config["samples"])))
    state = message.content["arrays"].to_torch_state_dict()
    model = build(sum(value.numel() for value in state.values()))
    model.load_state_dict(state)
    optimizer = torch.optim.SGD(model.parameters(), float(settings["rate"]))
    order = own["order"][message.content["config"]["server-round"] - 1]
    for one_pass in order:
        for index in one_pass.split(int(settings["batch"])):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(own["features"][index]), own["labels"][index]).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(own["labels"])})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds, evaluated on the test samples; nobody else is asked to evaluate."""
    folder, rounds = Path(str(context.run_config["folder"])), int(context.run_config["rounds"])
    own = tensors(folder / "server.npz")
    model = build(own["start"].numel())
    nn.utils.vector_to_parameters(own["start"], model.parameters())

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            right = float((model(own["features"]).argmax(1) == own["labels"]).double().mean())
        if number:
            line = {"round": number, "test_accuracy": right}
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
        return MetricRecord({"accuracy": right})

    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=int(context.run_config["nodes"]))
    strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=rounds, evaluate_fn=evaluate)
    torch.save(model.state_dict(), folder / "model.pt")
