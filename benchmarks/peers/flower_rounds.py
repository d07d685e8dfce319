"""Worker: Flower's simulation on Ray, one CPU per client, as many clients at a time as there are cores."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent)  # for the processes of Ray

import numpy as np
from common import Gate, build, get, load_case, put, shared_case, train
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


class Turns(FedAvg):
    """FedAvg over all clients, held before each round."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(fraction_evaluate=0.0)
        self._gate = gate

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if not self._gate.ready(np.concatenate([a.ravel() for a in arrays.to_numpy_ndarrays()])):
            return []
        return super().configure_train(server_round, arrays, config, grid)


def client_app(path: str) -> ClientApp:
    """Local training of one client; a process of Ray reads the samples once."""
    app = ClientApp()

    @app.train()
    def run(message: Message, context: Context) -> Message:
        case, client = shared_case(path), int(context.node_config["partition-id"])
        model = build(case.model)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        if case.clip is None:
            train(model, case, client)
        else:
            from opacus_rounds import PrivateTrainer

            put(model, PrivateTrainer(case).train(get(model), client))
        metrics = MetricRecord({"num-examples": case.sizes[client]})
        return Message(
            RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message
        )

    return app


def main(path: str, out: str) -> None:
    """One simulation run; the round after the last has no clients."""
    case = load_case(path)
    gate = Gate(out, case.rounds, processes=True)
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        model = build(case.model)
        put(model, case.start)
        Turns(gate).start(grid, ArrayRecord(model.state_dict()), num_rounds=case.rounds + 1)

    run_simulation(
        app, client_app(path), num_supernodes=len(case.sizes),
        backend_config={
            "init_args": {"num_cpus": os.cpu_count() or 1, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
