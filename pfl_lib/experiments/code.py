"""Which code decided a number?  A fingerprint of every function a run used.

A result file carries these fingerprints.  When one of the functions changes, the file is stale: it
may still be right, but nobody has looked.  Only what a function *does* counts: comments,
docstrings and layout are left out.  Engines, federation and the loop of rounds are left out too:
the tests hold them to the plain loop's numbers, whatever their code.
"""

import ast
import hashlib
import inspect
import textwrap
import types

from pfl_lib import models, partition, random, training
from pfl_lib.algorithms.base import Algorithm
from pfl_lib.faults import Around

NEUTRAL = (
    "pfl_lib._check",
    "pfl_lib.data",  # read and checked by checksum; a partition's tables have their own hash
    "pfl_lib.partition.Partition",
    "pfl_lib.engines",
    "pfl_lib.federation",
    "pfl_lib._memory",
    "pfl_lib.run",
    "pfl_lib.history",
    "pfl_lib.checkpoints",
)
ALWAYS = (
    training.STEPS["descend"],
    training.batch_table,
    training.draw_noise,
    random.keyed_generator,
)

#: Functions that were rewritten and give the same numbers, as a test shows: they go by the
#: fingerprint of the former version, which stands beside that test (tests/plain.py).
REWRITTEN = {
    "ffde1abfc304": "30d99f70a8a0",  # training.batch_table
    "114165caed20": "fbcd899fff5b",  # random.keyed_number
    "624356930a7e": "154d1efd29a8",  # random._written
    "00e63dfd0425": "27e6ac7dbab7",  # formulas.fedamp.fedamp_weights: one client, any α
}


def fingerprints(method, fed):
    """{qualified name: fingerprint} of the functions and classes behind a method's numbers.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> fed = pfl_lib.Federation(data, pfl_lib.partition.iid(data, 2), "mlp")
    >>> "pfl_lib.algorithms.fedavg.FedAvg" in fingerprints(pfl_lib.algorithm("fedavg"), fed)
    True
    """
    roots = [type(method), *ALWAYS]
    roots += [type(part) for part in vars(method).values() if isinstance(part, Algorithm)]
    around = fed
    while isinstance(around, Around):
        roots.append(type(around))
        around = around.fed
    roots += [getattr(partition, fed.partition.name, None), getattr(models, fed.model_name, None)]
    found, todo = {}, [root for root in roots if root is not None]
    while todo:
        thing = todo.pop()
        name = _name(thing)
        if name in found or not _ours(thing):
            continue
        found[name] = _fingerprint(_look_up(name))
        todo += _used_by(thing)
    return dict(sorted(found.items()))


def changed(code):
    """The names in ``code`` (as stored in a result file) whose function is another one today."""
    now = {}
    for name in code:
        thing = _look_up(name)
        now[name] = _fingerprint(thing) if thing is not None else None
    return [name for name, was in code.items() if now[name] != was]


def _name(thing):
    """Module and name; a function made inside another goes by the name of that one."""
    return f"{thing.__module__}.{thing.__qualname__}".split(".<locals>")[0]


def _ours(thing):
    return _name(thing).startswith("pfl_lib.") and not _name(thing).startswith(NEUTRAL)


def _fingerprint(thing):
    found = hashlib.sha256(meaning(inspect.getsource(thing)).encode()).hexdigest()[:12]
    return REWRITTEN.get(found, found)


def meaning(source):
    """The source without comments, docstrings and layout."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _used_by(thing):
    """Our own functions and classes that ``thing`` names: calls, base classes, local steps."""
    if inspect.isclass(thing):
        used = [base for base in thing.__mro__[1:] if _ours(base)]
        for part in vars(thing).values():
            part = getattr(part, "__func__", getattr(part, "fget", part))
            if isinstance(part, types.FunctionType) and part.__module__ == thing.__module__:
                used += _used_by(part)
        return used
    names, texts = _words(inspect.unwrap(thing).__code__)
    world = inspect.unwrap(thing).__globals__
    spaces = [world[n] for n in names if isinstance(world.get(n), types.ModuleType)]
    spaces = [vars(space) for space in spaces if space.__name__.startswith("pfl_lib")]
    used = [space[n] for space in [world, *spaces] for n in names if n in space]
    used += [value for table in used if isinstance(table, dict) for value in table.values()]
    used += [training.STEPS[text] for text in texts if text in training.STEPS]
    return [u for u in used if inspect.isclass(u) or isinstance(u, types.FunctionType)]


def _words(code):
    """Names and texts in a code object and those nested in it."""
    names, texts = set(code.co_names), set()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            more_names, more_texts = _words(constant)
            names, texts = names | more_names, texts | more_texts
        elif isinstance(constant, str):
            texts.add(constant)
    return names, texts


def _look_up(name):
    """The function or class of that qualified name, or None when it is gone."""
    import importlib

    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part, None)
        return thing
    return None
