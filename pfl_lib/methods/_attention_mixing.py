"""What FedAMP and HeurFedAMP share: the server mixes a message for each client, and the client
trains near its message."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._hyper import choice, hyper
from pfl_lib.methods._tensors import checked
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.work import Prox, train

# β in round k as the papers ran it (v1, Appendix C.1): 10⁴·0.1^⌊k/30⌋.
PAPER_BETA = (1e4, 0.1, 30)


def mix(weights, W):
    """u_i = Σ_j ξ_ij w_j: the messages, one row per client.

    v1 Eq. (6), AAAI Eq. (5); also the aggregation of HeurFedAMP (8) and FedACS (4).

    Equation label: eq-fedamp-message

    >>> mix(torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[1., 2.],
            [0., 4.]])
    """
    return weights @ W


def scheduled(value, k):
    """β in round k: a constant, or (first, factor, every) for first·factor^⌊k/every⌋."""
    if isinstance(value, (int, float)):
        return _check.positive("prox_beta", value)
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise ValueError(f"prox_beta must be a number or (first, factor, every), got {value!r}")
    first, factor, every = (_check.positive("each part of prox_beta", v) for v in value)
    return first * factor ** (k // every)


def around_self(ratio, self_weight):
    """Rows of non-negative scores (zero diagonal) made into shares of 1 − self_weight."""
    self_weight = checked(_check.between, "self_weight", self_weight, 0, 1)
    total = ratio.sum(1)
    heard = total > 0
    mine = torch.where(heard, self_weight * torch.ones_like(total), 1)
    share = ratio / torch.where(heard, total, 1)[:, None]
    return (1 - mine)[:, None] * share + torch.diag(mine)


def messages_to_newcomers(members, own, weights):
    """The message for each newcomer with the model ``own[n]``, who hears all members and itself.

    ``weights`` makes the collaboration weights of a stack of models; newcomers do not hear each
    other.
    """
    together = (torch.cat([members, w[None]]) for w in own)
    return torch.cat([mix(weights(all_of_them)[-1:], all_of_them) for all_of_them in together])


@dataclass(frozen=True)
class MessagePassing(Algorithm):
    """Mix, then minimise F_i(w) + ‖w − u_i‖²/(2β).

    ``prox_beta`` is β: a number, or (first, factor, every) for first·factor^⌊k/every⌋.
    ``begin`` says where local training starts: at the message "u", or at the client's own model
    "w".  The papers do not say; with their β of 10⁴ a start at w would hardly feel the message.
    A client that stays away neither hears nor trains; its last model still speaks to the others.
    """

    prox_beta: float | tuple = hyper(
        PAPER_BETA,
        lambda name, value: scheduled(value, 0),
        ("a", None, 0, -1, float("nan"), True, (1, 2), (1, 2, 0)),
    )
    begin: str = choice("u", ("u", "w"))
    shared, private = "their models, pairwise", "the whole model"
    tested = "the client's own model w, trained"
    newcomer = "a model trained alone, then a message from the members, then a round near it"
    handed = "message"

    def attend(self, w, k):
        """The collaboration weights ξ of round k, and the strength 1/β of the pull."""
        raise NotImplementedError

    def start(self, fed):
        w = fed.initial()
        return State(w=w, u=w, xi=torch.eye(fed.m, dtype=w.dtype, device=w.device))

    def download(self, state, fed, who):
        xi, strength = self.attend(state.w, fed.k)
        u = mix(xi, state.w)  # the messages
        begin = u if self.begin == "u" else state.w
        return State(w=begin[who], u=u, xi=xi, strength=strength)

    def local(self, state, received, fed, who):
        pull = Prox(received.u[who], received.strength)
        return received.set(w=train(fed, received.w, who, prox=pull))

    def upload(self, state, done, fed, who):
        return state.put(who, w=done.w).set(u=done.u, xi=done.xi)

    def extra_models(self, state, fed):
        return {"u": state.u}

    def newcomer_models(self, state, fed, newcomers):
        everyone = newcomers.everyone
        own = train(newcomers, newcomers.initial(), everyone, tag="newcomer")
        u = messages_to_newcomers(state.w, own, lambda w: self.attend(w, fed.k)[0])
        begin, strength = (u if self.begin == "u" else own), self.attend(state.w, fed.k)[1]
        return train(newcomers, begin, everyone, prox=Prox(u, strength), uploaded=False)

    def why_not_mixed(self):
        if self.begin == "u":
            return ""
        return (
            f"algorithm must begin at the message for ALA to mix it: {self.label} with "
            "begin='w' starts from the client's own model; allowed is begin='u'"
        )
