"""FedAvg under SecAgg+: the protocol is Flower's own, the training is pfl_lib's.

The server writes down everything that clients sent it, so that one can look for a model in it.
"""

import json
from pathlib import Path

import numpy as np
import torch
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
from safetensors.numpy import save_file

from pfl_lib import train
from pfl_lib.flower.apps import _client, named_part
from pfl_lib.flower.plan import Plan

SHARES, THRESHOLD = 1.0, 0.6  # secrets are split among all; three of five restore one
HEAVIEST = 100  # samples that a client may have; the fewer, the finer the whole numbers


class Trains(NumPyClient):
    def __init__(self, number, plan):
        self.number, self.here = number, _client(named_part, number, plan)

    def fit(self, parameters, config):
        w = torch.from_numpy(parameters[0]).to(self.here.dtype)[None]
        done = train(self.here.at(config["round"] - 1), w, torch.tensor([self.number]))
        return [done[0].numpy()], self.here.samples, {"client": self.number}


def client_of(context):
    return Trains(int(context.node_config["partition-id"]), context.run_config["plan"]).to_client()


client = ClientApp(client_fn=client_of, mods=[secaggplus_mod])
server = ServerApp()


class Seen:
    """A grid that notes the arrays in whatever clients send."""

    def __init__(self, grid):
        self.grid, self.plain, self.masked = grid, 0, []

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, **options):
        replies = list(self.grid.send_and_receive(messages, **options))
        for reply in replies:
            if reply.has_error():
                continue
            self.plain += sum(len(arrays) for arrays in reply.content.array_records.values())
            for record in reply.content.config_records.values():
                if "masked_params" in record:
                    masked = [bytes_to_ndarray(b) for b in record["masked_params"]]
                    self.masked.append(masked[-1])
        return replies


@server.main()
def main(grid, context):
    plan, out = Plan.from_json(context.run_config["plan"]), Path(context.run_config["out"])
    out.mkdir(parents=True, exist_ok=True)
    here = plan.federation()
    first = ndarrays_to_parameters([here.initial()[0].numpy()])
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=here.m,
        min_available_clients=here.m,
        initial_parameters=first,
        on_fit_config_fn=lambda k: {"round": k},
    )
    rounds = plan.runs[0]["rounds"]
    protocol = SecAggPlusWorkflow(SHARES, THRESHOLD, max_weight=HEAVIEST, timeout=plan.timeout)
    seen = Seen(grid)
    inside = LegacyContext(context, config=ServerConfig(num_rounds=rounds), strategy=strategy)
    DefaultWorkflow(fit_workflow=protocol)(seen, inside)
    (last,) = inside.state.array_records["parameters"].to_numpy_ndarrays()
    seen_numbers = {"model": np.ascontiguousarray(last), "masked": np.stack(seen.masked)}
    save_file(seen_numbers, out / "seen.safetensors")
    record = {"plain arrays that came": seen.plain, "shares": here.m, "threshold": THRESHOLD}
    (out / "record.part").write_text(json.dumps(record))
    (out / "record.part").replace(out / "record.json")
