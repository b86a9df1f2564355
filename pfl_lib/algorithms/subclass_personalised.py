"""What SPFL and SPFL-w share: the reset, the probe, and the similarity of the clients' updates."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.algorithms.stages import split_stages
from pfl_lib.formulas import sngs


@dataclass(frozen=True)
class SubclassPersonalised(Algorithm):
    """Every Γ rounds all models become their mean, and a probe from there measures whose updates
    point the same way; in between each client keeps a model of its own.

    ``period`` is Γ.  ``steps_per_batch``: two SGD steps on every batch, or one.  ``stages``: 2 has
    weights of their own for the last layer and for all before it, 1 has one set.  ``temperature``
    divides the cosines before the softmax (the paper has 1).  ``local_head`` keeps the last layer
    at home: it is trained, never sent, never reset.
    """

    period: int = 10
    steps_per_batch: int = 2
    stages: int = 2
    temperature: float = 1.0
    local_head: bool = False
    paper = "the SPFL paper, Algorithm 1"
    tested = "the client's own model, as the server sends it back"
    partial = False  # the mean and the probe need everyone

    def mix(self, w, trained, S, parts, fed):
        """The server's step from the models ``w`` before and ``trained`` after local work."""
        raise NotImplementedError

    def start(self, fed):
        w = fed.initial()
        S = w.new_full((len(self.parts(fed)), fed.m, fed.m), 1 / fed.m)
        return State(w=w, trained=w, S=S)

    def round(self, state, fed, who):
        w, S, parts = state.w, state.S, self.parts(fed)
        if fed.k % self.period == 0:
            w = w.clone()
            for part in parts:
                w[:, part] = w[:, part].mean(0)
            probe = fed.train(w, who, repeats=self.steps_per_batch, tag="probe")
            S = sngs(w - probe, parts, self.temperature)  # (2), (3), (6)
        trained = fed.train(w, who, repeats=self.steps_per_batch)
        return State(w=self.mix(w, trained, S, parts, fed), trained=trained, S=S)

    def also(self, state, fed):
        return {"before mixing": state.trained}

    def sent(self, fed, who, round_):
        shared = sum(part.stop - part.start for part in self.parts(fed))
        exchanges = 2 if round_ % self.period == 0 else 1  # the probe is one more
        return 2 * shared * len(who) * exchanges

    def parts(self, fed):
        """The columns of each stage; those in no stage stay at home."""
        if not self.local_head:
            return split_stages(fed, self.stages)
        if len(fed.layers) == 1:
            raise ValueError(
                "local_head=True keeps the last layer at home, and this model has no other layer"
            )
        return split_stages(fed, 2)[:1]

    def __post_init__(self):
        _check.whole("period", self.period)
        _check.one_of("steps_per_batch", self.steps_per_batch, (1, 2))
        _check.one_of("stages", self.stages, (1, 2))
        _check.positive("temperature", self.temperature)
        _check.one_of("local_head", self.local_head, (False, True))
