"""FedFomo: move towards the models that help (after Zhang et al., ICLR 2021)."""

from dataclasses import dataclass, replace

import torch

from pfl_lib.methods._hyper import between, choice
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.random import keyed_generator
from pfl_lib.work import Work, local_step, train


def fedfomo_scores(w, loss, models, losses):
    """(L_i(θ_i) − L_i(θ_n))/‖θ_n − θ_i‖ for every model on offer: the gain per unit of distance.

    FedFomo (Zhang et al. 2021). ``loss`` and ``losses`` are the client's own validation
    losses of its model ``w`` and of ``models``. A model at distance zero scores 0.

    Equation label: eq-fedfomo-scores

    >>> models = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> fedfomo_scores(torch.zeros(2), torch.tensor(2.0), models, torch.tensor([1.0, 2.0]))
    tensor([0.2000, 0.0000])
    """
    squared = ((models - w) ** 2).sum(-1)
    apart = squared > 0
    return torch.where(apart, (loss - losses) / torch.where(apart, squared, 1).sqrt(), 0)


def fedfomo_weights(scores):
    """max(0, score), normalized to sum 1; all zero if no model helps, and then nothing moves.

    FedFomo (Zhang et al. 2021).

    Equation label: eq-fedfomo-weights

    >>> fedfomo_weights(torch.tensor([3.0, -1.0, 1.0]))
    tensor([0.7500, 0.0000, 0.2500])
    """
    good = scores.clamp(min=0)
    total = good.sum(-1, keepdim=True)
    return good / torch.where(total > 0, total, 1)


def fedfomo_update(w, models, weights):
    """θ_i ← θ_i + Σ_n weight_n(θ_n − θ_i).

    FedFomo (Zhang et al. 2021).

    Equation label: eq-fedfomo-update

    >>> fedfomo_update(torch.tensor([1.0]), torch.tensor([[3.0], [9.0]]), torch.tensor([0.5, 0.0]))
    tensor([2.])
    """
    return w + weights @ (models - w)


@local_step("fedfomo", reveals="", mixes="where training begins, by its own losses")
def judge(s, batch, client):
    """The loss of the client's own model and of all models on offer, added up over the samples."""
    n = batch.weight.sum()
    own, theirs = client.tested_loss(s["w"], batch), client.losses(s["models"], batch)
    return {"loss": s["loss"] + n * own, "losses": s["losses"] + n * theirs}


@dataclass(frozen=True)
class FedFomo(Algorithm):
    """A client downloads all models and moves towards those that lower its own validation loss.

    After the cited original; FedALA only sketches it, with M = all clients.  ``validation`` is the
    share of its training data that a client permanently holds out to judge models; it trains on the
    rest.  θ_i is where it began its last round; the model trained from there is one of the
    candidates.  If no model helps, not even its own training, it begins there again, as the formula
    says; ``if_nobody_helps="trained"`` continues from the trained model, as public code does.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedfomo", validation=0.2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    validation: float = between(0.2, 0, 1, "()")
    if_nobody_helps: str = choice("begin", ("begin", "trained"))
    name, label = "fedfomo", "FedFomo"
    family, order = "pair by pair", 8
    place = (3, 4, 3)
    idea = (
        "A client downloads other clients' models, tries them on data it has held back, and moves "
        "towards those that do better than its own."
    )
    note = (
        "Costly to send: M models down for each client. The held-back part is a fixed share of the "
        "training data, never test data."
    )
    equations = ["eq-fedfomo-scores", "eq-fedfomo-weights", "eq-fedfomo-update"]
    chapter = "11b_methods"
    paper = "after Zhang et al., ICLR 2021"
    shared, private = "their models, pairwise", "the whole model"
    weights_by, cost = "validation losses", "(1+M)Σ"
    newcomer = "the mean of all models, moved to those that help it, and trained locally"

    def start(self, fed):
        w = fed.initial()
        return State(w=w, begin=w, weights=w.new_zeros(fed.m, fed.m))

    def download(self, state, fed, who):
        return State(w=state.begin[who], models=state.w)

    def local(self, state, received, fed, who):
        learn, held_back = split(fed, self.validation)
        models, none = received.models, received.w.new_zeros(len(who), len(received.models))
        rows = {"w": received.w, "loss": none[:, 0], "losses": none}
        work = Work(rows, "fedfomo", shared={"models": models}, epochs=1, optimizer="sgd",
                    uploaded=False)  # fmt: skip
        judged = held_back.perform(work, who)
        weights, begin = [], []
        for theta, loss, losses in zip(received.w, judged["loss"], judged["losses"]):
            # Sums of losses serve as well as means: the weights are normalized.
            weights.append(fedfomo_weights(fedfomo_scores(theta, loss, models, losses)))
            begin.append(fedfomo_update(theta, models, weights[-1]))
        start, weight = torch.stack(begin), torch.stack(weights)
        if self.if_nobody_helps == "trained":
            start = torch.where((weight.sum(1) > 0)[:, None], start, models[who])
        return State(w=train(learn, start, who), begin=start, weights=weight)

    def upload(self, state, done, fed, who):
        return state.put(who, w=done.w, begin=done.begin, weights=done.weights)

    def newcomer_models(self, state, fed, newcomers):
        begin = state.w.mean(0).expand(newcomers.m, -1)
        received = State(w=begin, models=state.w)
        alone = replace(self, if_nobody_helps="begin")  # there is no trained model to go on from
        return alone.local(state, received, newcomers, newcomers.everyone).w

    def extra_models(self, state, fed):
        return {"begin": state.begin}

    def sent(self, fed, who, k):
        return (1 + fed.m) * fed.d * len(who)


def split(fed, share):
    """The federation twice: with the samples to train on, and with those held out.

    One sample at least is held back and one trained on; a single sample has to serve for both.
    """
    kept, held = [], []
    for i, n in enumerate(fed.sample_counts):
        order = torch.randperm(n, generator=keyed_generator(fed.settings.seed, "fedfomo", i))
        cut = min(max(1, round(share * n)), n - 1)
        kept.append(order[cut:])
        held.append(order[:cut] if cut else order)
    return fed.with_part(kept), fed.with_part(held)
