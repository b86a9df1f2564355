"""For methods whose equations are SGD steps of their own."""


def plain_sgd(method, fed):
    """The options of plain SGD for ``method``: its own ``lr``, or else the federation's.

    The learning rate of an Adam federation does not suit SGD, so there the method must have its
    own; the same holds where the federation's SGD has momentum, weight decay or clipping.
    """
    more = "".join(f", {n}={v}" for n, v in fed.settings.refinements.items())
    if method.lr is None and (fed.settings.optimizer != "sgd" or more):
        raise ValueError(
            f"{method.label} is defined by plain SGD steps, but the federation trains with "
            f"{fed.settings.optimizer!r}{more}: give it a learning rate of its own, "
            f"algorithm({method.name!r}, lr=0.01)"
        )
    return {"optimizer": "sgd", "lr": fed.settings.lr if method.lr is None else method.lr}
