"""Explorers."""

import importlib

_HOMES = {
    "FedAMPPlane": "fedamp_plane",
    "AttentionFunctions": "attention_functions",
    "FedAMPRounds": "fedamp_rounds",
    "HeurDirections": "heur_directions",
    "FedACSQuantile": "fedacs_quantile",
    "FourRules": "four_rules",
    "SPFLSoftmax": "spfl_softmax",
    "Stragglers": "stragglers",
    "ALABox": "ala_box",
    "Partitions": "partitions",
}
__all__ = ["Explorer", *_HOMES]


def __getattr__(name):  # anywidget is imported when the first explorer is asked for
    if name == "Explorer":
        return importlib.import_module("pfl_lib.explore.base").Explorer
    if name in _HOMES:
        return getattr(importlib.import_module(f"pfl_lib.explore.{_HOMES[name]}"), name)
    raise AttributeError(f"pfl_lib.explore has no {name!r}; it has {', '.join(__all__)}")
