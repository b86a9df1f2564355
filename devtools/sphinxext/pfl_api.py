"""Parameters, types and what comes back, in the library's reference, from its own signatures.

Docstrings say in sentences what their arguments mean, each argument in double backquotes where it
is explained. A reader who looks one up wants a table: its rows are the parameters, with the type
and the default of the signature and the sentence of the docstring that explains it. What no
docstring spells out is in ``COMMON`` below and in pfl_api_words.py.
"""

import inspect
import re

from pfl_api_words import HERE, WITHIN

SILENT = ("self", "cls")
ABBREVIATED = re.compile(
    r"\b(?:pfl_lib|torch|collections|typing|numpy|pathlib|os)(?:\.\w+)*\.(\w+)"
)
# Names that mean the same wherever they occur; a docstring that says more has the word.
COMMON = {
    "W": "models, one row per client (m × d)",
    "w": "models, one row per client, or one model",
    "u": "messages, one row per client",
    "xi": "weights, row i is what client i hears (m × m)",
    "x": "the global model (d numbers)",
    "g": "updates or gradients, one row per client",
    "grad": "the gradient there",
    "sizes": "how many samples each client has",
    "counts": "samples by client and class (m × classes)",
    "attention": "an attention-inducing function, see pfl_lib.attention",
    "alpha": "step of the server",
    "sigma": "width or sharpness of the attention",
    "lam": "strength of a penalty",
    "mu": "strength of the pull back to the global model",
    "self_weight": "what a client keeps of its own model",
    "fed": "the federation",
    "method": "a method, from pfl_lib.algorithm or of your own",
    "algorithm": "a method, from pfl_lib.algorithm or of your own",
    "model": "a network, or the name of one in pfl_lib.models",
    "correction": "a vector added to every gradient",
    "mask": "the coordinates that may move",
    "options": "what else may be set, as the words above say",
    "hyper": "its hyper-parameters, by name",
    "prox": "a pull to other models, see Prox",
    "begin": "the models that training begins with, one row per client",
    "step": "the name of another local step, see local_step",
    "data": "a data set",
    "partition": "who holds which samples",
    "state": "what the method remembers between rounds",
    "who": "the clients that take part, by number",
    "rounds": "how many rounds",
    "batch_size": "samples per step",
    "epochs": "passes over a client's data in a round",
    "lr": "learning rate",
    "seed": "of all random draws",
    "participation": "share of the clients that take part in a round",
    "progress": "show a progress bar",
    "device": "where tensors live; None chooses",
    "dtype": "type of all numbers",
    "engine": "how clients are trained: one after the other, on threads, or stacked",
    "chunk": "how many clients are stacked at once; None chooses",
    "checkpoint": "a folder to resume from and to write to",
    "checkpoint_every": "rounds between two checkpoints",
    "folder": "where files are kept",
    "name": "its name",
    "m": "how many clients",
    "ax": "axes to draw on; new ones if not given",
    "title": "above the figure",
}
SENTENCE = re.compile(r"(?<=[.;])\s+(?=[A-Z`])")


def in_words(annotation):
    """A type as one writes it: without the modules it comes from."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return ABBREVIATED.sub(r"\1", text).strip("'\"")


def explained(name, text):
    """The sentence of a docstring that explains an argument, or nothing."""
    for paragraph in re.split(r"\n\s*\n", text):
        whole = " ".join(paragraph.split())
        for sentence in SENTENCE.split(whole):
            if re.search(rf"``{re.escape(name)}(?:[=(][^`]*)?``", sentence):
                return whole if sentence.count("``") % 2 else sentence  # never cut inside code
    return ""


def _places(thing, name, text):
    """Where the meaning of a parameter may stand, the nearest first."""
    yield explained(name, text)
    for base in inspect.getmro(thing)[1:] if inspect.isclass(thing) else ():
        if base.__module__.startswith("pfl_lib"):
            yield explained(name, base.__doc__ or "")
    module = inspect.getmodule(thing)
    yield HERE.get(f"{getattr(thing, '__name__', '')}.{name}", "")
    yield explained(name, getattr(module, "__doc__", None) or "")
    for start, words in WITHIN.items():
        if module and module.__name__.startswith(start):
            yield words.get(name, "")
    yield COMMON.get(name, "")


def rows(thing, text):
    """(name, type, default, meaning) of each parameter of a function or of what makes a class."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return [], ""
    found = []
    for name, parameter in signature.parameters.items():
        if name in SILENT or name.startswith("_"):
            continue
        default = parameter.default
        shown = "" if default is inspect.Parameter.empty else repr(default)
        if len(shown) > 40 or "<" in shown or "=" in shown:
            shown = "…"
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        meaning = next(filter(None, _places(thing, name, text)), "")
        found.append((star + name, in_words(parameter.annotation), shown, meaning))
    back = "" if inspect.isclass(thing) else in_words(signature.return_annotation)
    return found, back


def _literal(text):
    return f"``{text}``" if text else ""


def table(found):
    """The rows as a table of reStructuredText; columns that say nothing are left out."""
    heads = ["parameter", "type", "default", "what it is"]
    kept = [k for k in range(4) if k == 0 or any(row[k] for row in found)]
    lines = [".. list-table::", "   :header-rows: 1", "   :class: pfl-parameters", ""]
    for row in [heads, *found]:
        for place, k in enumerate(kept):
            cell = row[k] if row is heads or k == 3 else _literal(row[k])
            lines.append(f"   {'* -' if place == 0 else '  -'} {cell}".rstrip())
    return lines


def _parameters(app, what, name, thing, options, lines):
    """After the words of a docstring and before its example: the table, and what comes back."""
    if what not in {"function", "class", "method"} or not name.startswith("pfl_lib"):
        return
    found, back = rows(thing, "\n".join(lines))
    if not any(row[1] or row[3] for row in found) and not back:
        return
    added = ["", *table(found), ""] if found else [""]
    if back and back != "None":
        added += [f"Returns {_literal(back)}.", ""]
    place = next((k for k, line in enumerate(lines) if line.startswith(">>>")), len(lines))
    lines[place:place] = added


def setup(app):
    app.connect("autodoc-process-docstring", _parameters, priority=600)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
