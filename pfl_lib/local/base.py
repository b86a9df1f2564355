"""The common base of federations with a torch model, wherever their clients are."""

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from pfl_lib import _check, _objectives, _schedules, models
from pfl_lib.data.dataset import SampleForm
from pfl_lib.federation import checked_clients
from pfl_lib.local.network import Network, activation_bytes, channels_last
from pfl_lib.local.parts import NORMALIZATION, refuse_unsupported, state_buffers
from pfl_lib.local.precision import checked_precision
from pfl_lib.random import keyed_generator
from pfl_lib.work import OPTIMIZERS, DeprecatedTrain, Settings


class ModelFederation(DeprecatedTrain):
    """The model, its initial values, the settings of training, and the clients' sample counts.

    A base class: subclasses know where the clients are and implement ``with_part``, ``perform`` and
    ``evaluate``.
    """

    k = 0  # the round, part of every random key; see ``at``
    sample_counts: Sequence[int]
    layers: list[tuple[str, slice]]
    groups: Tensor | None = None  # of federations that know the clients' groups

    def __init__(
        self,
        model: str | nn.Module,
        form: SampleForm,
        sample_counts: Sequence[int],
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
        loss: str = "cross_entropy",
        metric: str | None = None,
    ):
        self.loss, self.metric = _objectives.checked(loss, metric)
        first = _schedules.at_round("lr", lr, 0)
        # the whole schedule; ``settings.lr`` is the current round's value
        self.lr = tuple(lr) if isinstance(lr, (tuple, list)) else first
        _check_optimizer(optimizer, momentum, nesterov)
        if weight_decay is None:
            weight_decay = 0.01 if optimizer == "adamw" else 0.0  # as torch has it
        self.settings = Settings(
            lr=first,
            optimizer=optimizer,
            momentum=float(momentum),
            nesterov=nesterov,
            weight_decay=float(_check.non_negative("weight_decay", weight_decay)),
            clip=None if clip is None else _check.positive("clip", clip),
            batch_size=_check.whole("batch_size", batch_size),
            epochs=_check.whole("epochs", epochs),
            seed=_check.whole("seed", seed, at_least=0),
            shuffle=_check.flag("shuffle", shuffle),
        )
        self.device = checked_device(device)
        self.dtype = _check.one_of("dtype", dtype, (torch.float32, torch.float64, torch.bfloat16))
        self.precision = checked_precision(precision, self.dtype, self.device)
        init_seed = self.settings.seed if init_seed is None else init_seed
        self.init_seed = _check.whole("init_seed", init_seed, at_least=0)
        self.sample_counts = tuple(sample_counts)
        self.sizes = torch.tensor(self.sample_counts, dtype=dtype).to(self.device)
        self.form = form
        self._set_model(model, form)

    def _set_model(self, model: str | nn.Module, form: SampleForm) -> None:
        if not isinstance(model, (str, nn.Module)):
            raise TypeError(f"model must be a name or an nn.Module, got {model!r}")
        self.model_name = model if isinstance(model, str) else type(model).__name__
        self._given_module = isinstance(model, nn.Module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(keyed_generator(self.init_seed, "initial model").initial_seed())
            module = model if isinstance(model, nn.Module) else models.build(model, form)
        _check_module(module)
        _check_output(module, form, self.loss, dry=self._given_module)
        state = state_buffers(module, _some_samples(module, form)) if _may_vary(module) else ()
        self.network = Network(module, state, self.device, self.dtype)
        self.network.objective, self.network.precision = self.loss, self.precision
        flat = [t.detach().reshape(-1) for t in self.network.columns_of(module)]
        self._initial = torch.cat([t.to(self.device, self.dtype) for t in flat])
        self.layers = _layers(module, self.network)
        self.head_mask = self._mask_of(models.head_prefixes(module))
        self.buffer_mask = torch.arange(self.d, device=self.device) >= self.network.trained
        self.norm_mask = self._mask_of(_norms(module))
        self.network.channels_last, kept = _probe(
            module, form, min(self.settings.batch_size, max(self.sample_counts))
        )
        self._activations = kept * self.dtype.itemsize // 4  # bytes of one client's batch
        self._found: dict[str, Any] = {}

    @property
    def m(self) -> int:
        """Number of clients."""
        return len(self.sizes)

    @property
    def d(self) -> int:
        """Length of a row: trainable parameters, and the buffers that training updates (running
        statistics).  Frozen parameters are not part of it."""
        return self.network.d

    @property
    def everyone(self) -> Tensor:
        """The indices of all clients."""
        return torch.arange(self.m, device=self.device)

    def initial(self, who: Tensor | None = None) -> Tensor:
        """The common random initial model, one row per client, or per client of ``who``."""
        count = self.m if who is None else len(checked_clients(self, who))  # type: ignore[arg-type]
        return self._initial.repeat(count, 1)

    def at(self, k: int) -> Self:
        """This federation in round ``k``: the same clients with that round's batches."""
        here = copy.copy(self)
        here.k = _check.whole("k", k, at_least=0)
        if isinstance(self.lr, tuple):
            here.settings = replace(self.settings, lr=_schedules.at_round("lr", self.lr, k))
        return here

    def describe(self) -> dict[str, Any]:
        """Everything a run must agree on to be resumed, as plain data: model and training."""
        own = {}
        if self._given_module:  # a class name does not identify the architecture
            inside = hashlib.sha256(str(self.network.module).encode())
            for t in (self._initial, *(t for _, t in self.network.constants())):
                inside.update(t.detach().double().cpu().contiguous().numpy().tobytes())
            own["module"] = inside.hexdigest()[:16]
        return {
            "model": self.model_name,
            **own,
            "parameters": self.d,
            "init_seed": self.init_seed,
            "dtype": str(self.dtype),
            **({"precision": self.precision} if self.precision != "full" else {}),
            **self.settings.as_data(),
            **({"lr": _schedules.as_data(self.lr)} if isinstance(self.lr, tuple) else {}),
            **({"loss": self.loss} if self.loss != "cross_entropy" else {}),
            **({"metric": self.metric} if self.metric != "accuracy" else {}),
        }

    @property
    def tensors(self) -> list[tuple[str, slice]]:
        """Ordered (name, columns) of the model's parameter tensors; a layer may have several."""
        return list(self.network.slices())

    @property
    def head_bias(self) -> Tensor | None:
        """The columns of the bias that is added to the logits, or None if there is none.

        It is the last bias among the head's parameters, if shifting it shifts the logits.
        """
        if "head bias" not in self._found:
            self._found["head bias"] = self._find_head_bias()
        return self._found["head bias"]

    def _find_head_bias(self) -> Tensor | None:
        for name, where in reversed(list(self.network.slices())):
            if self.head_mask[where].all() and "bias" in name.rpartition(".")[2]:
                columns = torch.arange(where.start, where.stop, device=self.device)
                return columns if self._added_to_logits(columns) else None
        return None

    @torch.no_grad()
    def _added_to_logits(self, columns: Tensor) -> bool:
        w, x = self._initial.double().cpu(), self.form.blank(3)
        x = x.double() if x.is_floating_point() else x
        shift = torch.linspace(-1, 1, len(columns), dtype=w.dtype)
        before = self.network.filled(w).double().eval()(x)
        after = self.network.filled(w.index_add(0, columns.cpu(), shift)).double().eval()(x)
        return shift.shape == before.shape[1:] and torch.allclose(after, before + shift)

    @property
    def linear_head(self) -> tuple[int, int, int] | None:
        """(first column, classes, features) of a head that is one linear layer with a bias on top
        of the module's ``features``; None if it is none.

        First the rows of its matrix, then its bias; verified on blank samples.
        """
        if "linear head" not in self._found:  # shared with this federation in other rounds
            self._found["linear head"] = self._find_linear_head()
        return self._found["linear head"]

    def _find_linear_head(self) -> tuple[int, int, int] | None:
        if self.head_bias is None or not hasattr(self.network.module, "features"):
            return None
        columns = self.head_mask.cpu().nonzero().flatten().tolist()
        first, classes = columns[0], len(self.head_bias)
        width = len(columns) // classes - 1
        contiguous = columns == list(range(first, first + classes * (width + 1)))
        return (first, classes, width) if contiguous and self._is_linear(first, width) else None

    @torch.no_grad()
    def _is_linear(self, first: int, width: int) -> bool:
        w, x = self._initial.double().cpu(), self.form.blank(3)
        x = x.double() if x.is_floating_point() else x
        module = self.network.filled(w).double().eval()
        features, logits = module.features(x), module(x)  # type: ignore[operator]
        if features.shape != (len(x), width):
            return False
        size = logits.shape[1] * width
        matrix, bias = w[first : first + size].view(-1, width), w[first + size :][: logits.shape[1]]
        return torch.allclose(features @ matrix.T + bias, logits)

    def _mask_of(self, prefixes: tuple[str, ...]) -> Tensor:
        mask = torch.zeros(self.d, dtype=torch.bool)
        for name, where in self.network.slices():
            if name.startswith(prefixes):
                mask[where] = True
        return mask.to(self.device)


def _check_optimizer(optimizer: Any, momentum: Any, nesterov: Any) -> None:
    _check.one_of("optimizer", optimizer, OPTIMIZERS)
    _check.between("momentum", momentum, 0, 1, "[)")
    _check.flag("nesterov", nesterov)
    if momentum and optimizer != "sgd":
        raise ValueError(f"momentum must be 0 with optimizer={optimizer!r}, which has its own")
    if nesterov and not momentum:
        raise ValueError("nesterov must be False where momentum is 0")


def checked_device(device: str | torch.device | None) -> torch.device:
    """The device, which this machine must have; None means a GPU if there is one."""
    try:
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"device must be None, or a device of torch such as 'cpu' or 'cuda:0', got {device!r}"
        ) from error
    try:
        torch.empty(0, device=found).cpu()  # the device 'meta' holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        here = ", ".join(repr(name) for name in present_devices())
        why = str(error).splitlines()[0]
        raise ValueError(
            f"device must be one that this machine has, {here}; got {device!r} ({why})"
        ) from error
    return found


def present_devices() -> list[str]:
    """The devices available here, by their names in torch."""
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *gpus, *["mps"] * torch.backends.mps.is_available()]


def _norms(module: nn.Module) -> tuple[str, ...]:
    """The name prefixes of the normalization layers."""
    named = module.named_modules()
    return tuple(f"{name}." if name else "" for name, p in named if isinstance(p, NORMALIZATION))


def _layers(module: nn.Module, network: Network) -> list[tuple[str, slice]]:
    """Ordered (name, slice) of the layers, weight and bias as one."""
    place = dict(network.slices())
    return [
        (name, slice(place[names[0]].start, place[names[-1]].stop))
        for name, names in models.layers(module)
    ]


def _may_vary(module: nn.Module) -> bool:
    """Whether the module has buffers, or parts from elsewhere, that must be probed for state."""
    known = all(
        type(part).__module__.startswith(("torch.nn", "pfl_lib")) for part in module.modules()
    )
    return not known or any(True for _ in module.buffers())


def _some_samples(module: nn.Module, form: SampleForm) -> Tensor:
    """Three samples in the module's input form; random, so that running statistics change."""
    x = form.blank(3)
    if x.is_floating_point():
        x = torch.rand(x.shape, generator=keyed_generator(0, "samples"), dtype=torch.float32)
    return x.to(next((p.device for p in module.parameters()), x.device))


def _check_module(module: nn.Module) -> None:
    """Refuse modules that cannot be called with other parameters than their own."""
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    for part in module.modules():
        kind = type(part).__name__
        if isinstance(part, parallel):
            raise ValueError(f"model must be the module inside {kind}: give model.module")
        if isinstance(part, torch.jit.ScriptModule) or hasattr(part, "_orig_mod"):
            raise ValueError(f"model must be a plain nn.Module, as it was before {kind}")
        if any(nn.parameter.is_lazy(p) for p in part.parameters(recurse=False)):
            raise ValueError(f"model must know its sizes: call it once on a batch for {kind}")
    refuse_unsupported(module)
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ValueError("model must hold numbers; its parameters are on the device 'meta'")


@torch.enable_grad()
def _check_output(module: nn.Module, form: SampleForm, loss: str, dry: bool) -> None:
    """Refuse a module whose output does not fit the classes, or the targets, of such samples; of
    one from elsewhere (``dry``) also in training, and where no gradient comes back."""
    x, kind = _some_samples(module, form), type(module).__name__
    module = copy.deepcopy(module).float()
    for training in (False, True)[: 1 + dry]:
        try:
            with torch.random.fork_rng(devices=[]):
                out = module.train(training)(x)
        except Exception as error:  # whatever the author of the module raises
            raise ValueError(
                f"{kind} cannot take samples of {form.name}, a batch of which has shape "
                f"{tuple(x.shape)}: {error}"
            ) from error
        _check_form(out, kind, len(x), form, loss)
    if dry:
        trained = [p for p in module.parameters() if p.requires_grad]
        try:
            found = torch.autograd.grad(out.sum(), trained, allow_unused=True)
        except RuntimeError as error:
            raise ValueError(
                f"{kind} gives no gradient ({error}): forward must not use detach, no_grad, .data "
                "or numpy between the parameters and its output"
            ) from error
        if all(g is None for g in found):
            raise ValueError(f"{kind} gives no gradient: its output uses none of its parameters")


def _check_form(out: Any, kind: str, count: int, form: SampleForm, loss: str) -> None:
    wanted, exact = len(form.classes), loss != "cross_entropy"
    what = "target" if exact else "class"
    right = (
        f"{kind} must give {wanted} numbers per sample, one number for each {what} of {form.name}"
    )
    if not isinstance(out, Tensor):
        raise TypeError(f"{right}; it gives {type(out).__name__}: return the logits alone")
    rows_fit = out.ndim == 2 and len(out) == count and out.is_floating_point()
    if not rows_fit or out.shape[1] < wanted or (exact and out.shape[1] != wanted):
        got = f"{out.dtype} of shape {tuple(out.shape)}"
        raise ValueError(f"{right}; it gives {got} for {count} samples")


@torch.no_grad()
def _probe(module: nn.Module, form: SampleForm, batch_size: int) -> tuple[bool, int]:
    """May images lie channels last (a forward with ``x.view(len(x), -1)``, as many textbooks have
    it, cannot read those), and how many bytes does autograd keep for one batch?"""
    x = _some_samples(module, form)
    module = copy.deepcopy(module).float()
    with torch.random.fork_rng(devices=[]):
        kept = activation_bytes(module, x, batch_size)
    try:
        module.eval().to(memory_format=torch.channels_last)(channels_last(x))  # type: ignore[call-overload]
    except RuntimeError:
        return False, kept
    return True, kept
