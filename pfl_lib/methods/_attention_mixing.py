"""What FedAMP and HeurFedAMP share: the server mixes a message for each client, and the client
trains near its message."""

from dataclasses import dataclass

import torch

from pfl_lib import _check, _schedules
from pfl_lib.methods._hyper import choice, hyper, whole
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


def around_self(ratio, self_weight):
    """Rows of non-negative scores (zero diagonal) made into shares of 1 − self_weight."""
    self_weight = checked(_check.between, "self_weight", self_weight, 0, 1)
    total = ratio.sum(1)
    heard = total > 0
    mine = torch.where(heard, self_weight * torch.ones_like(total), 1)
    share = ratio / torch.where(heard, total, 1)[:, None]
    return ((1 - mine)[:, None] * share).diagonal_scatter(mine)


def messages_to_newcomers(members, own, weights):
    """The message for each newcomer with the model ``own[n]``, who hears all members and itself.

    ``weights`` makes the collaboration weights of a stack of models; newcomers do not hear each
    other.
    """
    together = (torch.cat([members, w[None]]) for w in own)
    return torch.cat([mix(weights(all_of_them)[-1:], all_of_them) for all_of_them in together])


def _share(name, value):
    return _check.between(name, value, 0, 1)


def own_share(default):
    """The field ``self_weight``: a share, optionally by round or by client."""
    bad = [one for one in _schedules.BAD if one != -1]
    return hyper(
        default,
        lambda name, value: _schedules.check_value(name, value, _share),
        (None, [1], -0.1, 1.1, (1.5, 0.5, 10), *bad, *_schedules.BAD_CLIENTS),
    )


def own_weight(self_weight, k, w):
    """The self-weight in round k: a number, or one per client."""
    return _schedules.for_clients("self_weight", self_weight, k, w, _share)


@dataclass(frozen=True)
class MessagePassing(Algorithm):
    """Mix, then minimise F_i(w) + ‖w − u_i‖²/(2β).

    ``prox_beta`` is β: a number; (first, factor, every) for first·factor^⌊k/every⌋ in round k;
    ("power", first, p) for first/(k + 1)^p; or ("clients", ...) with one of these per client, or a
    tensor.  ``begin`` says where local training starts: at the message "u", or at the client's own
    model "w".  The papers do not say; with their β of 10⁴ a start at w would hardly be affected by
    the message.  ``pretrain_rounds`` is how many rounds clients train alone before they first hear
    each other, as the first version of the paper has it (Sec. 3.1); 0 starts all of them at one
    random model.  It matters: clients that have grown apart find similar ones with a width σ with
    which those that start together do not. An absent client neither receives a message nor trains;
    its last model is still mixed into the others' messages.
    """

    prox_beta: float | tuple = hyper(
        PAPER_BETA, _schedules.check_value, (None, 0, *_schedules.BAD, *_schedules.BAD_CLIENTS)
    )
    begin: str = choice("u", ("u", "w"))
    pretrain_rounds: int = whole(0, at_least=0)
    shared, private = "their models, pairwise", "the whole model"
    tested = "the client's own model w, trained"
    newcomer = "a model trained alone, then a message from the members, then a round near it"
    handed = "message"

    def attend(self, w, k):
        """The collaboration weights ξ of round k, and the strength 1/β of the pull."""
        raise NotImplementedError

    def start(self, fed):
        w = fed.initial()
        for k in range(self.pretrain_rounds):
            w = train(fed.at(k), w, fed.everyone, tag="pre-train")
        return State(w=w, u=w, xi=torch.eye(fed.m, dtype=w.dtype, device=w.device))

    def pull(self, w, k):
        """The strength 1/β in round k: a number, or one per client."""
        return 1 / _schedules.for_clients("prox_beta", self.prox_beta, k, w)

    def download(self, state, fed, who):
        xi, strength = self.attend(state.w, fed.k)
        if isinstance(strength, torch.Tensor) and strength.ndim:
            strength = strength[who]
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

    def __post_init__(self):
        for name in ("prox_beta", "self_weight"):
            object.__setattr__(self, name, _schedules.plain(getattr(self, name)))
        super().__post_init__()

    def why_not_mixed(self):
        if self.begin == "u":
            return ""
        return (
            f"algorithm must begin at the message for ALA to mix it: {self.label} with "
            "begin='w' starts from the client's own model; allowed is begin='u'"
        )
