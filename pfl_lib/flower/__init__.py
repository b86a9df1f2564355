"""The same algorithms over a network, by Flower (``pip install 'pfl_lib[flower]'``).

``RemoteFederation`` is a federation whose clients are elsewhere.  Everything but ``apps`` and
``local`` works without Flower: ``InProcess`` carries the same parcels inside one process.
"""

from pfl_lib.flower.client import OneClient
from pfl_lib.flower.federation import ClientsLost, InProcess, RemoteFederation, in_process
from pfl_lib.flower.local import LocalNetwork
from pfl_lib.flower.messages import Parcel
from pfl_lib.flower.plan import Plan

__all__ = [
    "ClientsLost",
    "InProcess",
    "LocalNetwork",
    "OneClient",
    "Parcel",
    "Plan",
    "RemoteFederation",
    "in_process",
]
