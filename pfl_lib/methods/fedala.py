"""FedALA: adaptive local aggregation before federated averaging (Zhang et al., AAAI 2023).

``AdaptiveLocalAggregation`` learns for each parameter how much of the downloaded model to take
(Eqs. (4) and (5)), before the local work of any method; ``with_ala`` adds it to others.
"""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib._terms import private_gradient
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import between, flag, positive, whole
from pfl_lib.methods._tensors import checked, same_shape
from pfl_lib.methods.base import Algorithm
from pfl_lib.work import Work, local_step


def ala_mix(weights, theta_local, theta_global, learnable=None):
    """Θ̂ = Θ_i + (Θ − Θ_i)⊙W: every parameter somewhere between local (0) and global (1).

    FedALA Eqs. (3)-(4). ``learnable`` marks the top p layers (a boolean mask over parameters);
    below them the global model is used unchanged.

    Equation label: eq-ala-mix

    >>> ala_mix(torch.tensor([0.0, 0.5, 1.0]), torch.zeros(3), torch.ones(3))
    tensor([0.0000, 0.5000, 1.0000])
    """
    same_shape(theta_local=theta_local, theta_global=theta_global, weights=weights)
    mixed = torch.lerp(theta_local, theta_global, weights)  # exact at both ends
    return mixed if learnable is None else torch.where(learnable, mixed, theta_global)


def ala_step(weights, theta_local, theta_global, grad, lr, learnable=None):
    """W ← clip(W − η·(Θ − Θ_i)⊙∇L(Θ̂), 0, 1), with ``grad`` = ∇L at the mix Θ̂.

    FedALA Eq. (5) with the chain rule of appendix Eq. (7); the η inside ∇_W L in the main text is
    a slip. Clipped after every step. Outside ``learnable`` the weights stay.

    Equation label: eq-ala-step

    >>> one = torch.ones(2)
    >>> ala_step(one, torch.zeros(2), one, torch.tensor([0.3, -0.3]), lr=1.0)
    tensor([0.7000, 1.0000])
    """
    same_shape(weights=weights, theta_local=theta_local, theta_global=theta_global, grad=grad)
    lr = checked(_check.positive, "lr", lr)
    new = (weights - lr * (theta_global - theta_local) * grad).clamp(0, 1)
    return new if learnable is None else torch.where(learnable, new, weights)


@local_step("ala", "", "where training begins, by its own losses", private="private ala")
def step(s, batch, client):
    """One step on the weights; the downloaded model ``w`` and the client's own are unchanged."""
    weights, own = s["weights"], s["own"]
    below, top = s["w"].split([s["w"].shape[0] - own.shape[0], own.shape[0]])
    # the layers below are those of the download: only the top's gradient is computed
    above = lambda mixed: client.loss_above(below, mixed, batch)  # noqa: E731
    g, loss = client.grad_and_loss(above, ala_mix(weights, own, top))  # (4)
    weights = ala_step(weights, own, top, g, client.numbers["ala_lr"])  # (5)
    n = batch.weight.sum()
    return {"weights": weights, "loss": s["loss"] + n * loss, "seen": s["seen"] + n}


@local_step("private ala", reveals="")
def private_step(s, batch, client):
    """The same with a gradient that is private in each sample; no loss is reported."""
    weights, own = s["weights"], s["own"]
    below, top = s["w"].split([s["w"].shape[0] - own.shape[0], own.shape[0]])
    above = lambda mixed, batch: client.loss_above(below, mixed, batch)  # noqa: E731
    g = private_gradient(above, ala_mix(weights, own, top), batch, client)
    weights = ala_step(weights, own, top, g, client.numbers["ala_lr"])
    return {"weights": weights, "seen": s["seen"] + 1}


@dataclass(frozen=True)
class AdaptiveLocalAggregation(Algorithm):
    """Before training, a client mixes the downloaded model with its own, element by element.

    ``ala_layers`` is p: only the top p layers are mixed, those below are the download's.
    ``ala_percent`` is s, the share of the local data on which the weights are learned, drawn once
    per round; ``ala_lr`` is η.  A client's first time lasts until the mean losses of the last
    ``window`` passes deviate by less than ``tol`` (``max_epochs`` passes at most), later times are
    one pass.  The first time is each client's own: the first round in which its model and the
    download differ.  The paper does not print ``tol``; the authors' module has 0.1, and its
    read-me says that the paper's runs had 0.01, which is what ``pfl_lib.book.papers`` gives.

    ``remix_before_test`` tests the mix with which *every* client would begin the next round, as in
    the authors' code, and not the one with which it began its last round.  With partial
    participation the two differ much: the latter may be several rounds old.
    """

    ala_layers: int = whole(1, at_least=0)
    ala_percent: float = between(80, 0, 100, "(]")
    ala_lr: float = positive(1.0)
    tol: float = positive(0.1)
    window: int = whole(10)
    max_epochs: int = whole(50)
    remix_before_test: bool = flag(False)

    def start(self, fed):
        return super().start(fed).set(**self.memory(fed))

    def download(self, state, fed, who):
        return self.mixed(state, super().download(state, fed, who), fed, who)

    def upload(self, state, done, fed, who):
        return self.remember(super().upload(state, done, fed, who), done, who)

    def mix_to_test(self, state, fed):
        """The mix that is tested, one row per client."""
        if not self.remix_before_test:
            return state.ala_begin
        return self.download(state, fed.at(fed.k + 1), fed.everyone).w

    def memory(self, fed):
        """The memory of the clients: own models, starting points, W (ones), first time over."""
        w = fed.initial()
        never = torch.zeros(fed.m, dtype=torch.bool, device=w.device)
        weights = torch.ones_like(w[:, self.top(fed)])
        return {"ala_own": w, "ala_begin": w, "ala_weights": weights, "ala_started": never}

    def mixed(self, state, received, fed, who):
        """What the clients ``who`` received, with each client's mix in the place of ``w``."""
        x, top = received.w, self.top(fed)
        own, weights, started = (state[f"ala_{n}"][who] for n in ("own", "weights", "started"))
        own = own[:, top]
        apart = (own != x[:, top]).any(1)  # equal models leave nothing to learn
        weights = self.learn(weights, own, x, apart, started, fed, who)
        begin = torch.cat([x[:, : top.start], ala_mix(weights, own, x[:, top])], 1)  # (4)
        new = {"ala_begin": begin, "ala_weights": weights, "ala_started": started | apart}
        return received.set(w=begin, **new)

    def remember(self, state, done, who):
        """The state with the clients' memory for their next mix."""
        kept = {name: done[name] for name in ("ala_begin", "ala_weights", "ala_started")}
        return state.put(who, ala_own=done.w, **kept)

    def learn(self, weights, own, x, apart, started, fed, who):
        """Repeated passes over the same batches; a client stops when its weights have converged."""
        # reads from the device once here, and once per pass after the window
        apart, started, who = torch.stack([apart, started, who.to(apart.device)]).cpu()
        first = apart.nonzero().flatten()
        clients, learning = who[first], started[first] == 0
        busy = first.to(x.device)
        losses = x.new_zeros(len(busy), 0)
        for done in range(1, self.max_epochs + 1):
            if len(busy) == 0:
                break
            rows = {"w": x[busy], "own": own[busy], "weights": weights[busy]}
            rows |= {"loss": x.new_zeros(len(busy)), "seen": x.new_zeros(len(busy))}
            work = Work(
                rows,
                "ala",
                numbers={"ala_lr": self.ala_lr},
                epochs=1,
                share=self.ala_percent / 100,
                optimizer="sgd",
                tag="ala",
                uploaded=False,
            )
            new = fed.perform(work, clients)
            weights = weights.index_copy(0, busy, new["weights"])
            losses = torch.cat([losses, (new["loss"] / new["seen"])[:, None]], 1)
            if done > self.window:
                moving = losses[:, -self.window :].std(1, correction=0) >= self.tol
                learning = learning & moving.cpu()
            kept = learning.nonzero().flatten()
            if len(kept) < len(clients):
                clients, learning, here = clients[kept], learning[kept], kept.to(busy.device)
                busy, losses = busy[here], losses[here]
        return weights

    def top(self, fed):
        """The columns from the top p layers on."""
        layers = self.handed_layers(fed)
        if self.ala_layers > len(layers):
            raise ValueError(
                f"ala_layers must be at most {len(layers)}, the layers of {fed.model_name!r}, "
                f"got {self.ala_layers}"
            )
        return slice(layers[-self.ala_layers][1].start if self.ala_layers else fed.d, fed.d)


@dataclass(frozen=True)
class FedALA(AdaptiveLocalAggregation, GlobalModel):
    """Θ̂_i, a learned mix of the global model and the client's own, is where training starts.

    Algorithm 1 returns Θ̂_i, so Θ̂_i is tested: it contains the global model of the previous round
    or, with ``remix_before_test``, the newest.  Θ_i, trained from it, and the new global model are
    tested as well.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedala", ala_layers=1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    name, label = "fedala", "FedALA"
    family, order = "a model beside the global one", 5
    place = (1, 2, 3)
    idea = (
        "Before it trains, each client mixes the global model into its own, number by number in "
        "the top layers, and learns the mixing weights by descent on its own loss."
    )
    note = "The mixed model is tested, before local training. The weights never leave the client."
    equations = ["eq-ala-mix", "eq-ala-step", "eq-fedavg"]
    chapter = "10_fedala"
    paper = "Zhang et al., AAAI 2023, Algorithm 1"
    shared, private = "one model", "the model, and weights of its top layers"
    weights_by = "each client's loss"
    tested = "the mix with which the client began its last round"
    newcomer = "the global model, mixed by ALA with a copy trained locally"
    newcomer_rounds = 2  # the first trains the copy, the second begins with the mix
    handed = ""  # it already mixes

    def personal(self, state, fed):
        return self.mix_to_test(state, fed)

    def extra_models(self, state, fed):
        return {"trained": state.ala_own, "global": state.x.expand(fed.m, -1)}
