'''Explorers: figures one plays with.

Each is a live widget where there is a kernel (what the reader sets is what Python sees) and works
all the same on a static page, from one ES module, with no network and no other script.

>>> from pfl_lib.book.explore import FedAMPPlane
>>> plane = FedAMPPlane(sigma=2.0, alpha=0.5, points=[[1, 0], [0.5, 0.5], [-1, 2]])
>>> plane                                         # in a notebook: the figure
FedAMPPlane(alpha=0.5, attention='negative_exponential', beside='weights', chosen=0, ...)
>>> round(plane.compute()["largest_alpha"], 3)    # what it shows, by the library's own functions
2.262

To write another: a Python class with its settings and ``compute()``, by library functions; and a
module with the same formula in JavaScript (``compute``), its picture (``draw``) and its words
(``say``). Sliders, themes, dragging, keyboard and the wire to Python are in the kit, whose text is
put before yours; formulas.js holds what several explorers compute. An explorer of this package is
two files beside this one and a line in ``_HOMES``; tests/site/test_explorers.py turns its knobs
in a browser and compares ``compute`` with ``compute()``. One for a notebook may hold its module as
text. A whole one, the mean that FedAvg takes::

    import torch
    from pfl_lib import formulas
    from pfl_lib.book.explore.base import Between, Explorer, Rows, Whole

    class Mean(Explorer):
        modules = ("""
    export default explorer({
      title: "The mean of three clients",
      hint: "Drag a client.",
      controls: [slider("weight", { label: "weight of the first", min: 0, max: 10, step: 0.1 })],
      pictures: { plane: { title: "Clients ● and their mean ◆", x: [-3, 3], y: [-3, 3] } },
      compute(s) {
        const sizes = s.points.map((_, i) => (i ? 1 : s.weight)), total = sum(sizes);
        return { mean: mix([sizes.map((n) => n / total)], s.points)[0] };
      },
      draw({ plane }, s, { mean }) {
        plane.axes();
        s.points.forEach((point, i) => plane.handle("points", i, point,
          { label: `client ${i + 1}`, text: String(i + 1), colour: PALETTE[0] }));
        plane.diamond(mean, 8, { class: "pfl-cloud", fill: PALETTE[1] }, 2);
      },
      say: (s, { mean }) => ({ text: `The mean lies at ${number(mean[0])}, ${number(mean[1])}.` }),
      tries: [
        { name: "Equal", set: { weight: 1 }, why: "All clients count the same." },
        { name: "One rules", set: { weight: 10 }, why: "A large client pulls the mean to itself." },
      ],
    });
    """,)
        points = Rows([[-2, -1], [2, 0], [0, 2]], within=(-3, 3))
        weight = Between(2.0, 0, 10)
        chosen = Whole(0, 0, 11)

        def compute(self):
            W = torch.tensor(self.points, dtype=torch.float64)
            sizes = W.new_tensor([self.weight] + [1.0] * (len(W) - 1))
            return {"mean": formulas.weighted_average(W, sizes).tolist()}

What the kit gives a module: the controls ``slider`` (linear, ``log``, or through ``values``),
``choice``, ``check`` and ``player``; a ``Picture`` with ``axes``, ``line``, ``curve``, ``circle``,
``diamond``, ``text``, ``shape``, ``heat`` and ``handle``; ``number`` and ``short`` for numbers,
``PALETTE`` and ``groupColour`` for colours, ``mix``, ``cosine``, ``softmax`` and the like for
mathematics.
'''

import importlib

_HOMES = {
    "Shrinkage": "shrinkage",
    "FedAMPPlane": "fedamp_plane",
    "FedAMPRounds": "fedamp_rounds",
    "FeedbackLoop": "feedback_loop",
    "HeurDirections": "heur_directions",
    "SelfWeight": "self_weight",
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
        return importlib.import_module("pfl_lib.book.explore.base").Explorer
    if name in _HOMES:
        return getattr(importlib.import_module(f"pfl_lib.book.explore.{_HOMES[name]}"), name)
    raise AttributeError(f"pfl_lib.book.explore has no {name!r}; it has {', '.join(__all__)}")
