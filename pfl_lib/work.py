"""The clients' work in a round: ``Work`` describes it as data, ``train`` is the everyday case.

``Work`` holds a named local step, the tensors it needs, and how long to train.  A *local step* is
written for one client and one batch and does not know where it runs: in a loop, on a stack of
clients, on threads, or on another machine.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from pfl_lib import _check, _deprecated
from pfl_lib._terms import gradient_with_terms, private_gradient

OPTIMIZERS = ("sgd", "adam", "adamw")


class Batch(NamedTuple):
    """One client's data in one step: inputs ``x``, labels ``y``, one ``weight`` per sample (0 for
    padding), ``Work.noise`` uniform random numbers in ``noise``, and ``dropout``, the source of the
    model's dropout masks.  If ``Work.group`` is above 1, a step gets a tuple of batches."""

    x: Tensor
    y: Tensor
    weight: Tensor
    noise: Tensor
    dropout: Any = ()

    @property
    def real(self) -> Tensor:
        """1 for each sample, whatever its weight, and 0 for padding."""
        return (self.weight > 0).to(self.weight.dtype)


class StepClient(Protocol):
    """What a local step may ask of the client it runs for.

    A step gets ``s``, the client's rows of the work and all its shared tensors by name, a ``batch``
    and this ``client``; it returns the tensors that it changes.  Models are vectors ``w``.  The
    engines run a step under ``torch.func.vmap``, so it uses pure tensor operations: no ``if`` on a
    tensor's value, no ``.item()``.

    >>> import pfl_lib
    >>> @pfl_lib.local_step("shrink")
    ... def shrink(s, batch: Batch, client: StepClient):
    ...     g = client.grad(s["w"], batch)
    ...     return client.move(s, g + client.numbers["decay"] * s["w"])
    >>> fed = pfl_lib.example()
    >>> work = Work({"w": fed.initial()}, "shrink", numbers={"decay": 0.5}, steps=3)
    >>> fed.perform(work, fed.everyone)["w"].norm() < fed.initial().norm()
    tensor(True)
    """

    t: int  #: steps made in this phase of local training
    lr: float  #: the learning rate: the work's or else the federation's
    numbers: Mapping[str, float]  #: ``Work.numbers``
    lengths: Sequence[int]  #: how many numbers of ``w`` belong to each tensor of the model

    def loss(self, w: Tensor, batch: Batch) -> Tensor:
        """Mean loss over the batch in training mode."""

    def loss_above(self, below: Tensor, top: Tensor, batch: Batch) -> Tensor:
        """``loss`` of the model (below, top), cut between two tensors."""

    def tested_loss(self, w: Tensor, batch: Batch) -> Tensor:
        """Mean loss over the batch in evaluation mode."""

    def losses(self, models: Tensor, batch: Batch) -> Tensor:
        """``tested_loss`` of each row of ``models``."""

    def loss_of(self, out: Tensor, batch: Batch) -> Tensor:
        """The mean loss of the output ``out`` over the batch."""

    def in_training(self, w: Tensor, batch: Batch) -> Tensor:
        """The model's output for the batch, in training mode."""

    def features_and_logits(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """What the model's head gets, and the output, of one pass in training mode: for steps that
        train features."""

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """The model's output for the inputs ``x``, in evaluation mode: for what is measured."""

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        """What the model's head gets for the inputs ``x``, in evaluation mode."""

    def of_each_sample(self, function: Callable[..., Tensor], *samples: Tensor) -> Tensor:
        """``function`` of each row of ``samples``, stacked."""

    def grad(self, w: Tensor, batch: Batch) -> Tensor:
        """The gradient of ``loss`` at ``w``."""

    def grad_of(self, objective: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
        """The gradient of any scalar ``objective(w, …)`` in its first argument.  ``has_aux``: the
        objective also returns something else, and so does its gradient."""

    def grad_and_loss(self, objective: Callable[[Tensor], Tensor], w: Tensor) -> tuple[Any, Any]:
        """The gradient of a scalar ``objective`` at ``w``, and its value."""

    def move(self, s: Mapping[str, Tensor], g: Tensor, name: str = "w") -> dict[str, Tensor]:
        """One step of the optimizer on ``s[name]`` along the gradient ``g``; the rest of ``s``
        stays.  Rows other than "w" must stand in ``Work.moves``."""


LocalStep = Callable[[Mapping[str, Tensor], Any, StepClient], dict[str, Tensor]]
Step = TypeVar("Step", bound=LocalStep)
STEPS: dict[str, LocalStep] = {}
TOLD: dict[str, "Told"] = {}  # what each step declares about privacy


class Prox(NamedTuple):
    """The penalty (strength / 2)·‖w − center‖², one center per client.

    >>> import pfl_lib
    >>> from pfl_lib.work import train
    >>> fed = pfl_lib.example()
    >>> x = fed.initial()
    >>> free = train(fed, x, fed.everyone)
    >>> held = train(fed, x, fed.everyone, prox=Prox(x, strength=10.0))
    >>> bool((held - x).norm() < (free - x).norm())  # held near x
    True
    """

    center: Tensor
    strength: float | Tensor


class Told(NamedTuple):
    """What a local step declares about privacy: see ``local_step``."""

    reveals: str | None = None
    mixes: str = ""
    private: str | None = None


@dataclass(frozen=True)
class Settings:
    """The default settings of local training.

    ``optimizer`` is "sgd", "adam" or "adamw", or "exact" where local training solves for the
    minimizer.  The last four refine it; a method that names an optimizer gets it without them.
    Without ``shuffle`` samples are used in the order in which the partition lists them.
    """

    lr: float
    optimizer: str
    batch_size: int
    epochs: int
    seed: int
    shuffle: bool = True
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip: float | None = None

    @property
    def refinements(self) -> dict[str, Any]:
        """The settings in which the optimizer differs from its plain form."""
        values = {name: getattr(self, name) for name in REFINEMENTS}
        return {name: value for name, value in values.items() if value}

    def as_data(self) -> dict[str, Any]:
        """As plain data; only those refinements that are set."""
        plain = {name: value for name, value in asdict(self).items() if name not in REFINEMENTS}
        if self.shuffle:
            del plain["shuffle"]
        return plain | self.refinements


REFINEMENTS = ("momentum", "nesterov", "weight_decay", "clip")


@dataclass(frozen=True)
class Work:
    """A description of local work: data, not a closure, so that it can also be sent to a client.

    ``rows`` holds one row per client (``rows["w"]`` are the starting models), ``shared`` the
    tensors that all clients get, ``numbers`` plain numbers.  ``steps`` replaces ``epochs`` where a
    method counts batches.  ``repeats`` is how often each batch is used before the next, ``group``
    how many batches make one step, ``share`` the fraction of the local data that is used, ``noise``
    how many uniform random numbers a step needs, ``moves`` the rows that the optimizer updates.
    ``tag`` keys the randomness, so that two phases of one round see different batches. ``uploaded``
    says whether the trained ``w`` is sent to the server or stays with the client.

    >>> import pfl_lib
    >>> fed = pfl_lib.example()
    >>> work = Work(rows={"w": fed.initial()}, steps=5)
    >>> fed.perform(work, fed.everyone)["w"].shape == fed.initial().shape
    True
    """

    rows: Mapping[str, Tensor]
    step: str = "descend"
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    epochs: int | None = None
    steps: int | None = None
    lr: float | None = None
    optimizer: str | None = None
    batch_size: int | None = None
    repeats: int = 1
    group: int = 1
    share: float = 1.0
    noise: int = 0
    moves: tuple[str, ...] = ("w",)
    tag: str = ""
    uploaded: bool = True

    def __post_init__(self) -> None:
        _check.one_of("step", self.step, STEPS)
        for name in ("rows", "shared", "numbers"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"{name} must be a dictionary, got {getattr(self, name)!r}")
        if "w" not in self.rows:
            raise ValueError(f'rows must hold "w", the starting models; got {sorted(self.rows)}')
        object.__setattr__(self, "moves", _check.several("moves", self.moves, "names"))
        for name in self.moves:
            _check.one_of("moves", name, self.rows)
        if not isinstance(self.tag, str):
            raise TypeError(f"tag must be text, got {self.tag!r}")
        _check.whole("repeats", self.repeats)
        _check.whole("group", self.group)
        _check.whole("noise", self.noise, at_least=0)
        if not _check.between("share", self.share, 0, 1) > 0:
            raise ValueError(f"share must lie in (0, 1], got {self.share!r}")
        for name, least in (("epochs", 0), ("steps", 0), ("batch_size", 1)):
            if getattr(self, name) is not None:
                _check.whole(name, getattr(self, name), at_least=least)
        if self.lr is not None:
            object.__setattr__(self, "lr", _check.non_negative("lr", self.lr))
        if self.optimizer is not None:
            _check.one_of("optimizer", self.optimizer, OPTIMIZERS)
        if not isinstance(self.uploaded, bool):
            raise TypeError(f"uploaded must be True or False, got {self.uploaded!r}")
        _check_numbers(self)


def _check_numbers(work: Work) -> None:
    """Refuse numbers that nobody would read."""
    if work.numbers and work.step == "descend":
        got = dict(work.numbers)
        raise ValueError(f"numbers must be empty: step 'descend' reads none, got {got!r}")


def local_step(
    name: str, reveals: str | None = None, mixes: str = "", private: str | None = None
) -> Callable[[Step], Step]:
    """Register a method's own local step under ``name``; ``StepClient`` says what it gets.

    What it declares decides where it may run with privacy.  ``reveals`` says in words what of its
    result leaves the client beside the model ``w``, "" that nothing does; ``mixes``, what else of
    its result becomes part of the model that is sent; ``private``, which step does the same with
    gradients that are private in each sample.  A step without ``reveals`` is refused by
    ``pfl_lib.privacy``, which then cannot know.

    A name that belongs to another function is refused.  The same function, by module and name, may
    be registered again, so that a notebook's cell can be run twice and a module reloaded.

    >>> import pfl_lib
    >>> @local_step("towards zero")
    ... def towards_zero(s, batch, client):
    ...     return {**s, "w": 0.5 * s["w"]}
    >>> fed = pfl_lib.example()
    >>> rows = {"w": torch.ones(fed.m, fed.d)}
    >>> done = fed.perform(Work(rows=rows, step="towards zero", steps=2), fed.everyone)
    >>> done["w"][0, 0]
    tensor(0.2500)
    """

    told = Told(reveals, mixes, private)
    for what, text in told._asdict().items():
        if not isinstance(text, (str, type(None))):
            raise TypeError(f"{what} must be text, got {text!r}")

    def register(function: Step) -> Step:
        taken = STEPS.get(name)
        if taken is not None and _full_name(taken) != _full_name(function):
            raise ValueError(
                f"local step {name!r} is already registered by {_full_name(taken)}; "
                f"choose another name for {_full_name(function)}"
            )
        STEPS[name], TOLD[name] = function, told
        return function

    return register


def _full_name(function: Callable) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@local_step("descend", reveals="", private="private descend")
def descend(s: Mapping[str, Tensor], batch: Batch, client: StepClient) -> dict[str, Tensor]:
    """One step on the loss, with whichever of penalty, correction and mask the work holds.

    Rows "steps", where the work has them, count the steps.
    """
    moved = client.move(s, gradient_with_terms(client.grad(s["w"], batch), s))
    return moved | {"steps": s["steps"] + 1} if "steps" in s else moved


@local_step("private descend", reveals="")
def private_descend(s: Mapping[str, Tensor], batch: Batch, client: StepClient) -> dict[str, Tensor]:
    """``descend`` along a gradient that is private in each sample; the other terms see no data."""
    g = private_gradient(client.loss, s["w"], batch, client, s.get("mask"))
    moved = client.move(s, gradient_with_terms(g, s))
    return moved | {"steps": s["steps"] + 1} if "steps" in s else moved


def train(
    fed: Any,
    start: Tensor,
    who: Tensor,
    *,
    prox: Prox | None = None,
    correction: Tensor | None = None,
    mask: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Ordinary local training of the clients ``who`` from the rows of ``start``; the trained rows.

    Optional: a proximal term, a vector added to every gradient, a mask of the coordinates that may
    move, and what ``Work`` takes (``epochs``, ``steps``, ``lr``, ``optimizer``, ``batch_size``,
    ``repeats``, ``tag``, ``uploaded``).

    >>> import pfl_lib
    >>> fed = pfl_lib.example()
    >>> trained = pfl_lib.train(fed, fed.initial(), fed.everyone, epochs=2)
    >>> before, after = fed.evaluate(fed.initial()), fed.evaluate(trained)
    >>> bool(after[0].mean() > before[0].mean())
    True
    """
    if not hasattr(fed, "perform"):
        raise TypeError(f"fed must be a Federation, got {fed!r}")
    rows, shared = {"w": start}, {}
    if prox is not None:
        given = _checked_strength(prox, len(start))
        strength = torch.as_tensor(given, dtype=fed.dtype, device=fed.device)
        rows |= {"center": prox.center, "strength": strength.expand(len(start))}
        _warn_of_overshooting(fed, given, options)
    if correction is not None:
        rows["correction"] = correction
    if mask is not None:
        shared["mask"] = _checked_mask(fed, mask)
    return fed.perform(Work(rows=rows, shared=shared, **options), who)["w"]


class DeprecatedTrain:
    """``fed.train(...)``, from before ``train`` became a function."""

    def train(self, start: Tensor, who: Tensor, **options: Any) -> Tensor:
        """Deprecated: ``pfl_lib.train(fed, start, who, ...)``."""
        _deprecated.warn("fed.train(...)", "pfl_lib.train(fed, ...)")
        return train(self, start, who, **options)


def _checked_strength(prox: Prox, clients: int) -> float | Tensor:
    """The strength of ``prox``: a float, or a tensor, whose values are not read."""
    if not isinstance(prox, Prox):
        raise TypeError(f"prox must be a Prox(center, strength), got {prox!r}")
    strength = prox.strength
    if not isinstance(strength, Tensor):
        return _check.non_negative("strength", strength)
    shapes = (), (1,), (clients,)
    if strength.shape not in shapes or not strength.is_floating_point() or strength.is_meta:
        raise ValueError(
            f"strength must be one floating number, or one for each of {clients} clients, "
            f"got {strength!r}"
        )
    return strength


def _checked_mask(fed: Any, mask: Tensor) -> Tensor:
    mask = _check.numbers("mask", mask)
    if mask.shape != (fed.d,):
        raise ValueError(
            f"mask must have shape ({fed.d},), the same coordinates for all clients; "
            f"got {tuple(mask.shape)}"
        )
    if mask.dtype != torch.bool and not ((mask == 0) | (mask == 1)).all():
        raise ValueError("mask must be True or False, or 1 and 0; got other numbers among them")
    return mask.to(fed.device, fed.dtype)


def _warn_of_overshooting(fed: Any, strength: Any, options: Mapping[str, Any]) -> None:
    """The penalty adds strength·(w − center) to the gradient: SGD diverges if lr·strength > 2."""
    if isinstance(strength, Tensor) and strength.device.type != "cpu":
        return  # reading it would synchronize with the GPU
    if (options.get("optimizer") or fed.settings.optimizer) != "sgd":
        return
    lr = options.get("lr") or fed.settings.lr
    strongest = float(torch.as_tensor(strength).max())
    if lr * strongest > 2:
        warnings.warn(
            f"the proximal term of strength {strongest:g} (1/β) makes SGD with lr = {lr:g} "
            f"overshoot farther with every step; lr <= {1 / strongest:.2g} is safe",
            stacklevel=3,
        )
