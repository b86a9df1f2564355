"""Argument checks that all splits share."""

from pfl_lib import _check
from pfl_lib.data.dataset import Dataset
from pfl_lib.partition.table import Partition


def check_arguments(seed=0, targets=False, recut=False, **given):
    """Refuse arguments of the wrong type, and data without labels unless ``targets`` allows it:
    only splits that never look at labels can split it.  A split that cuts test samples off anew,
    sample by sample (``recut``), cannot keep groups whole, or the last for the test."""
    kinds = {"data": Dataset, "partition": Partition}
    for name, value in given.items():
        if not isinstance(value, kinds[name]):
            raise TypeError(f"{name} must be a {kinds[name].__name__}, got {value!r}")
    if "data" in given and not targets and not given["data"].labeled:
        raise ValueError(
            f"data must have class labels to be split by them; {given['data'].name} has targets: "
            "use partition.natural or partition.iid"
        )
    if recut and (given["data"].together or given["data"].split == "time"):
        why = "come in the order of time" if given["data"].split == "time" else "belong together"
        raise ValueError(
            f"data must be free to be cut anew, sample by sample; those of {given['data'].name} "
            f"{why}: use a split that keeps the data set's own test part, or partition.natural"
        )
    if "partition" in given and "data" in given:
        given["partition"].check_source(given["data"])
    _check.whole("seed", seed, at_least=0)


def checked_count(data, clients):
    clients = _check.whole("clients", clients)
    most = min(data.n_train, data.n_test)
    if clients > most:
        raise ValueError(
            f"clients must be at most {most:,}, the smaller of {data.name}'s {data.n_train:,} "
            f"training and {data.n_test:,} test samples; got {clients:,}"
        )
    return clients


def check_supply(data, need, have, what):
    short = (need > have).nonzero().squeeze(1).tolist()
    if short:
        c = short[0]
        raise ValueError(
            f"class {data.classes[c]!r} of {data.name} has {int(have[c]):,}, needed are "
            f"{int(need[c]):,} {what}; use fewer clients"
        )
