"""FedFomo: move towards the models that help (after Zhang et al., ICLR 2021)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import fedfomo_scores, fedfomo_update, fedfomo_weights
from pfl_lib.random import keyed_generator
from pfl_lib.training import Work, local_step


@local_step("fedfomo")
def judge(s, batch, client):
    """The loss of one's own model and of all models on offer, added up over the samples."""
    n = batch.weight.sum()
    theirs = torch.func.vmap(client.loss, in_dims=(0, None))(s["models"], batch)
    return {"loss": s["loss"] + n * client.loss(s["w"], batch), "losses": s["losses"] + n * theirs}


@dataclass(frozen=True)
class FedFomo(Algorithm):
    """A client downloads all models, and moves to those that lower its own validation loss.

    After the cited original; FedALA only sketches it, with M = all clients.  ``validation`` is the
    share of its training data a client holds back, for good, to judge models; it trains on the
    rest.  θ_i is where it began its last round; what it trained from there is among the models on
    offer.  If nobody helps, it begins there again.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedfomo", validation=0.2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    validation: float = 0.2
    name = "fedfomo"
    label = "FedFomo"
    paper = "after Zhang et al., ICLR 2021"
    tested = "the client's own model, trained"

    def start(self, fed):
        w = fed.initial()
        return State(w=w, begin=w, weights=w.new_zeros(fed.m, fed.m))

    def round(self, state, fed, who):
        learn, held_back = split(fed, self.validation)
        models = state.w
        begin, none = state.begin[who], models.new_zeros(len(who), fed.m)
        rows = {"w": begin, "loss": none[:, 0], "losses": none}
        work = Work(rows, "fedfomo", shared={"models": models}, epochs=1, optimizer="sgd")
        judged = held_back.perform(work, who)
        new = {"begin": [], "weights": []}
        for theta, loss, losses in zip(begin, judged["loss"], judged["losses"]):
            # Sums of losses serve as well as means: the weights are normalised.
            weights = fedfomo_weights(fedfomo_scores(theta, loss, models, losses))
            new["weights"].append(weights)
            new["begin"].append(fedfomo_update(theta, models, weights))
        new = {name: torch.stack(rows) for name, rows in new.items()}
        return state.put(who, w=learn.train(new["begin"], who), **new)

    def also(self, state, fed):
        return {"begin": state.begin}

    def sent(self, fed, who, round_):
        return (1 + fed.m) * fed.d * len(who)

    def __post_init__(self):
        super().__post_init__()
        if not 0 < _check.between("validation", self.validation, 0, 1) < 1:
            raise ValueError(f"validation must lie in (0, 1), got {self.validation!r}")


def split(fed, share):
    """The federation twice: with the samples to train on, and with those held back.

    One sample at least is held back and one trained on; a single sample has to serve for both.
    """
    kept, held = [], []
    for i, index in enumerate(fed.partition.train):
        n = len(index)
        order = torch.randperm(n, generator=keyed_generator(fed.settings.seed, "fedfomo", i))
        cut = min(max(1, round(share * n)), n - 1)
        kept.append(order[cut:])
        held.append(order[:cut] if cut else order)
    return fed.with_part(kept), fed.with_part(held)
