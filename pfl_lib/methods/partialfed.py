"""PartialFed: each layer either global or local, by a learned choice (after Sun et al., 2021)."""

from dataclasses import dataclass
from itertools import pairwise

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import between, positive, whole
from pfl_lib.methods._stages import spread
from pfl_lib.methods._tensors import checked
from pfl_lib.methods.base import State
from pfl_lib.work import Work, local_step


def partialfed_temperature(step, start=5.0, decay=0.965):
    """5·0.965^step: the temperature of the Gumbel-softmax, cooling down.

    PartialFed (Sun et al. 2021), with the values FedALA reports. ``step`` may be a tensor.

    Equation label: eq-partialfed-temperature

    >>> round(partialfed_temperature(10), 4)
    3.5014
    """
    start = checked(_check.positive, "start", start)
    decay = checked(_check.between, "decay", decay, 0, 1)
    step = checked(_check.non_negative, "step", step)
    return start * decay**step


def gumbel_softmax(logits, uniform, temperature, hard=False):
    """softmax((logits − log(−log u))/temperature): a soft draw from softmax(logits).

    Jang et al. 2017, Eq. (2), from uniform numbers u in [0, 1] that the caller supplies. ``hard``
    gives the one-hot choice forwards and the soft gradient backwards (straight through).

    Equation label: eq-gumbel-softmax

    >>> logits, u = torch.tensor([2.0, 0.0]), torch.tensor([0.5, 0.5])
    >>> gumbel_softmax(logits, u, temperature=1.0)
    tensor([0.8808, 0.1192])
    """
    temperature = checked(_check.positive, "temperature", temperature)
    info = torch.finfo(logits.dtype)
    noise = -torch.log(-torch.log(uniform.to(logits.dtype).clamp(info.tiny, 1 - info.eps)))
    soft = torch.softmax((logits + noise) / temperature, dim=-1)
    if not hard:
        return soft
    places = torch.arange(logits.shape[-1], device=logits.device)
    choice = (places == soft.argmax(-1, keepdim=True)).to(soft.dtype)
    return choice + soft - soft.detach()


def partialfed_mix(use_global, w_local, w_global, stages):
    """Layer by layer, the global (1) or the local (0) parameters; in between while learning.

    PartialFed (Sun et al. 2021). ``use_global`` holds one number per layer, ``stages`` its columns.

    Equation label: eq-partialfed-mix

    >>> layers = [slice(0, 2), slice(2, 3)]
    >>> partialfed_mix(torch.tensor([1.0, 0.0]), torch.zeros(3), torch.ones(3), layers)
    tensor([1., 1., 0.])
    """
    return w_local + spread(use_global, stages, like=w_local) * (w_global - w_local)


@local_step("partialfed", reveals="", mixes="layers of the client's own model")
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

    theta, pull_back = torch.func.vjp(assemble, s["logits"], s["w"], s["own"])  # type: ignore[misc]
    g_logits, g_w, g_own = pull_back(client.grad(theta, batch))
    moved = client.move(s, g_w) | client.move(s, g_own, "own")
    learned = s["logits"] - numbers["lr_strategy"] * g_logits
    new = {name: torch.where(on_model, rows, s[name]) for name, rows in moved.items()}
    new["logits"] = torch.where(on_model, s["logits"], learned)
    return new | {"batch": s["batch"] + 1}


@dataclass(frozen=True)
class PartialFed(GlobalModel):
    """Each layer is the global one or the client's own; which, is learned beside the models.

    After the cited original (its adaptive form); FedALA only sketches it.  Of a client's batches
    ``model_batches`` train whichever copy of a layer the likelier choice puts to use, the next
    ``strategy_batches`` train the choice itself, from draws of it (a Gumbel-softmax that cools
    from ``temperature`` by ``decay`` per round); no sample of a pass serves both.  A client counts
    its batches on from round to round.  What the choice makes up in the end it keeps and uploads.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("partialfed", temperature=5.0)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    model_batches: int = whole(8)
    strategy_batches: int = whole(2, at_least=0)
    lr_strategy: float = positive(1.0)
    temperature: float = positive(5.0)
    decay: float = between(0.965, 0, 1)
    name, label = "partialfed", "PartialFed"
    family, order = "some layers", 2
    place = (1, 3, 3)
    idea = (
        "For every layer a client chooses: the global one or its own. The choice is learned by a "
        "softened coin, which hardens as it cools."
    )
    note = (
        "After the cited original. Model batches and strategy batches are disjoint and alternate."
    )
    equations = ["eq-partialfed-temperature", "eq-gumbel-softmax", "eq-partialfed-mix"]
    chapter = "11b_methods"
    paper = "after Sun et al., NeurIPS 2021"
    private, weights_by = "some layers, chosen", "each client's loss, layer by layer"
    tested = "the client's own model, trained"
    newcomer = "the global model, trained locally for a round"

    def start(self, fed):
        w = fed.initial()
        count = torch.zeros(fed.m, dtype=torch.int64, device=w.device)
        return State(x=w[0], w=w, logits=w.new_zeros(fed.m, len(fed.layers), 2), batch=count)

    def local(self, state, received, fed, who):
        layers = [columns for _, columns in fed.layers]
        warm = max(partialfed_temperature(fed.k, self.temperature, self.decay), 1e-3)
        rows = {"own": state.w[who], "logits": state.logits[who], "batch": state.batch[who]}
        work = Work(
            rows={"w": received.w, **rows},
            step="partialfed",
            shared={"ends": torch.tensor([0, *(columns.stop for columns in layers)])},
            numbers={**self.settings(), "temperature": warm},
            noise=2 * len(layers),
            moves=("w", "own"),
        )
        new = fed.perform(work, who)
        use_global = (new["logits"].argmax(-1) == 0).to(fed.dtype)
        w = partialfed_mix(use_global, new["own"], new["w"], layers)
        return received.set(w=w, logits=new["logits"], batch=new["batch"])

    def upload(self, state, done, fed, who):
        kept = state.put(who, w=done.w, logits=done.logits, batch=done.batch)
        return super().upload(kept, done, fed, who)

    def personal(self, state, fed):
        return state.w
