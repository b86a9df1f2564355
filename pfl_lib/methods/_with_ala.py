"""ALA on other methods: FedALA's applicability table (Zhang et al., AAAI 2023, Table 4)."""

from dataclasses import dataclass, field

from pfl_lib.methods.base import Algorithm, as_method
from pfl_lib.methods.fedala import AdaptiveLocalAggregation


def with_ala(algorithm, **hyper):
    """``algorithm`` with ALA in front of its local work; ``hyper`` as in FedALA.

    >>> import pfl_lib
    >>> with_ala(pfl_lib.algorithm("ditto", lam=0.5), ala_layers=1).label
    'Ditto+ALA'
    """
    return WithALA(base=algorithm, **hyper)


@dataclass(frozen=True)
class WithALA(AdaptiveLocalAggregation):
    """In the place of the model that ``base`` sends, each client starts from its own mix.

    Local training starts at the mix, and a penalty pulls to it; all else is the base's.  The model
    trained from there is the client's own in its next mix.  The paper shows no algorithm for its
    Table 4; where a method does not send a whole global model, we read:

    - FedAMP, HeurFedAMP, FedACS: the message u_i is sent.  Training starts at the mix; the penalty
      still pulls to u_i, since it is what couples the clients.
    - FedRep: only the body is sent, so the top p layers are those below the head.
    - PartialFed: every batch chooses, layer by layer, between the mix and the client's own copy.

    >>> import pfl_lib
    >>> method = WithALA(base=pfl_lib.algorithm("fedprox", mu=0.01), max_epochs=5)
    >>> method.label
    'FedProx+ALA'
    >>> history = pfl_lib.run(method, pfl_lib.example(), rounds=2, progress=False)
    >>> history.last > 0.3
    True
    """

    base: Algorithm = field(kw_only=True)
    paper = "Zhang et al., AAAI 2023, Table 4"

    def start(self, fed):
        return self.base.start(fed).set(**self.memory(fed))

    def download(self, state, fed, who):
        return self.mixed(state, self.base.download(state, fed, who), fed, who)

    def local(self, state, received, fed, who):
        return received.set(**self.base.local(state, received, fed, who))

    def upload(self, state, done, fed, who):
        return self.remember(self.base.upload(state, done, fed, who), done, who)

    def personal(self, state, fed):
        if "x" in state:  # each client's own mix in the place of the global model
            state = state.set(x=self.mix_to_test(state, fed))
        return self.base.personal(state, fed)

    def extra_models(self, state, fed):
        shared = {"global": state.x.expand(fed.m, -1)} if "x" in state else {}
        return {**self.base.extra_models(state, fed), **shared}

    def newcomer_models(self, state, fed, newcomers):
        # newcomers have nothing of their own to mix yet
        return self.base.newcomer_models(state, fed, newcomers)

    def sent(self, fed, who, k):
        return self.base.sent(fed, who, k)

    def handed_layers(self, fed):
        return self.base.handed_layers(fed)

    name = property(lambda self: f"{self.base.name}+ala")
    label = property(lambda self: f"{self.base.label}+ALA")
    partial = property(lambda self: self.base.partial)
    newcomer = property(lambda self: self.base.newcomer)

    @property
    def tested(self):  # type: ignore[override]
        mix = ", its own mix in the global model's place"
        return self.base.tested + mix * (self.base.handed == "global model")

    def __post_init__(self):
        object.__setattr__(self, "base", as_method("algorithm", self.base))
        super().__post_init__()
        if refused := self.base.why_not_mixed():
            raise ValueError(refused)
