"""SCAFFOLD: each client knows its drift and takes it out (Karimireddy et al., ICML 2020)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.algorithms.sgd import plain_sgd
from pfl_lib.formulas import scaffold_control, scaffold_gradient, scaffold_server
from pfl_lib.training import Work


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """One model for all; the controls c_i and c, mean gradients, correct every local step.

    Controls start at zero.  ``lr_server`` is η_g, ``lr`` is η_l (None: the federation's).  Clients
    count alike whatever their sizes, as in the paper.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("scaffold")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    lr_server: float = 1.0
    lr: float | None = None
    name = "scaffold"
    label = "SCAFFOLD"
    paper = "Karimireddy et al. 2020, Algorithm 1, option II"
    tested = "the global model"

    def start(self, fed):
        plain_sgd(self, fed)  # refuses an Adam federation before the first round
        x = fed.initial()
        return State(x=x[0], c=0 * x[0], c_local=0 * x)

    def round(self, state, fed, who):
        x, c, c_local = state.x, state.c, state.c_local[who]
        sgd = plain_sgd(self, fed)
        drift = scaffold_gradient(0, c_local, c)  # (3): added to every gradient
        rows = {"w": x.expand(len(who), -1), "correction": drift, "steps": 0 * fed.sizes[who]}
        y = fed.perform(Work(rows, **sgd), who)
        c_new = scaffold_control(c_local, c, x, y["w"], sgd["lr"], y["steps"])  # (4)
        x, c = scaffold_server(x, c, y["w"], c_local, c_new, fed.m, self.lr_server)  # (5)
        return state.put(who, c_local=c_new).set(x=x, c=c)

    def personal(self, state, fed):
        return state.x.expand(fed.m, -1)

    def sent(self, fed, who, round_):
        return 4 * fed.d * len(who)  # model and control, down and up

    def __post_init__(self):
        _check.positive("lr_server", self.lr_server)
        if self.lr is not None:
            _check.positive("lr", self.lr)
