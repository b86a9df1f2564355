"""Import torchvision even when its compiled operators cannot load.

The Linux wheel of torchvision is built for CUDA: beside a CPU-only torch its compiled part cannot
load, and ``import torchvision`` stops with "operator torchvision::nms does not exist".  Declaring
the two schemas first is enough for data sets, transforms, models and utilities; only the compiled
operators stay unusable.  This project imports torchvision only through here.
"""

import importlib
import sys

_KEPT: list = []  # a torch.library.Library takes its operators back when it is collected
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def import_torchvision():
    """The module torchvision, with ``datasets``, ``transforms`` and ``models`` loaded."""
    import torch

    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    # the failed import left partial modules behind: start afresh
    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(operator + _SCHEMA)
    _KEPT.append(library)
    return importlib.import_module("torchvision")
