"""PLGA: personalized leap gradient approximation (the SPFL paper, Algorithm 2)."""

from dataclasses import dataclass

import torch

from pfl_lib.methods._hyper import choice
from pfl_lib.methods._stages import split_stages, spread
from pfl_lib.methods._tensors import same_shape
from pfl_lib.methods.lga import LGA, straggler_similarity


def plga_personal(w_pred, w_now, similarity, stages=None):
    """w_p = (1 − S̃)·ŵ + S̃·w_now: between the predicted and the global model.

    PLGA Eqs. (12), (14), in which w^{t0} cancels. ``similarity`` is S̃ of ``straggler_similarity``
    for the same stages, so the global model's share never exceeds one half.

    Equation label: eq-plga-personal

    >>> plga_personal(torch.tensor([0.0]), torch.tensor([4.0]), torch.tensor(0.25))
    tensor([1.])
    """
    same_shape(w_pred=w_pred, w_now=w_now)
    share = spread(similarity, stages, like=w_pred)
    return w_pred + share * (w_now - w_pred)


@dataclass(frozen=True)
class PLGA(LGA):
    """LGA on the server; each arriving client gets a mix of its predicted model and the global one,
    which it never sends back.

    ``stages`` as in SPFL.  ``mixes`` says between what the personal model lies: the "predicted"
    model and the global one of now (Eqs. 12 and 14), or, as in the authors' public code, the
    client's model as "trained" and the global one of a round after the pull; the server is the
    same.  A client that is on time gets its personal model one round on (τ = 1):
    the new global model is then both its w_next and its w_now.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("plga")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.5
    True
    """

    stages: int = choice(2, (1, 2))
    mixes: str = choice("predicted", ("predicted", "trained"))
    name, label = "plga", "PLGA"
    order = 5
    place = (1, 2, 2)
    idea = (
        "LGA, and each client gets a personal model: a mixture of its leaped model and the global "
        "one, by how well its own direction agrees with the server's."
    )
    note = (
        "The global share never exceeds one half. Personal models do not feed back into the "
        "average."
    )
    equations = ["eq-lga-similarity", "eq-lga-leap", "eq-plga-personal"]
    paper = "the SPFL paper, Algorithm 2"
    private, weights_by, cost = (
        "a mixture with the global one",
        "angle of update and progress",
        "3Σ",
    )
    tested = "the client's personal model of its last arrival (the server's is tested beside it)"
    newcomer = "the server's model, until its first arrival"

    def start(self, fed):
        state = super().start(fed)
        return state.set(p=state.w)

    def gather(self, state, fed, here, late):
        new = super().gather(state, fed, here, late)
        on_time = (late == 0)[:, None]
        w_next = torch.where(on_time, new.x, state.next[here])
        w_now = torch.where(on_time, new.x, state.x)
        stages = self.parts(fed)
        similarity = straggler_similarity(state.pull[here], w_next, state.w[here], stages)[1]
        if self.mixes == "trained":
            return new.put(here, p=plga_personal(state.w[here], w_next, similarity, stages))
        w_pred = self.predict(state, fed, here, w_next, w_now)
        return new.put(here, p=plga_personal(w_pred, w_now, similarity, stages))  # (14)

    def parts(self, fed):
        return split_stages(fed, self.stages)

    def personal(self, state, fed):
        return state.p

    def extra_models(self, state, fed):
        return {"server": state.x.expand(fed.m, -1), "client": state.w}

    def sent(self, fed, who, k):
        personal = fed.d * len(self.timetable(fed).arrivals(k))
        return super().sent(fed, who, k) + personal
