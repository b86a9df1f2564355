"""FedACS: listen only to clients whose model points the same way (Chen et al., Algorithm 1)."""

import warnings
from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import cosine_similarities, fedacs_select, fedacs_threshold, mix


@dataclass(frozen=True)
class FedACS(Algorithm):
    """The server mixes those models whose cosine is above the p-quantile of all cosines.

    The participants of a round hear each other only, and each always hears itself: at a common
    start all cosines are 1 and the printed strict test would leave nobody.  ``negatives`` says what
    becomes of negative cosines that pass the threshold: "drop" them, or "keep" them as printed.
    The paper gives no values; p = 0.5 is ours.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedacs", p=0.5)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    p: float = 0.5
    negatives: str = "drop"
    name = "fedacs"
    label = "FedACS"
    paper = "Chen et al., FedACS, Algorithm 1"
    tested = "the client's own model w, trained"

    def start(self, fed):
        w = fed.initial()
        xi = torch.eye(fed.m, dtype=w.dtype, device=w.device)
        return State(w=w, u=w, xi=xi, delta=w.new_ones(()))

    def round(self, state, fed, who):
        S, delta, xi = self.attend(state.w[who])
        self.warn(S, delta)
        u = mix(xi, state.w[who])
        w = fed.train(u, who)  # (5), several steps
        everyone = torch.eye(fed.m, dtype=xi.dtype, device=xi.device)
        everyone[who[:, None], who] = xi
        return state.put(who, w=w, u=u).set(xi=everyone, delta=delta)

    def attend(self, w):
        """Cosines, threshold and weights among the participants."""
        S = cosine_similarities(w)
        delta = fedacs_threshold(S, self.p)
        return S, delta, fedacs_select(S, delta, self.negatives)  # (4)

    def download(self, state, fed, who):
        return mix(self.attend(state.w[who])[2], state.w[who])

    def also(self, state, fed):
        return {"u": state.u}

    def warn(self, S, delta):
        """Say it where the printed rule has no sound meaning."""
        n = len(S)
        if n > 1 and self.p >= n / (n + 1):
            warnings.warn(
                f"p = {self.p:g} with {n} clients puts the threshold at 1, which only a client's "
                f"own model reaches: this is Separate training; take p < {n / (n + 1):.4g}",
                stacklevel=3,
            )
        if ((delta < S) & (S < 0)).any():
            what = "they are left out" if self.negatives == "drop" else "their weights are negative"
            warnings.warn(
                f"the threshold {float(delta):.3g} lets negative cosines pass; {what}; "
                "a larger p raises it",
                stacklevel=3,
            )

    def __post_init__(self):
        _check.between("p", self.p, 0, 1)
        _check.one_of("negatives", self.negatives, ("drop", "keep"))
