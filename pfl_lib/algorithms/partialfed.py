"""PartialFed: each layer either global or local, by a learned choice (after Sun et al., 2021)."""

from dataclasses import dataclass
from itertools import pairwise

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import (
    gumbel_softmax,
    partialfed_mix,
    partialfed_temperature,
    weighted_average,
)
from pfl_lib.training import Work, local_step


@local_step("partialfed")
def step(s, batch, client):
    """A model batch moves the layers in use, global (``w``) or own; a strategy batch the logits."""
    numbers = client.numbers
    layers = [slice(*ends) for ends in pairwise(s["ends"].tolist())]
    uniform = batch.noise.view(-1, 2)
    place = s["batch"] % (numbers["model_batches"] + numbers["strategy_batches"])
    on_model = place < numbers["model_batches"]

    def assemble(logits, w, own):
        drawn = gumbel_softmax(logits, uniform, numbers["temperature"], hard=True)[:, 0]
        likelier = (logits.argmax(1) == 0).to(drawn.dtype)
        return partialfed_mix(torch.where(on_model, likelier, drawn), own, w, layers)

    theta, pull_back = torch.func.vjp(assemble, s["logits"], s["w"], s["own"])
    g_logits, g_w, g_own = pull_back(client.grad(theta, batch))
    moved = client.move(s, g_w) | client.move(s, g_own, "own")
    learned = s["logits"] - numbers["lr_strategy"] * g_logits
    new = {name: torch.where(on_model, rows, s[name]) for name, rows in moved.items()}
    new["logits"] = torch.where(on_model, s["logits"], learned)
    return new | {"batch": s["batch"] + 1}


@dataclass(frozen=True)
class PartialFed(Algorithm):
    """Each layer is the global one or the client's own; which, is learned beside the models.

    After the cited original (its adaptive form); FedALA only sketches it.  Of a client's batches
    ``model_batches`` train whichever copy of a layer the likelier choice puts to use, the next
    ``strategy_batches`` train the choice itself, from draws of it (a Gumbel-softmax that cools
    from ``temperature`` by ``decay`` a round); no sample of a pass serves both.  A client counts
    its batches on from round to round.  What the choice makes up in the end it keeps and uploads.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("partialfed", temperature=5.0)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    model_batches: int = 8
    strategy_batches: int = 2
    lr_strategy: float = 1.0
    temperature: float = 5.0
    decay: float = 0.965
    name = "partialfed"
    label = "PartialFed"
    paper = "after Sun et al., NeurIPS 2021"

    def start(self, fed):
        w = fed.initial()
        count = torch.zeros(fed.m, dtype=torch.int64, device=w.device)
        return State(x=w[0], w=w, logits=w.new_zeros(fed.m, len(fed.layers), 2), batch=count)

    def round(self, state, fed, who):
        stages = [columns for _, columns in fed.layers]
        warm = max(partialfed_temperature(fed.k, self.temperature, self.decay), 1e-3)
        rows = {"own": state.w[who], "logits": state.logits[who], "batch": state.batch[who]}
        new = fed.perform(
            Work(
                rows={"w": state.x.expand(len(who), -1), **rows},
                step="partialfed",
                shared={"ends": torch.tensor([0, *(columns.stop for columns in stages)])},
                numbers={**self.settings(), "temperature": warm},
                noise=2 * len(stages),
                moves=("w", "own"),
            ),
            who,
        )
        use_global = (new["logits"].argmax(-1) == 0).to(fed.dtype)
        w = partialfed_mix(use_global, new["own"], new["w"], stages)
        x = weighted_average(w, fed.sizes[who])
        return state.put(who, w=w, logits=new["logits"], batch=new["batch"]).set(x=x)

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}

    def __post_init__(self):
        super().__post_init__()
        _check.whole("model_batches", self.model_batches)
        _check.whole("strategy_batches", self.strategy_batches, at_least=0)
        for name in ("lr_strategy", "temperature"):
            _check.positive(name, getattr(self, name))
        _check.between("decay", self.decay, 0, 1)
