"""A federation: who has which data, one shape of model, and how clients train.

Row i of every stack of models belongs to client i.  An algorithm needs two verbs of it: ``train``
(or ``perform``, for a method's own local step) and ``evaluate``.
"""

import copy
import hashlib
import math
import warnings
from dataclasses import asdict

import torch
from torch import Tensor, nn

from pfl_lib import _check, engines, models
from pfl_lib._memory import free_memory, keep_freed_memory
from pfl_lib.data.dataset import Dataset
from pfl_lib.partition import Partition
from pfl_lib.random import keyed_generator
from pfl_lib.training import Network, Prox, Samples, Settings, Work

NORMALISE_ONCE = 2**29  # bytes: smaller data sets are normalised once, larger ones by the batch
ENGINES = ("auto", "loop", "stacked", "threads")
CACHE = 3 * 2**22  # bytes of models, and of Adam's memory, that are trained together on a CPU


class Federation:
    """Clients with data, a model, and a way to train.

    ``model`` is a name known to ``pfl_lib.models``, or any ``nn.Module`` that is nothing but
    trained parameters: batch normalisation, dropout, buffers, frozen and tied parameters are
    refused.
    ``seed`` decides the batches and who takes part, and, where no ``init_seed`` is given, the
    initial model too; the partition has a seed of its own.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pfl_lib.partition.iid(data, clients=4)
    >>> fed = Federation(data, clients, "logistic_regression")
    >>> fed.m, fed.d
    (4, 650)
    """

    chunk = None  # clients that are trained at once; None: see ``plan``
    _activations = 0  # bytes that one client's batch needs on its way through the model

    def __init__(
        self,
        data,
        partition,
        model="mlp",
        *,
        lr=0.01,
        optimizer="sgd",
        batch_size=32,
        epochs=1,
        seed=0,
        init_seed=None,
        device=None,
        dtype=torch.float32,
        engine="auto",
        chunk=None,
    ):
        self.settings = Settings(
            lr=_check.positive("lr", lr),
            optimizer=_check.one_of("optimizer", optimizer, ("sgd", "adam")),
            batch_size=_check.whole("batch_size", batch_size),
            epochs=_check.whole("epochs", epochs),
            seed=_check.whole("seed", seed, at_least=0),
        )
        self.engine = _check.one_of("engine", engine, ENGINES)
        self.chunk = None if chunk is None else _check.whole("chunk", chunk)
        if chunk is not None and engine in ("loop", "threads"):
            raise ValueError(
                f"chunk must be None with engine={engine!r}, which takes one client at a time; "
                f"got {chunk!r}"
            )
        self.device = _device(device)
        self.dtype = _check.one_of("dtype", dtype, (torch.float32, torch.float64, torch.bfloat16))
        self.data, self.partition = data, partition
        init_seed = self.settings.seed if init_seed is None else init_seed
        self.init_seed = _check.whole("init_seed", init_seed, at_least=0)
        if not isinstance(model, (str, nn.Module)):
            raise TypeError(f"model must be a name or an nn.Module, got {model!r}")
        self.model_name = model if isinstance(model, str) else type(model).__name__
        self._given_module = isinstance(model, nn.Module)
        self.k = 0  # the round, part of every random draw; see ``at``
        _check_clients(data, partition)

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(keyed_generator(self.init_seed, "initial model").initial_seed())
            module = model if isinstance(model, nn.Module) else models.build(model, data)
        self.network = Network(module)
        flat = [p.detach().reshape(-1) for p in module.parameters()]
        self._initial = torch.cat(flat).to(self.device, dtype)
        self.layers = _layers(module, self.network)
        self.head_mask = self._mask_of(_head(module))
        batch = data.normalised(data.x[: self.settings.batch_size])
        self.network.channels_last = _tried_out(module, batch[:2], data)
        self._activations = self.network.activation_bytes(batch) * dtype.itemsize // 4

        inputs = _gather(data, self.device, dtype)

        labels = partition.labels or tuple(data.y[i] for i in partition.train)
        self._train_samples = self._samples(inputs, partition.train, labels)
        self._test_samples = self._samples(
            inputs, partition.test, tuple(data.y[i] for i in partition.test)
        )
        self.sizes = torch.tensor([len(i) for i in partition.train], dtype=dtype).to(self.device)
        if self.device.type == "cpu":
            keep_freed_memory()

    # ---- what an algorithm asks for -------------------------------------------------------

    @property
    def m(self):
        """How many clients there are."""
        return len(self.partition.train)

    @property
    def d(self):
        """How many parameters a model has."""
        return self.network.d

    @property
    def everyone(self):
        """The indices of all clients."""
        return torch.arange(self.m, device=self.device)

    def initial(self) -> Tensor:
        """The common random initial model, one row a client."""
        return self._initial.repeat(self.m, 1)

    def at(self, round_):
        """This federation in round ``round_``: the same clients, that round's batches."""
        here = copy.copy(self)
        here.k = round_
        return here

    def with_part(self, positions):
        """This federation with only some of each client's training samples, by their positions."""
        here, samples = copy.copy(self), self._train_samples
        pick = [p.to(self.device) for p in positions]
        here._train_samples = samples._replace(
            index=tuple(i[p] for i, p in zip(samples.index, pick, strict=True)),
            labels=tuple(y[p] for y, p in zip(samples.labels, pick, strict=True)),
        )
        return here

    def train(
        self,
        start: Tensor,
        who: Tensor,
        *,
        prox: Prox | None = None,
        correction: Tensor | None = None,
        mask: Tensor | None = None,
        **how,
    ) -> Tensor:
        """Ordinary local training from the rows of ``start``; the trained rows.

        Optional: a proximal term, a vector added to every gradient, a mask of the coordinates
        that may move, and what ``Work`` takes (``epochs``, ``steps``, ``lr``, ``optimizer``,
        ``batch_size``, ``repeats``, ``tag``).
        """
        rows, shared = {"w": start}, {}
        if prox is not None:
            strength = torch.as_tensor(prox.strength, dtype=self.dtype, device=self.device)
            rows |= {"centre": prox.centre, "strength": strength.expand(len(start))}
            self._warn_of_overshooting(prox.strength, how)
        if correction is not None:
            rows["correction"] = correction
        if mask is not None:
            shared["mask"] = self._checked_mask(mask)
        return self.perform(Work(rows=rows, shared=shared, **how), who)["w"]

    def perform(self, work: Work, who: Tensor) -> dict[str, Tensor]:
        """Have the clients ``who`` do ``work``; the rows as they are afterwards."""
        clients = self._clients(who)
        self._check_rows(work, clients)
        if not clients:
            return dict(work.rows)
        call = (self.network, work, self.settings, self._train_samples, clients, self.k)
        engine = self._engine()
        if engine == "loop":
            return engines.loop(*call)
        train = engines.stacked if engine == "stacked" else engines.one_by_one
        chunk, workers = self._chunk(len(clients), work)
        return engines.in_chunks(train, *call, chunk=chunk, workers=workers)

    @torch.no_grad()
    def evaluate(self, w: Tensor, who: Tensor | None = None, split="test"):
        """Accuracy and mean loss of row i of ``w`` on its client's data: two (k,) tensors."""
        who = self.everyone if who is None else who
        clients = self._clients(who)
        _check.one_of("split", split, ("test", "train"))
        self._check_models(w, clients)
        if not clients:
            return w.new_empty(0), w.new_empty(0)
        samples = self._test_samples if split == "test" else self._train_samples
        if self._engine() == "loop":
            return engines.evaluate_loop(self.network, w, samples, clients)
        return engines.evaluate(self.network, w, samples, clients, *self._chunk(len(clients)))

    # ---- words ------------------------------------------------------------------------------

    def plan(self):
        """Which engine trains, how many clients at a time, and why, in words."""
        engine = self._engine()
        chunk, workers = self._chunk(self.m)
        dense = self.network.dense is not None
        what = "products written out by hand" if dense else "the gradient under vmap"
        why = {
            "loop": "one client after the other: the readable reference",
            "stacked": f"{chunk} of {self.m} clients at once as one stack of models, {what}",
            "threads": f"one client at a time on each of {workers} threads with one core each: "
            "convolutions on a CPU gain less from being stacked",
        }
        chosen = "chosen" if self.engine == "auto" else "asked for"
        return f"engine {engine!r} ({chosen}) on {self.device}: {why[engine]}"

    def describe(self):
        """What a run must agree on to be resumed, as plain data."""
        own = {}
        if self._given_module:  # a name of a class does not say what is inside
            inside = (
                str(self.network.module).encode() + self._initial.double().cpu().numpy().tobytes()
            )
            own["module"] = hashlib.sha256(inside).hexdigest()[:16]
        return {
            "data": self.data.name,
            "samples": self.data.checksum(),
            "partition": _fingerprint(self.partition),
            "model": self.model_name,
            **own,
            "parameters": self.d,
            "init_seed": self.init_seed,
            "dtype": str(self.dtype),
            **asdict(self.settings),
        }

    def __repr__(self):
        return (
            f"Federation({self.data.name}, {self.partition.name}, {self.m} clients, "
            f"{self.model_name} with {self.d:,} parameters, {self.device})"
        )

    # ---- inside -----------------------------------------------------------------------------

    def _engine(self):
        if self.engine != "auto":
            return self.engine
        on_cpu = self.device.type == "cpu"
        return "threads" if on_cpu and self.network.convolutional else "stacked"

    def _chunk(self, k, work=None):
        """How many of k clients are trained at once, and by how many threads."""
        if self._engine() == "threads":
            return 1, torch.get_num_threads() if self.device.type == "cpu" else 1
        # a stack keeps all cores busy by itself, and of Python only one thread at a time runs
        if self.chunk is not None:
            return min(self.chunk, k), 1
        plain = work is None or work.step == "descend"
        a_model = self.d * self.dtype.itemsize
        rows = 1 if work is None else len(work.rows)
        each = (5 + rows) * a_model + self._activations  # w, gradient, two moments, what was given
        fits = free_memory(self.device) // 2 // (each if plain else 2 * each)
        if self.device.type == "cpu":
            optimizer = (work and work.optimizer) or self.settings.optimizer
            at_most = CACHE // (a_model if optimizer == "sgd" else 3 * a_model)
            if not plain or self.network.dense is None:  # vmap has more to gain from many
                at_most = max(at_most, math.ceil(k / 2))
            fits = min(fits, at_most)
        chunks = math.ceil(k / min(k, max(1, fits)))
        return math.ceil(k / chunks), 1

    def _clients(self, who):
        try:
            clients = torch.as_tensor(who).cpu()
            if (clients.is_floating_point() and len(clients)) or clients.dtype == torch.bool:
                raise TypeError
            clients = clients.tolist()
            wrong = [i for i in clients if i not in range(self.m)]
        except (TypeError, ValueError):
            raise TypeError(f"who must be client numbers, whole ones, got {who!r}") from None
        if wrong or len(set(clients)) != len(clients):
            raise ValueError(
                f"who must hold different client numbers from 0 to {self.m - 1}, got {clients}"
            )
        return clients

    def _check_rows(self, work, clients):
        for name, rows in work.rows.items():
            if not isinstance(rows, Tensor):
                raise TypeError(f"rows[{name!r}] must be a tensor, one row a client, got {rows!r}")
            if len(rows) != len(clients):
                raise ValueError(
                    f"rows[{name!r}] must have one row for each of the {len(clients)} clients in "
                    f"who, got {len(rows)}"
                )
        w = work.rows["w"]
        if w.shape[1:] != (self.d,):
            raise ValueError(f"models must have {self.d} parameters, got shape {tuple(w.shape)}")
        if w.dtype != self.dtype:
            raise TypeError(f"models must be {self.dtype} as the federation is, got {w.dtype}")
        for name in ("centre", "correction"):
            if name in work.rows and work.rows[name].shape != w.shape:
                raise ValueError(
                    f"{name} must have the models' shape {tuple(w.shape)}, "
                    f"got {tuple(work.rows[name].shape)}"
                )

    def _checked_mask(self, mask):
        mask = _check.numbers("mask", mask)
        if mask.shape != (self.d,):
            raise ValueError(
                f"mask must have shape ({self.d},), the same coordinates for all clients; "
                f"got {tuple(mask.shape)}"
            )
        return mask.to(self.device, self.dtype)

    def _warn_of_overshooting(self, strength, how):
        """A pull of s is one more slope of size s·(w − centre): SGD overshoots when lr·s > 2."""
        if isinstance(strength, Tensor) and strength.device.type != "cpu":
            return  # to look would make a GPU wait
        lr = how.get("lr") or self.settings.lr
        strongest = float(torch.as_tensor(strength).max())
        if (how.get("optimizer") or self.settings.optimizer) == "sgd" and lr * strongest > 2:
            warnings.warn(
                f"the proximal term of strength {strongest:g} (1/β) makes SGD with lr = {lr:g} "
                f"overshoot farther with every step; lr <= {1 / strongest:.2g} is safe",
                stacklevel=3,
            )

    def _check_models(self, w, clients):
        if not isinstance(w, Tensor):
            raise TypeError(f"w must be a tensor, one row a client, got {w!r}")
        if w.shape != (len(clients), self.d):
            raise ValueError(
                f"w must be ({len(clients)}, {self.d}), one row for each client in who; "
                f"got {tuple(w.shape)}"
            )
        if w.dtype != self.dtype:
            raise TypeError(f"w must be {self.dtype} as the federation is, got {w.dtype}")

    def _samples(self, inputs, index, labels):
        move = lambda tensors: tuple(t.to(self.device) for t in tensors)  # noqa: E731
        return Samples(inputs, move(index), move(labels))

    def _mask_of(self, prefixes):
        mask = torch.zeros(self.d, dtype=torch.bool)
        for name, where in self.network.slices():
            if name.startswith(prefixes):
                mask[where] = True
        return mask.to(self.device)


def _gather(data, device, dtype):
    """A function from indices to inputs; images as numbers with mean 0 and deviation 1."""
    pool = data.x.to(device)
    if data.kind == "text":
        return lambda index: pool[index]
    if pool.numel() * dtype.itemsize <= NORMALISE_ONCE:
        once = data.normalised(pool, dtype)
        rows = lambda index: once.index_select(0, index.reshape(-1))  # noqa: E731
        return lambda index: rows(index).view(*index.shape, *once.shape[1:])
    return lambda index: data.normalised(pool[index], dtype)


def _head(module):
    """How the names of the head's parameters begin: what the module says, or its part "head"."""
    head = getattr(module, "head", ())
    if isinstance(head, nn.Module):
        return ("head.",)
    if isinstance(head, nn.Parameter):
        return ("head",)
    return (head,) if isinstance(head, str) else tuple(head)


def _layers(module, network):
    """Ordered (name, slice) of the layers, weight and bias together."""
    place = dict(network.slices())
    return [
        (name, slice(place[names[0]].start, place[names[-1]].stop))
        for name, names in models.layers(module)
    ]


def _fingerprint(partition):
    """A short name for exactly these tables."""
    digest = hashlib.sha256()
    for tables in (partition.train, partition.test, partition.labels or ()):
        for table in tables:
            digest.update(f"{len(table)}:".encode() + table.numpy().tobytes())
    return f"{partition.name}-{digest.hexdigest()[:16]}"


def _device(device):
    try:
        return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be None, or a device of torch such as 'cpu' or 'cuda:0', got {device!r}"
        ) from error


@torch.no_grad()
def _tried_out(module, x, data):
    """Refuse a module that cannot tell the classes of such samples; may images lie channels last?

    A forward with ``x.view(len(x), -1)``, as many textbooks have it, cannot read those.
    """
    x = x.to(next((p.device for p in module.parameters()), x.device))
    module = copy.deepcopy(module).float()
    try:
        out = module(x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{type(module).__name__} cannot take samples of {data.name}, a batch of which has "
            f"shape {tuple(x.shape)}: {error}"
        ) from error
    if out.ndim != 2 or out.shape[1] < len(data.classes):
        raise ValueError(
            f"{type(module).__name__} must give {len(data.classes)} numbers for a sample, one for "
            f"each class of {data.name}; it gives shape {tuple(out.shape)} for {len(x)} samples"
        )
    try:
        module.to(memory_format=torch.channels_last)(engines.channels_last(x))
    except RuntimeError:
        return False
    return True


def _check_clients(data, partition):
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset (see pfl_lib.data.load), got {data!r}")
    if not isinstance(partition, Partition):
        raise TypeError(f"partition must be a Partition (see pfl_lib.partition), got {partition!r}")
    if partition.m < 1:
        raise ValueError("the partition has no client")
    n = len(data.y)
    for i, (train, test) in enumerate(zip(partition.train, partition.test)):
        for part, index in (("training", train), ("test", test)):
            if len(index) == 0:
                raise ValueError(
                    f"client {i} has no {part} sample; every client needs one or more: deal to "
                    "fewer clients, or change the share that is kept for testing"
                )
            if index.min() < 0 or index.max() >= n:
                wrong = int(index.min() if index.min() < 0 else index.max())
                raise ValueError(
                    f"client {i} points at {part} sample {wrong}, "
                    f"but {data.name} has samples 0 to {n - 1}"
                )
    labels = partition.labels or (data.y,)
    for i, y in enumerate(labels):
        if y.min() < 0 or y.max() >= len(data.classes):
            raise ValueError(
                f"a label of client {i} is outside the classes 0 to {len(data.classes) - 1}"
            )
