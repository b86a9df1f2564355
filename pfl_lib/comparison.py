"""The same table in every chapter: what is shared, what is personal, who decides, what it costs."""

from pfl_lib import _check, algorithms
from pfl_lib._show import Shown

#: name: (what clients share, what stays personal, who decides the weights, parameters a round)
FACTS = {
    "separate": ("nothing", "the whole model", "nobody", "0"),
    "fedavg": ("one model", "nothing", "sample counts", "2Σ"),
    "fedavg-2step": ("one model", "nothing", "sample counts", "2Σ"),
    "fedprox": ("one model", "nothing", "sample counts", "2Σ"),
    "scaffold": ("one model, control vectors", "a control vector", "equal weights", "4Σ"),
    "fedavg-ft": ("one model", "a fine-tuned copy", "sample counts", "2Σ"),
    "fedprox-ft": ("one model", "a fine-tuned copy", "sample counts", "2Σ"),
    "fedavg-c": ("one model", "a fine-tuned copy, every round", "sample counts", "2Σ"),
    "fedprox-c": ("one model", "a fine-tuned copy, every round", "sample counts", "2Σ"),
    "fedupdate": ("one model", "a copy some steps further", "sample counts", "2Σ"),
    "per-fedavg": ("one starting point", "one step from it", "sample counts", "2Σ"),
    "pfedme": ("one centre", "a model near the centre", "sample counts", "2Σ"),
    "ditto": ("one model", "a second model, held near it", "sample counts", "2Σ"),
    "apfl": ("one model", "a second model and a mixing weight", "each client's loss", "2Σ"),
    "fedrep": ("the body", "the head", "sample counts", "2·body"),
    "fedamp": ("their models, pairwise", "the whole model", "distances between models", "2Σ"),
    "heurfedamp": ("their models, pairwise", "the whole model", "angles between models", "2Σ"),
    "fedacs": ("their models, pairwise", "the whole model", "angles above a quantile", "2Σ"),
    "fedala": ("one model", "the model, and weights of its top layers", "each client's loss", "2Σ"),
    "fedphp": ("one model", "a moving average of own models", "a schedule", "2Σ"),
    "fedfomo": ("their models, pairwise", "the whole model", "validation losses", "(1+M)Σ"),
    "apple": ("core models", "a mixture of all cores", "each client's loss", "(1+M)Σ"),
    "partialfed": ("one model", "some layers, chosen", "each client's loss, layer by layer", "2Σ"),
    "spfl": ("updates, pairwise", "the whole model", "angles between updates", "2Σ(1+1/Γ)"),
    "spfl-1step": ("updates, pairwise", "the whole model", "angles between updates", "2Σ(1+1/Γ)"),
    "spfl-w": ("models, pairwise", "the whole model", "angles between updates", "2Σ(1+1/Γ)"),
    "spfl-w-1step": ("models, pairwise", "the whole model", "angles between updates", "2Σ(1+1/Γ)"),
    "fedavg-sync": ("one model", "nothing", "sample counts, who is late is dropped", "2Σ"),
    "fedavg-async": ("one model", "nothing", "sample counts, late models as they are", "2Σ"),
    "fedasync": ("one model", "nothing", "staleness", "2Σ"),
    "lga": ("one model", "nothing", "equal weights, late models moved on", "2Σ"),
    "plga": ("one model", "a mixture with the global one", "angle of update and progress", "3Σ"),
}
#: The three scales of the map of the field, each from least to most.
SHARED = ("nothing", "one model", "some layers", "every model")
PERSONAL = ("nothing", "some steps from it", "a model beside it", "some layers", "the whole model")
DECIDES = ("nobody", "a rule fixed before", "the server, from models", "the client, by its loss")
#: name: its place on SHARED, PERSONAL and DECIDES (relatives of a method are left out)
PLACES = {
    "separate": (0, 4, 0),
    "fedavg": (1, 0, 1),
    "fedprox": (1, 0, 1),
    "scaffold": (1, 0, 1),
    "fedasync": (1, 0, 1),
    "lga": (1, 0, 1),
    "fedavg-ft": (1, 1, 1),
    "fedavg-c": (1, 1, 1),
    "per-fedavg": (1, 1, 1),
    "pfedme": (1, 1, 1),
    "ditto": (1, 2, 1),
    "fedphp": (1, 2, 1),
    "plga": (1, 2, 2),
    "apfl": (1, 2, 3),
    "fedala": (1, 2, 3),
    "partialfed": (1, 3, 3),
    "fedrep": (2, 3, 1),
    "fedamp": (3, 4, 2),
    "heurfedamp": (3, 4, 2),
    "fedacs": (3, 4, 2),
    "spfl": (3, 4, 2),
    "fedfomo": (3, 4, 3),
    "apple": (3, 4, 3),
}
HEAD = ("method", "clients share", "stays personal", "weights by", "sent", "tested")


def compare(*names, here=None):
    """The comparison table of these methods (all by default); ``here`` is set in bold.

    Σ is the number of parameters of one model; "sent" counts a client that takes part in a round,
    down and up; M is how many other models a client downloads, Γ the period of SPFL's probes.

    >>> compare("separate").rows[0][:2]
    ('Separate', 'nothing')
    """
    for name in (*names, *([here] if here else [])):
        _check.one_of("name", name, algorithms.BY_NAME)
    here = algorithms.BY_NAME[here].label if here else None
    rows = [
        (algorithms.BY_NAME[name].label, *FACTS[name], algorithms.BY_NAME[name].tested)
        for name in names or algorithms.names()
    ]
    return Shown(HEAD, rows, bold=here, wide=True)
