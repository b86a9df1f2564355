"""LGA: leap gradient approximation for late clients (the SPFL paper, Sec. 3.2, Eqs. 8-11).

Where would a straggler's model be now?  Four models, by the names of what happened: ``w_pull`` the
global model the straggler pulled (printed w^{t0}), ``w_next`` the global model one round later
(w^{t1}), ``w_now`` the global model at its arrival (w^{tτ}), ``w_local`` what it trained
(w_k^{t0}).  Vectors of d numbers, or rows.
"""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._asynchronous import LateAverage
from pfl_lib.methods._hyper import choice, non_negative
from pfl_lib.methods._stages import parts, spread
from pfl_lib.methods._tensors import checked, same_shape

BASES = ("now", "pull")
RULES = ("printed", "delay_compensated", "none")


def straggler_similarity(w_pull, w_next, w_local, stages=None):
    """S = cos(w_next − w_pull, w_local − w_pull) and S̃ = e^S/(e + e^S) = 1/(1 + e^{1−S}).

    PLGA Eqs. (8), (9), (13): did the straggler go where the server went? S̃ lies in [1/(1 + e²),
    ½]. No move at all counts as S = 0. Returns (S, S̃): one number per client, and with stages one
    per stage along the last axis.

    Equation label: eq-lga-similarity

    >>> zero, there = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> straggler_similarity(zero, there, there)
    (tensor(1.), tensor(0.5000))
    """
    same_shape(w_pull=w_pull, w_next=w_next, w_local=w_local)
    server, client = w_next - w_pull, w_local - w_pull
    each = [_cosine(server[..., s], client[..., s]) for s in parts(stages)]
    S = each[0] if stages is None else torch.stack(each, -1)
    return S, torch.sigmoid(S - 1)


def leap_term(
    w_pull, w_next, w_now, w_local, rule="printed", lr=None, local_steps=None, stages=None
):
    """The correction for what the global model did meanwhile, with Δ = w_local − w_pull.

    PLGA Eqs. (10)-(11). "printed": S̃·Δ⊙Δ⊙(w_now − w_next). "delay_compensated": the Taylor term
    it stands for, −S̃/(βE)·Δ⊙Δ⊙(w_now − w_pull), since E steps of length β = ``lr`` give
    Δ ≈ −βE·g and g(w') ≈ g(w) + H(w' − w) with H ≈ diag(g⊙g). The printed one has the other sign,
    no 1/(βE), and starts from w_next. "none": zero.

    Equation label: eq-lga-leap-term

    >>> pull, next_, now, local = torch.tensor([[0.0], [0.0], [1.0], [2.0]])
    >>> leap_term(pull, next_, now, local)
    tensor([1.0758])
    """
    _check.one_of("rule", rule, RULES)
    same_shape(w_pull=w_pull, w_next=w_next, w_now=w_now, w_local=w_local)
    moved = w_local - w_pull
    if rule == "none":
        return torch.zeros_like(moved)
    similarity = straggler_similarity(w_pull, w_next, w_local, stages)[1]
    trust = spread(similarity, stages, like=moved)
    if rule == "printed":
        return trust * moved * moved * (w_now - w_next)
    if lr is None or local_steps is None:
        raise ValueError(
            "lr and local_steps must be given for rule='delay_compensated', "
            f"got lr={lr!r}, local_steps={local_steps!r}"
        )
    lr = checked(_check.positive, "lr", lr)
    local_steps = checked(_check.whole, "local_steps", local_steps)
    return -trust / (lr * local_steps) * moved * moved * (w_now - w_pull)


def leap(
    w_pull,
    w_next,
    w_now,
    w_local,
    base="now",
    rule="printed",
    lr=None,
    local_steps=None,
    stages=None,
    scale=1.0,
):
    """ŵ = base + Δ + λ · leap term: the straggler's model, predicted for the round it arrives in.

    PLGA Eq. (11) with base "now" (w_now; the default), Eq. (10) with base "pull" (w_pull, which
    stays stale). For ``rule``, ``lr`` and ``local_steps`` see ``leap_term``. One round late
    (w_now = w_next) the printed leap is zero and ŵ = w_next + Δ. ``scale`` is λ, printed as 1;
    delay compensation, where the leap comes from, tunes it.

    Equation label: eq-lga-leap

    >>> pull, next_, now, local = torch.tensor([[0.0], [0.5], [0.5], [2.0]])
    >>> leap(pull, next_, now, local)
    tensor([2.5000])
    """
    _check.one_of("base", base, BASES)
    term = leap_term(w_pull, w_next, w_now, w_local, rule, lr, local_steps, stages)
    scale = _check.non_negative("scale", scale)
    return (w_now if base == "now" else w_pull) + (w_local - w_pull) + scale * term


def _cosine(a, b):
    product = (a * b).sum(-1)
    # Each norm on its own: the product of two squared norms would underflow for small moves.
    a, b = (a * a).sum(-1), (b * b).sum(-1)
    moved = (a > 0) & (b > 0)
    length = torch.where(moved, a, 1).sqrt() * torch.where(moved, b, 1).sqrt()
    return torch.where(moved, product / length, 0).clamp(-1, 1)


@dataclass(frozen=True)
class LGA(LateAverage):
    """Before the average, a late model is moved to where it would be had it been trained now.

    ``base``: "now" adds the client's move to the present global model (Eq. 11), "pull" to the one
    it pulled (Eq. 10).  ``rule`` is the leap term: "printed", "delay_compensated" (sign, scale and
    base point of the expansion it stands for; SGD only), or "none".  ``leap_scale`` multiplies it.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("lga")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.5
    True
    """

    weighting: str = choice("equal", ("sizes", "equal"))
    base: str = choice("now", BASES)
    rule: str = choice("printed", RULES)
    leap_scale: float = non_negative(1.0)
    name, label = "lga", "LGA"
    order = 4
    place = (1, 0, 1)
    idea = (
        "A late model is first moved to where it would be had its client started from today's "
        "model: the leap, a first-order guess with the client's own update."
    )
    note = (
        '`base="pull"` is Eq. (10), `base="now"` Eq. (11); `rule` chooses the printed leap, the '
        "delay-compensated one, or none. The formulas are `straggler_similarity`, `leap_term` and "
        "`leap` of `pfl_lib.formulas`."
    )
    equations = ["eq-lga-similarity", "eq-lga-leap-term", "eq-lga-leap"]
    paper = "the SPFL paper, Eqs. (8)-(11)"
    weights_by = "equal weights, late models moved on"

    def start(self, fed):
        if self.rule == "delay_compensated" and fed.settings.optimizer != "sgd":
            raise ValueError(
                "rule='delay_compensated' reads gradients off SGD steps; "
                f"the federation trains with {fed.settings.optimizer!r}"
            )
        state = super().start(fed)
        return state.set(next=state.pull)

    def download(self, state, fed, who):
        received = super().download(state, fed, who)
        one_round_ago = (received.pulled == fed.k - 1)[:, None]  # still away: this is their w_next
        return received.set(next=torch.where(one_round_ago, state.x, state.next))

    def gather(self, state, fed, here, late):
        w_pred = self.predict(state, fed, here, state.next[here], state.x)
        w_pred = torch.where((late > 0)[:, None], w_pred, state.w[here])  # on time: as trained
        return state.set(x=self.average(w_pred, fed, here))

    def predict(self, state, fed, here, w_next, w_now):
        """The models of ``here``, predicted for the round whose global model is ``w_now``."""
        w_pull, w_local = state.pull[here], state.w[here]
        w_now, lr, steps = w_now.expand_as(w_local), fed.settings.lr, self.steps(fed, here)
        rest = self.base, self.rule, lr, steps, self.parts(fed), self.leap_scale
        return leap(w_pull, w_next, w_now, w_local, *rest)

    def steps(self, fed, here):
        """E: how many SGD steps each of the clients ``here`` made, as a column."""
        if self.local_steps is not None:
            return self.local_steps
        batches = (fed.sizes[here] / fed.settings.batch_size).ceil()
        return (fed.settings.epochs * batches)[:, None]

    def parts(self, fed):
        """The stages with similarities of their own: here none."""
        return None
