"""The federation on this machine: its clients' data, and how they train."""

import copy
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from pfl_lib import _check, _objectives
from pfl_lib._threads import each
from pfl_lib.data.dataset import Dataset
from pfl_lib.federation import check_models, check_work, checked_clients, checked_parts
from pfl_lib.local import engines, evaluation
from pfl_lib.local.base import ModelFederation
from pfl_lib.local.batches import Samples
from pfl_lib.local.layout import transposed_pays
from pfl_lib.local.memory import free_memory, keep_freed_memory
from pfl_lib.local.network import Task
from pfl_lib.local.precision import precision_in_words
from pfl_lib.local.stacked import stacked, why_not_stacked
from pfl_lib.partition import Partition, hold_out
from pfl_lib.work import Work

NORMALIZE_ONCE = 2**29  # bytes: smaller data sets are normalized once, larger ones batch by batch
ENGINES = ("auto", "loop", "stacked", "threads")
CACHE = 2**22  # bytes of models, and of Adam's buffers, that one core trains together
SHARD = 2**18  # bytes of models that justify a thread
FEW_CORES = 4  # with more shards, threads would wait for Python's global lock


class LocalFederation(ModelFederation):
    """Clients with data, a model, and a way to train: ``pfl_lib.Federation``.

    ``model`` is a name known to ``pfl_lib.models``, or an ``nn.Module`` of your own.  A client's
    row holds the trainable parameters (``requires_grad``), then the buffers that training updates,
    such as the running statistics of batch normalization: ``d`` counts both, and mixing rows mixes
    both.  Frozen parameters are kept once for all clients.  Dropout draws the same numbers on every
    engine.  Tied parameters are refused.

    ``optimizer`` is "sgd" (with ``momentum`` and ``nesterov``, as in torch), "adam" or "adamw";
    each starts afresh in every local phase.  ``weight_decay`` is torch's (None: 0, for "adamw"
    0.01), ``clip`` the largest norm of a client's gradient.

    ``lr`` is a number, or a schedule over rounds: (first, factor, every), multiplied by the factor
    after so many rounds; ("power", first, p), divided by (k + 1)^p in round k; ("cosine", first,
    rounds), half a cosine from first towards 0; or ("warmup", rounds, lr), which rises to one of
    these in even steps.

    ``loss`` is "cross_entropy"; "mse", the squared error of targets that are numbers; or "bce", the
    binary cross-entropy of several labels at once, each 0.0 or 1.0: both are means over the columns
    of ``data.y``, which then holds targets (see :func:`pfl_lib.data.from_arrays`).  ``metric`` is
    what ``evaluate`` and a History give: "accuracy" (of "bce": the share of single labels that are
    right), "auc" or "f1" (see :mod:`pfl_lib.metrics`), and for "mse" "mae", of which less is
    better.  A client whose test samples are all of one class has no AUC (NaN); means leave it out.

    ``seed`` decides the batches and who takes part, and, where no ``init_seed`` is given, the
    initial model too; the partition has a seed of its own.
    ``shuffle=False`` uses a client's samples in the order in which the partition lists them; a
    round that ends within a pass is continued by the next.

    ``precision="bf16"`` computes the products and convolutions of local training in bfloat16, by
    torch's autocast; weights, optimizer and tests keep float32.  Processors with instructions for
    it train convolutional networks faster, the more so the larger the batch (see the book's page on
    speed).  ``plan`` says where it may help; processors that only claim to have the instructions
    are detected by a trial in another process.
    ``compile=True`` compiles the gradient of a stack of models by ``torch.compile``, on a GPU with
    CUDA graphs: the first round takes a minute longer, each step launches fewer kernels.
    ``keep_memory`` has the C library of a Linux CPU keep freed memory, process-wide, which makes
    stacked training 1.3 to 1.7 times faster; False (or PFL_KEEP_MEMORY=0 in the environment) leaves
    the process alone.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pfl_lib.partition.iid(data, clients=4)
    >>> fed = pfl_lib.Federation(data, clients, "logistic_regression")
    >>> fed.m, fed.d
    (4, 650)
    """

    chunk: int | None = None  # clients that are trained at once; None: see ``plan``
    _why_not_stacked = ""
    _activations = 0

    @_check.keywords
    def __init__(
        self,
        data: Dataset,
        partition: Partition,
        model: str | nn.Module = "mlp",
        *,
        lr: float | tuple[Any, ...] = 0.01,
        optimizer: str = "sgd",
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float | None = None,
        clip: float | None = None,
        batch_size: int = 32,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        init_seed: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        precision: str = "full",
        engine: str = "auto",
        chunk: int | None = None,
        compile: bool = False,
        keep_memory: bool = True,
        loss: str = "cross_entropy",
        metric: str | None = None,
    ):
        given = dict(locals())
        self._given = {n: v for n, v in given.items() if n not in ("self", "__class__")}
        self._set_engine(engine, chunk)
        _check_clients(data, partition)
        _check_targets(data, partition, _objectives.checked(loss, metric)[0])
        own = {name: given[name] for name in signature(ModelFederation).parameters if name in given}
        super().__init__(form=data.form, sample_counts=[len(i) for i in partition.train], **own)
        self._set_samples(data, partition)
        self._try_to_stack()
        self._set_compile(_check.flag("compile", compile))
        self._set_layout()
        if _check.flag("keep_memory", keep_memory) and self.device.type == "cpu":
            keep_freed_memory()

    def _set_engine(self, engine: str, chunk: int | None) -> None:
        self.engine = _check.one_of("engine", engine, ENGINES)
        self.chunk = None if chunk is None else _check.whole("chunk", chunk)
        if chunk is not None and engine in ("loop", "threads"):
            raise ValueError(
                f"chunk must be None with engine={engine!r}, which takes one client at a time; "
                f"got {chunk!r}"
            )

    def _set_compile(self, compile: bool) -> None:
        if compile and self._engine() != "stacked":
            more = "; engine='stacked' makes one" if not self._why_not_stacked else ""
            raise ValueError(
                f"compile must be False with engine {self._engine()!r}: it is the gradient of a "
                f"stack of models that is compiled{more}"
            )
        if compile:  # on a GPU with CUDA graphs, so that a step is one launch
            self.network.compile = "reduce-overhead" if self.device.type == "cuda" else "default"

    def _set_layout(self) -> None:
        """Find out which layout of dense layers' matrices trains faster on this processor."""
        network = self.network
        dense = network.dense if network.by_hand and self._engine() == "stacked" else None
        if dense is None or self.device.type != "cpu":
            return
        shapes = dict(zip(network.names, network.shapes))
        batch = min(self.settings.batch_size, max(self.sample_counts))

        def pays(name: str) -> bool:
            outputs, inputs = shapes[f"{name}.weight"]
            return transposed_pays(batch, inputs, outputs, name == dense[-1], self.dtype)

        def faster() -> list[str]:
            return [f"{name}.weight" for name in dense if pays(name)]

        # on a thread with one core where shards will train on such, else on this one
        shards = self._chunk(self.m)[1]
        found = each(lambda _: faster(), [None], shards)[0] if shards > 1 else faster()
        network.transposed[:] = found

    def _try_to_stack(self) -> None:
        """Find out whether the model can be trained as a stack; those of ``pfl_lib.models`` can."""
        on_threads = self.device.type == "cpu" and self.network.convolutional
        if not self._given_module or (self.engine != "stacked" and on_threads):
            return
        some = torch.cat([i.to(self.device) for i in self.partition.train[:3]])
        x = self._train_samples.inputs(some[torch.arange(3, device=some.device) % len(some)])
        self._why_not_stacked = why_not_stacked(self.network, self._initial, x)
        if self._why_not_stacked and self.engine == "stacked":
            raise ValueError(
                f"engine must be 'auto', 'threads' or 'loop' for {self.model_name}, got 'stacked': "
                f"{self._why_not_stacked}"
            )

    def _set_samples(self, data: Dataset, partition: Partition) -> None:
        self.data, self.partition, self.groups = data, partition, partition.groups
        inputs = _gather(data, self.device, self.dtype)
        y = data.y if data.labeled else data.y.to(self.dtype).reshape(len(data), -1)
        labels = partition.labels or tuple(y[i] for i in partition.train)
        test_labels = tuple(y[i] for i in partition.test)
        weights = None if data.weights is None else data.weights.to(self.device, self.dtype)

        def samples(index: Sequence[Tensor], labels: Sequence[Tensor]) -> Samples:
            move = lambda tensors: tuple(t.to(self.device) for t in tensors)  # noqa: E731
            return Samples(inputs, move(index), move(labels), weights)

        self._train_samples = samples(partition.train, labels)
        self._test_samples = samples(partition.test, test_labels)

    # ---- variations -------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Self:
        """A federation with the same arguments except these: ``fed.replace(lr=0.1)``."""
        for name in changes:
            _check.one_of("argument of a Federation", name, self._given)
        return type(self)(**{**self._given, **changes})

    def hold_out(self, share: float = 0.2, seed: int = 0) -> tuple[Self, Self]:
        """Two federations whose clients train on all but a ``share`` of their training samples.

        The first is tested as this one is, the second on what is held out: to choose by, so that
        the test samples stay unseen.  Samples that belong together stay together.  See
        :func:`pfl_lib.partition.hold_out`.
        """
        tested, chosen = hold_out(self.partition, share, seed, self.data)
        return self.replace(partition=tested), self.replace(partition=chosen)

    # ---- the interface for methods --------------------------------------------------------------

    def with_part(self, positions: Sequence[Tensor]) -> Self:
        """This federation with only some of each client's training samples, by position."""
        here, samples = copy.copy(self), self._train_samples
        pick = self._checked_positions(positions)
        here._train_samples = replace(
            samples,
            index=tuple(samples.index[i][p] for i, p in enumerate(pick)),
            labels=tuple(samples.labels[i][p] for i, p in enumerate(pick)),
        )
        return here

    def _checked_positions(self, positions: Sequence[Tensor]) -> list[Tensor]:
        given, counts = checked_parts(self, positions), self._train_samples.sizes(range(self.m))
        pick = []
        for i, (one, n) in enumerate(zip(given, counts)):
            found = _check.numbers(f"positions[{i}]", one)
            whole = not found.is_floating_point() and found.dtype != torch.bool and found.ndim == 1
            if not whole or not ((found >= 0) & (found < n)).all():
                raise ValueError(
                    f"positions[{i}] must be whole numbers from 0 to {n - 1}, one for each "
                    f"training sample that is kept, got {one!r}"
                )
            pick.append(found.long().to(self.device))
        return pick

    @torch.inference_mode(False)
    @torch.enable_grad()
    def perform(self, work: Work, who: Tensor) -> dict[str, Tensor]:
        """Let the clients ``who`` do ``work``; returns the rows as they are afterwards."""
        clients = checked_clients(self, who)
        check_work(self, work, clients)
        if not clients:
            return dict(work.rows)
        try:
            return self._perform(work, clients)
        except KeyError as error:
            if error.args[0] in (*work.rows, *work.shared, *work.numbers):
                raise
            raise ValueError(
                f"step {work.step!r} asks for {error}, which the work lacks: it has the rows "
                f"{sorted(work.rows)}, shared {sorted(work.shared)}, numbers {sorted(work.numbers)}"
            ) from error

    def _perform(self, work: Work, clients: Sequence[int]) -> dict[str, Tensor]:
        rows = {n: r.clone() if r.is_inference() else r for n, r in work.rows.items()}
        work = replace(work, rows=rows)
        task = Task(self.network, work, self.settings, self._train_samples, clients, self.k)
        engine = self._engine()
        if engine == "loop":
            return engines.loop(task)
        train = stacked if engine == "stacked" else engines.one_by_one
        chunk, workers = self._chunk(len(clients), work)
        return engines.in_chunks(train, task, chunk, workers)

    @torch.no_grad()
    def evaluate(
        self, w: Tensor, who: Tensor | None = None, split: str = "test"
    ) -> tuple[Tensor, Tensor]:
        """Metric and mean loss of row i of ``w`` on its client's data: two (k,) tensors."""
        clients = checked_clients(self, self.everyone if who is None else who)
        check_models(self, w, clients, split)
        if not clients:
            return w.new_empty(0), w.new_empty(0)
        samples = self._test_samples if split == "test" else self._train_samples
        if self._engine() == "loop":
            return evaluation.evaluate_loop(self.network, w, samples, clients, self.metric)
        chunk, workers = self._chunk(len(clients))
        options = (self.metric, chunk, workers)
        return evaluation.evaluate(self.network, w, samples, clients, *options)

    # ---- descriptions ---------------------------------------------------------------------------

    def plan(self) -> str:
        """A sentence that says which engine trains, how many clients at a time, and why."""
        engine = self._engine()
        chunk, workers = self._chunk(self.m)
        what = "products written out by hand" if self.network.by_hand else "the gradient under vmap"
        what += ", compiled" if self.network.compile else ""
        what += self._layout_in_words()
        shards = f" on each of {workers} threads with one core" if workers > 1 else ""
        why = {
            "loop": "one client after the other: the readable reference",
            "stacked": f"{chunk} of {self.m} clients at once as one stack of models{shards}, "
            + what,
            "threads": f"one client at a time on each of {workers} threads with one core each: "
            + (self._why_not_stacked or "convolutions on a CPU gain less from being stacked"),
        }
        chosen = "chosen" if self.engine == "auto" else "asked for"
        words = f"engine {engine!r} ({chosen}) on {self.device}: {why[engine]}"
        more = precision_in_words(self.precision, self.dtype, self.device, self.network)
        return f"{words}; {more}" if more else words

    def _layout_in_words(self) -> str:
        if not self.network.by_hand or self.device.type != "cpu":
            return ""
        names = [name.removesuffix(".weight") for name in self.network.transposed]
        if not names:
            return ", with matrices stored as torch does"
        return f", with matrices of {', '.join(names)} transposed, which was faster when tried"

    def describe(self) -> dict[str, Any]:
        """Everything a run must agree on to be resumed, as plain data."""
        return {
            "data": self.data.name,
            "samples": self.data.checksum(),
            "partition": _fingerprint(self.partition),
            **super().describe(),
        }

    def __repr__(self) -> str:
        return (
            f"Federation({self.data.name}, {self.partition.name}, {self.m} clients, "
            f"{self.model_name} with {self.d:,} parameters, {self.device})"
        )

    # ---- inside ---------------------------------------------------------------------------------

    def _engine(self) -> str:
        if self.engine != "auto":
            return self.engine
        on_cpu = self.device.type == "cpu"
        alone = self._why_not_stacked or (on_cpu and self.network.convolutional)
        return "threads" if alone else "stacked"

    def _chunk(self, count: int, work: Work | None = None) -> tuple[int, int]:
        """How many of ``count`` clients are trained at once, and on how many threads."""
        cores = torch.get_num_threads() if self.device.type == "cpu" else 1
        if self._engine() == "threads":
            return 1, cores
        if self.chunk is not None:
            return min(self.chunk, count), 1
        plain = work is None or work.step == "descend"
        a_model = self.d * self.dtype.itemsize
        rows = 1 if work is None else len(work.rows)
        each = (5 + rows) * a_model + self._activations  # w, gradient, two moments, rows
        fits = free_memory(self.device) // 2 // (each if plain else 2 * each)
        chunks, workers = 1, 1
        if self.device.type == "cpu":
            optimizer = (work and work.optimizer) or self.settings.optimizer
            kept = a_model if optimizer == "sgd" else 2 * a_model
            at_most = CACHE // kept
            if not plain or not self.network.by_hand:  # vmap gains more from large stacks
                at_most = max(at_most, math.ceil(count / 2))
            elif cores <= FEW_CORES:
                # one core per shard: threads that share an operator wait for the slowest
                chunks = max(1, min(cores, count, count * a_model // SHARD))
                workers, fits = cores, fits // cores
            else:  # all cores on each operator
                at_most *= 3
            fits = min(fits, at_most)
        chunks = max(chunks, math.ceil(count / min(count, max(1, fits))))
        return math.ceil(count / chunks), workers


def _gather(data: Dataset, device: torch.device, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """A function from indices to (normalized) inputs."""
    pool = data.x.to(device)
    if data.kind == "text":
        return lambda index: pool[index]
    if pool.numel() * dtype.itemsize <= NORMALIZE_ONCE:
        once = data.normalized(pool, dtype)
        rows = lambda index: once.index_select(0, index.reshape(-1))  # noqa: E731
        return lambda index: rows(index).view(*index.shape, *once.shape[1:])
    return lambda index: data.normalized(pool[index], dtype)


def _fingerprint(partition: Partition) -> str:
    """The partition's name with a hash of its tables."""
    digest = hashlib.sha256()
    for tables in (partition.train, partition.test, partition.labels or ()):
        for table in tables:
            digest.update(f"{len(table)}:".encode() + table.numpy().tobytes())
    return f"{partition.name}-{digest.hexdigest()[:16]}"


def _check_clients(data: Dataset, partition: Partition) -> None:
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset (see pfl_lib.data.load), got {data!r}")
    if not isinstance(partition, Partition):
        raise TypeError(f"partition must be a Partition (see pfl_lib.partition), got {partition!r}")
    if partition.m < 1:
        raise ValueError("the partition has no client")
    partition.check_source(data)
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
    partition.check_apart()
    labels = partition.labels or ((data.y,) if data.labeled else ())
    for i, y in enumerate(labels):
        if y.min() < 0 or y.max() >= len(data.classes):
            raise ValueError(
                f"a label of client {i} is outside the classes 0 to {len(data.classes) - 1}"
            )


def _check_targets(data: Dataset, partition: Partition, loss: str) -> None:
    """Refuse a loss that does not fit the labels, or targets, of the data."""
    if data.labeled != (loss == "cross_entropy"):
        has = "class labels" if data.labeled else "targets, which are numbers"
        right = "'cross_entropy'" if data.labeled else "'mse' or 'bce'"
        made = "targets of a y of type float"
        if not data.labeled:
            made = "classes of a y of whole numbers (y.astype(int)) or words"
        raise ValueError(
            f"loss must be {right} for {data.name} with {has}, got {loss!r}; "
            f"from_arrays makes {made}"
        )
    if partition.labels is not None and not data.labeled:
        raise ValueError("partition must have no labels of its own where data.y holds targets")
    if loss == "bce" and not bool(((data.y == 0) | (data.y == 1)).all()):
        raise ValueError(
            f"loss='bce' needs targets that are 0 or 1; those of {data.name} reach from "
            f"{data.y.min():g} to {data.y.max():g}"
        )
