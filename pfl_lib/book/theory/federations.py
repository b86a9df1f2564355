"""Clients with quadratic losses, on which the library's own methods run."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pfl_lib import _check
from pfl_lib.formulas import proximal_step_quadratic
from pfl_lib.random import keyed_generator
from pfl_lib.work import STEPS, Batch, DeprecatedTrain, Settings, Work


class QuadraticFederation(DeprecatedTrain):
    """Clients with F_i(w) = ½·Σ_q h_iq·(w_q − c_iq)², for which local training has an answer.

    The very same methods run on it, as far as they ask for ordinary local training:
    that returns the exact minimizer instead of some epochs of descent.

    >>> import pfl_lib
    >>> fed = QuadraticFederation(h=torch.ones(2, 1), c=torch.tensor([[0.0], [3.0]]))
    >>> pfl_lib.train(fed, fed.initial(), fed.everyone)
    tensor([[0.],
            [3.]])
    """

    model_name = loss = "quadratic"
    metric = "accuracy"  # which ``evaluate`` leaves open: there are no labels
    head_bias = linear_head = groups = None
    settings = Settings(lr=1.0, optimizer="exact", batch_size=1, epochs=1, seed=0)

    def __init__(self, h, c, start=None):
        self.h, self.c = h, c
        self.m, self.d = c.shape
        self.start = torch.zeros_like(c) if start is None else start
        self.sizes = torch.ones(self.m, dtype=c.dtype)
        self.device, self.dtype, self.k = c.device, c.dtype, 0
        self.sample_counts = (1,) * self.m
        self.layers = self.tensors = [("all", slice(0, self.d))]
        self.head_mask = torch.zeros(self.d, dtype=torch.bool)
        self.buffer_mask = self.norm_mask = self.head_mask  # a bowl has no layers at all

    @property
    def everyone(self):
        return torch.arange(self.m)

    def initial(self, who=None):
        return self.start if who is None else self.start[who]

    def at(self, k):
        here = copy.copy(self)
        here.k = k
        return here

    def with_part(self, positions):
        """The same federation: a client's one sample is all its data."""
        return self

    def perform(self, work, who):
        """argmin F_i, plus (strength/2)·‖w − center‖² where a proximal term is given."""
        unknown = set(work.rows) - {"w", "center", "strength"} | set(work.shared)
        if work.step != "descend" or unknown:
            raise ValueError(
                "a QuadraticFederation solves F_i with or without a proximal term; it has no "
                f"answer to step {work.step!r} with {sorted(unknown)}: use a DescentFederation"
            )
        solved = self.c[who]
        if "center" in work.rows:
            beta = 1 / work.rows["strength"][:, None]
            solved = proximal_step_quadratic(work.rows["center"], self.h[who], solved, beta)
        return {**work.rows, "w": solved}

    def evaluate(self, w, who=None, split="test"):
        """No accuracy (NaN), since there are no labels; and the loss F_i(w_i)."""
        who = self.everyone if who is None else who
        loss = 0.5 * (self.h[who] * (w - self.c[who]) ** 2).sum(1)
        return torch.full_like(loss, torch.nan), loss

    def describe(self):
        """What a run must agree on to be resumed."""
        return {"toy": type(self).__name__, "h": self.h.tolist(), "c": self.c.tolist()}


class QuadraticClient:
    """The ``StepClient`` with the loss ½·Σ h·(w − c)².  It has no inputs, so no outputs either."""

    def __init__(self, h, c, work: Work, lr: float):
        self.h, self.c, self.step = h, c, work.step
        self.t, self.numbers = 0, work.numbers
        self.lr = lr if work.lr is None else work.lr
        self.lengths: Sequence[int] = (len(c),)

    def loss(self, w: Tensor, batch: Batch) -> Tensor:
        return 0.5 * (self.h * (w - self.c) ** 2).sum(-1)

    tested_loss = losses = loss

    def loss_above(self, below: Tensor, top: Tensor, batch: Batch) -> Tensor:
        return self.loss(torch.cat([below, top]), batch)

    def logits(self, *given: Any, **named: Any) -> Any:
        raise ValueError(
            f"step {self.step!r} looks at what a model puts out, and quadratic clients have no "
            "inputs and no outputs: run it on a pfl_lib.Federation"
        )

    features = in_training = features_and_logits = loss_of = logits

    def of_each_sample(self, function: Callable[..., Tensor], *samples: Tensor) -> Tensor:
        return torch.func.vmap(function)(*samples)

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        return self.h * (w - self.c)

    def grad_of(self, objective: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
        return torch.func.grad(objective, has_aux=has_aux)

    def grad_and_loss(self, objective: Callable[[Tensor], Tensor], w: Tensor) -> tuple[Any, Any]:
        return torch.func.grad_and_value(objective)(w)

    def move(self, s: Mapping[str, Tensor], g: Tensor, name: str = "w") -> dict[str, Tensor]:
        return {name: s[name] - self.lr * g}


class DescentFederation(QuadraticFederation):
    """The quadratic clients again, who now train by ``steps`` gradient steps from their start.

    An epoch is one step here, so SPFL and the asynchronous methods run on it too, and so do local
    steps of a method's own, as long as they do not look at a model's outputs.

    >>> import pfl_lib
    >>> fed = DescentFederation(torch.ones(1, 1), torch.tensor([[1.0]]), lr=0.5, steps=2)
    >>> pfl_lib.train(fed, fed.initial(), fed.everyone)
    tensor([[0.7500]])
    """

    def __init__(self, h, c, start=None, lr=0.1, steps=1):
        super().__init__(h, c, start)
        self.lr, self.steps = _check.positive("lr", lr), _check.whole("steps", steps)
        self.settings = Settings(lr=lr, optimizer="sgd", batch_size=1, epochs=steps, seed=0)

    def perform(self, work, who):
        """Any local step that needs no outputs or features; one batch is all a client has."""
        if work.optimizer not in (None, "sgd"):
            raise ValueError(f"a DescentFederation descends by SGD, not by {work.optimizer!r}")
        epochs = self.steps if work.epochs is None else work.epochs
        count = math.ceil(epochs / work.group) if work.steps is None else work.steps
        after = []
        for row, i in enumerate(who.tolist()):
            client = QuadraticClient(self.h[i], self.c[i], work, self.lr)
            s = {name: rows[row] for name, rows in work.rows.items()} | dict(work.shared)
            draw = keyed_generator(self.settings.seed, work.tag, self.k, i, "noise")
            for uniform in torch.rand(count, work.noise, generator=draw).to(self.dtype):
                one = torch.ones(1, dtype=self.dtype)
                batch = Batch(one, one, one, uniform)  # the loss looks at nothing but w
                for _ in range(work.repeats):
                    s |= STEPS[work.step](
                        s, batch if work.group == 1 else (batch,) * work.group, client
                    )
                    client.t += 1
            after.append(s)
        return {name: torch.stack([s[name] for s in after]) for name in work.rows}

    def describe(self):
        return {**super().describe(), "lr": self.lr, "steps": self.steps}


def iterate(algorithm, fed, rounds):
    """The states after 0, 1, …, ``rounds`` rounds of ``algorithm`` with everyone taking part.

    >>> from pfl_lib import algorithm
    >>> fed = QuadraticFederation(h=torch.ones(2, 1), c=torch.tensor([[0.0], [3.0]]))
    >>> len(iterate(algorithm("separate"), fed, rounds=3))
    4
    """
    states = [algorithm.start(fed)]
    for k in range(rounds):
        states.append(algorithm.round(states[-1], fed.at(k), fed.everyone))
    return states
