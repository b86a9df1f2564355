"""Toy problems small enough to solve exactly, on which the theorems and errata are tried."""

import copy

import torch

from pfl_lib.formulas import proximal_step_quadratic


class QuadraticFederation:
    """Clients with F_i(w) = ½·Σ_q h_iq·(w_q − c_iq)², for which local training has an answer.

    It has the verbs of ``Federation`` that FedAMP, HeurFedAMP and Separate need, so the very same
    algorithm objects run on it; ``train`` returns the exact minimiser instead of some epochs of
    descent.

    >>> fed = QuadraticFederation(h=torch.ones(2, 1), c=torch.tensor([[0.0], [3.0]]))
    >>> fed.train(fed.initial(), fed.everyone)
    tensor([[0.],
            [3.]])
    """

    def __init__(self, h, c, start=None):
        self.h, self.c = h, c
        self.m, self.d = c.shape
        self.start = torch.zeros_like(c) if start is None else start
        self.sizes = torch.ones(self.m, dtype=c.dtype)
        self.device, self.dtype, self.k = c.device, c.dtype, 0

    @property
    def everyone(self):
        return torch.arange(self.m)

    def initial(self):
        return self.start

    def at(self, round_):
        here = copy.copy(self)
        here.k = round_
        return here

    def train(self, start, who, *, prox=None):
        """argmin F_i, plus (strength/2)·‖w − centre‖² where a proximal term is given."""
        if prox is None:
            return self.c[who]
        return proximal_step_quadratic(prox.centre, self.h[who], self.c[who], 1 / prox.strength)

    def loss(self, w):
        """F_i(w_i) of every client."""
        return 0.5 * (self.h * (w - self.c) ** 2).sum(1)


def iterate(algorithm, fed, rounds):
    """The states after 0, 1, …, ``rounds`` rounds of ``algorithm`` with everyone taking part."""
    states = [algorithm.start(fed)]
    for k in range(rounds):
        states.append(algorithm.round(states[-1], fed.at(k), fed.everyone))
    return states
