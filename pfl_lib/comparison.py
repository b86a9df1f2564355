"""The comparison table: what is shared, what is personal, who decides, what it costs.

Its entries are the facts of the methods' classes: see ``pfl_lib.methods.Algorithm``.
"""

from pfl_lib import _check, methods
from pfl_lib._show import Shown

#: The three scales of the map of the field, each from least to most.
SHARED = ("nothing", "one model", "some layers", "every model")
PERSONAL = ("nothing", "some steps from it", "a model beside it", "some layers", "the whole model")
DECIDES = ("nobody", "a rule fixed before", "the server, from models", "the client, by its loss")
HEAD = (
    "method",
    "clients share",
    "stays personal",
    "weights by",
    "sent",
    "tested",
    "a newcomer gets",
)


def compare(*names, here=None):
    """The comparison table of these methods (all by default); ``here`` is set in bold.

    Σ is the number of parameters of one model; "sent" counts a client that takes part in a round,
    down and up; M is how many other models a client downloads, Γ the period of SPFL's probes.

    >>> compare("separate").rows[0][:2]
    ('Separate', 'nothing')
    """
    for name in (*names, *([here] if here else [])):
        _check.one_of("name", name, methods.BY_NAME)
    rows = []
    for name in names or methods.names():
        method = methods.BY_NAME[name]
        facts = (method.shared, method.private, method.weights_by, method.cost, method.tested)
        rows.append((method.label, *facts, method.newcomer))
    return Shown(HEAD, rows, bold=methods.BY_NAME[here].label if here else None, wide=True)


def places():
    """Where methods stand on the map, by name: their places on SHARED, PERSONAL and DECIDES.

    Relatives that would stand in the same place as their parent have none.

    >>> places()["fedamp"]
    (3, 4, 2)
    """
    return {name: method.place for name, method in methods.BY_NAME.items() if method.place}
