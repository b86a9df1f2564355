"""What federations with a torch model have in common, wherever their clients are."""

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from pfl_lib import _check, models
from pfl_lib.data.dataset import SampleForm
from pfl_lib.local.network import Network, activation_bytes, channels_last
from pfl_lib.random import keyed_generator
from pfl_lib.work import DeprecatedTrain, Settings


class ModelFederation(DeprecatedTrain):
    """One shape of model, its initial values, how to train it, and how many samples clients have.

    A base class: subclasses know where the clients are and give ``with_part``, ``perform`` and
    ``evaluate``.
    """

    k = 0  # the round, part of every random draw; see ``at``
    sample_counts: Sequence[int]
    layers: list[tuple[str, slice]]

    def __init__(
        self,
        model: str | nn.Module,
        form: SampleForm,
        sample_counts: Sequence[int],
        *,
        lr: float = 0.01,
        optimizer: str = "sgd",
        batch_size: int = 32,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        init_seed: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        self.settings = Settings(
            lr=_check.positive("lr", lr),
            optimizer=_check.one_of("optimizer", optimizer, ("sgd", "adam")),
            batch_size=_check.whole("batch_size", batch_size),
            epochs=_check.whole("epochs", epochs),
            seed=_check.whole("seed", seed, at_least=0),
            shuffle=_check.flag("shuffle", shuffle),
        )
        self.device = checked_device(device)
        self.dtype = _check.one_of("dtype", dtype, (torch.float32, torch.float64, torch.bfloat16))
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
        self.network = Network(module)
        flat = [p.detach().reshape(-1) for p in module.parameters()]
        self._initial = torch.cat(flat).to(self.device, self.dtype)
        self.layers = _layers(module, self.network)
        self.head_mask = self._mask_of(_head(module))
        self.network.channels_last, kept = _tried_out(
            module, form, min(self.settings.batch_size, max(self.sample_counts))
        )
        self._activations = kept * self.dtype.itemsize // 4  # bytes of one client's batch

    @property
    def m(self) -> int:
        """Number of clients."""
        return len(self.sizes)

    @property
    def d(self) -> int:
        """Number of parameters of a model."""
        return self.network.d

    @property
    def everyone(self) -> Tensor:
        """The indices of all clients."""
        return torch.arange(self.m, device=self.device)

    def initial(self) -> Tensor:
        """The common random initial model, one row per client."""
        return self._initial.repeat(self.m, 1)

    def at(self, k: int) -> Self:
        """This federation in round ``k``: the same clients, that round's batches."""
        here = copy.copy(self)
        here.k = k
        return here

    def describe(self) -> dict[str, Any]:
        """What a run must agree on to be resumed, as plain data: model and training."""
        own = {}
        if self._given_module:  # a name of a class does not say what is inside
            inside = (
                str(self.network.module).encode() + self._initial.double().cpu().numpy().tobytes()
            )
            own["module"] = hashlib.sha256(inside).hexdigest()[:16]
        return {
            "model": self.model_name,
            **own,
            "parameters": self.d,
            "init_seed": self.init_seed,
            "dtype": str(self.dtype),
            **{n: v for n, v in asdict(self.settings).items() if (n, v) != ("shuffle", True)},
        }

    @property
    def tensors(self) -> list[tuple[str, slice]]:
        """Ordered (name, columns) of the model's parameter tensors; a layer may have several."""
        return list(self.network.slices())

    @property
    def head_bias(self) -> Tensor | None:
        """Where the bias is that is added to the logits: its columns, or None if there is none.

        The last vector among the head's parameters; whether the logits move with it is tried out.
        """
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
        before = self.network.logits(w, x)
        after = self.network.logits(w.index_add(0, columns.cpu(), shift), x)
        return shift.shape == before.shape[1:] and torch.allclose(after, before + shift)

    def _mask_of(self, prefixes: tuple[str, ...]) -> Tensor:
        mask = torch.zeros(self.d, dtype=torch.bool)
        for name, where in self.network.slices():
            if name.startswith(prefixes):
                mask[where] = True
        return mask.to(self.device)


def checked_device(device: str | torch.device | None) -> torch.device:
    """The device, which must be one that this machine has; None is a GPU where there is one."""
    try:
        found = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be None, or a device of torch such as 'cpu' or 'cuda:0', got {device!r}"
        ) from error
    try:
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        here = ", ".join(repr(name) for name in present_devices())
        why = str(error).splitlines()[0]
        raise ValueError(
            f"device must be one that this machine has, {here}; got {device!r} ({why})"
        ) from error
    return found


def present_devices() -> list[str]:
    """The devices that can be used here, as torch calls them."""
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *gpus, *["mps"] * torch.backends.mps.is_available()]


def _head(module: nn.Module) -> tuple[str, ...]:
    """How the names of the head's parameters begin: what the module says, or its part "head"."""
    head = getattr(module, "head", ())
    if isinstance(head, nn.Module):
        return ("head.",)
    if isinstance(head, nn.Parameter):
        return ("head",)
    return (head,) if isinstance(head, str) else tuple(head)


def _layers(module: nn.Module, network: Network) -> list[tuple[str, slice]]:
    """Ordered (name, slice) of the layers, weight and bias together."""
    place = dict(network.slices())
    return [
        (name, slice(place[names[0]].start, place[names[-1]].stop))
        for name, names in models.layers(module)
    ]


@torch.no_grad()
def _tried_out(module: nn.Module, form: SampleForm, batch_size: int) -> tuple[bool, int]:
    """Refuse a module that cannot tell the classes of such samples.

    Otherwise: may images lie channels last (a forward with ``x.view(len(x), -1)``, as many
    textbooks have it, cannot read those), and how many bytes autograd keeps for one batch.
    """
    x = form.blank(3)
    x = x.to(next((p.device for p in module.parameters()), x.device))
    module = copy.deepcopy(module).float()
    try:
        out = module(x)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{type(module).__name__} cannot take samples of {form.name}, a batch of which has "
            f"shape {tuple(x.shape)}: {error}"
        ) from error
    if out.ndim != 2 or out.shape[1] < len(form.classes):
        raise ValueError(
            f"{type(module).__name__} must give {len(form.classes)} numbers for a sample, one for "
            f"each class of {form.name}; it gives shape {tuple(out.shape)} for {len(x)} samples"
        )
    kept = activation_bytes(module, x, batch_size)
    try:
        module.to(memory_format=torch.channels_last)(channels_last(x))  # type: ignore[call-overload]
    except RuntimeError:
        return False, kept
    return True, kept
