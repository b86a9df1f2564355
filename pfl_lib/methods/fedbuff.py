"""FedBuff: the server waits for K updates, then steps (Nguyen et al., AISTATS 2022)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._asynchronous import Asynchronous
from pfl_lib.methods._hyper import non_negative, positive, whole
from pfl_lib.methods._tensors import checked, same_shape
from pfl_lib.random import keyed_generator


def fedbuff_weight(staleness, power=0.5):
    """s(τ) = (1 + τ)^(−p): how much an update counts that is τ server steps old.

    FedBuff (Nguyen et al. 2022), p = ½. The server's *steps* are counted, not rounds or seconds.

    Equation label: eq-fedbuff-weight

    >>> fedbuff_weight(torch.tensor([0.0, 3.0]))
    tensor([1.0000, 0.5000])
    """
    staleness = checked(_check.non_negative, "staleness", staleness)
    power = checked(_check.non_negative, "power", power)
    return (1 + staleness) ** -power


def fedbuff_step(w_global, total, size, lr=1.0):
    """x ← x + η·(Σ_i s(τ_i)·Δ_i)/K with Δ_i = after − before: the step on a full buffer.

    FedBuff (Nguyen et al. 2022, Algorithm 1). ``total`` is the sum in the buffer, ``size`` is K:
    late updates count less, and nothing makes up for it.

    Equation label: eq-fedbuff-step

    >>> fedbuff_step(torch.tensor([1.0]), torch.tensor([6.0]), size=3)
    tensor([3.])
    """
    same_shape(w_global=w_global, total=total)
    size = checked(_check.whole, "size", size)
    lr = checked(_check.positive, "lr", lr)
    return w_global + lr / size * total


@dataclass(frozen=True)
class FedBuff(Asynchronous):
    """Late or not, every update goes into a buffer; when ``buffer`` have come, the server steps.

    ``staleness_power`` is p, ``lr_server`` η.  Updates that arrive in one round come in a random
    order, since the buffer may fill among them; what is left waits for the next round.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedbuff", buffer=4)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.3
    True
    """

    buffer: int = whole(10)
    staleness_power: float = non_negative(0.5)
    lr_server: float = positive(1.0)
    name, label = "fedbuff", "FedBuff"
    order, chapter = 3, "11b_methods"
    place = (1, 0, 1)
    idea = (
        "Nobody waits for anybody: clients send their updates when they have them, and the server "
        "moves the global model whenever K have come, late ones counting less."
    )
    note = (
        "It adds up *updates*, so an old one moves today's model instead of pulling it back to an "
        "old one, as in {doc}`fedasync`; and a sum of K is all the server must see. With nobody "
        "late and K clients it is FedAvg with equal weights."
    )
    equations = ["eq-fedbuff-weight", "eq-fedbuff-step"]
    paper = "Nguyen et al., AISTATS 2022, Algorithm 1"
    weights_by = "staleness, in steps of the server"

    def start(self, fed):
        state = super().start(fed)
        count = torch.zeros((), dtype=torch.int64, device=fed.device)
        since = torch.zeros(fed.m, dtype=torch.int64, device=fed.device)
        return state.set(total=torch.zeros_like(state.x), held=count, steps=count, since=since)

    def download(self, state, fed, who):
        received = super().download(state, fed, who)
        back = received.pulled == fed.k  # they pull the model of this many steps
        return received.set(since=torch.where(back, state.steps, state.since))

    def gather(self, state, fed, here, late):
        generator = keyed_generator(fed.settings.seed, "arrivals", fed.k)
        x, total = state.x, state.total
        held, steps = torch.stack([state.held, state.steps]).cpu().tolist()
        updates, since = state.w[here] - state.pull[here], state.since[here].to(fed.dtype)
        for j in torch.randperm(len(here), generator=generator).tolist():
            total = total + fedbuff_weight(steps - since[j], self.staleness_power) * updates[j]
            held += 1
            if held >= self.buffer:
                x = fedbuff_step(x, total, self.buffer, self.lr_server)
                total, held, steps = torch.zeros_like(total), 0, steps + 1
        counted = [torch.tensor(n, device=fed.device) for n in (held, steps)]
        return state.set(x=x, total=total, held=counted[0], steps=counted[1])
