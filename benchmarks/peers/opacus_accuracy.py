"""Worker: one private training run with Opacus, its own sampler and its own accountant.

`python opacus_accuracy.py CASE.npz`; the last line of standard output is its result as JSON. Secure mode is
off: it changes where the random numbers come from, not their distribution.
"""

import json
import sys
import warnings

import numpy as np
import torch
from common import build, put
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(path: str) -> None:
    """Train, and say how well and at what epsilon."""
    warnings.simplefilter("ignore")
    with np.load(path) as file:
        head = json.loads(str(file["head"]))
        names = ("start", "features", "labels", "test_features", "test_labels")
        start, x, y, test_x, test_y = (torch.from_numpy(file[name]) for name in names)
    torch.manual_seed(head["seed"])
    module = build(head["model"])
    put(module, start)
    engine = PrivacyEngine(accountant="prv")
    module, optimizer, loader = engine.make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), head["rate"]),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=head["batch"]),
        target_epsilon=head["epsilon"],
        target_delta=head["delta"],
        epochs=head["epochs"],
        max_grad_norm=head["clip"],
    )
    steps = 0
    for _ in range(head["epochs"]):
        for features, labels in loader:
            optimizer.zero_grad()
            if len(labels):
                nn.functional.cross_entropy(module(features), labels).backward()
            optimizer.step()
            steps += 1
    with torch.no_grad():
        parts = zip(test_x.split(1000), test_y.split(1000), strict=True)
        right = sum(int((module(a).argmax(1) == b).sum()) for a, b in parts)
    found = {
        "accuracy": right / len(test_y),
        "spent": engine.get_epsilon(head["delta"]),
        "noise_multiplier": optimizer.noise_multiplier,
        "steps": steps,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
