"""The base of all methods: frozen hyper-parameters, facts, and a round in three steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pfl_lib import _check, _deprecated
from pfl_lib.federation import Federation
from pfl_lib.work import train

#: Families in the order of lists and tables; others come after these.
FAMILIES = (
    "alone",
    "one model",
    "fine-tuning",
    "a model beside the global one",
    "some layers",
    "a model for each cluster",
    "pair by pair",
    "late clients",
)


class State(Mapping[str, Any]):
    """Named tensors, read as attributes and never changed in place; the content of a checkpoint.

    >>> state = State(w=torch.zeros(3, 2))
    >>> state = state.put(torch.tensor([1]), w=torch.ones(1, 2))
    >>> state
    State(w: (3, 2))
    >>> state.w
    tensor([[0., 0.],
            [1., 1.],
            [0., 0.]])
    """

    def __init__(self, **tensors: Any):
        self._tensors = tensors

    def put(self, who: Tensor, **rows: Tensor) -> "State":
        """The state with the rows of the clients ``who`` replaced."""
        self._check_rows(who, rows)
        new = {name: self[name].index_copy(0, who, r) for name, r in rows.items()}
        return State(**{**self._tensors, **new})

    def _check_rows(self, who: Tensor, rows: Mapping[str, Tensor]) -> None:
        for name, new in rows.items():
            old = self._tensors[_check.one_of("name of rows", name, self)]
            shape = (len(_check.numbers("who", who)), *old.shape[1:])
            if getattr(new, "shape", None) != shape or new.dtype != old.dtype:
                got = f"{new.dtype} of {tuple(new.shape)}" if isinstance(new, Tensor) else new
                raise ValueError(
                    f"{name} must be {old.dtype} of shape {shape}, one row per client of who; "
                    f"got {got!s}"
                )

    def set(self, **tensors: Any) -> "State":
        """The state with whole tensors replaced or added."""
        return State(**{**self._tensors, **tensors})

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_tensors"][name]
        except KeyError:
            raise AttributeError(f"the state holds {sorted(self)}, not {name!r}") from None

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        shapes = (f"{n}: {tuple(getattr(t, 'shape', ()))}" for n, t in self.items())
        return f"State({', '.join(shapes)})"


@dataclass(frozen=True)
class Algorithm:
    """A method.  In this base class every client trains alone; a subclass overrides the steps of
    the round in which it differs, and states its facts.

    A round has three steps: ``download`` gives the clients their models, ``local`` trains them and
    adds whatever else the clients compute, ``upload`` makes the next state of the results.

    >>> import pfl_lib
    >>> @dataclass(frozen=True)
    ... class LastOneWins(Algorithm):
    ...     name, label = "last", "Last one wins"
    ...
    ...     def upload(self, state, done, fed, who):
    ...         return state.put(who, w=done.w[-1:].expand_as(done.w))
    >>> history = pfl_lib.run(LastOneWins(), pfl_lib.example(), rounds=1, progress=False)
    >>> history.label, history.accuracy[0][0] > 0
    ('Last one wins', True)
    """

    # ---- names, and the place in lists
    name: ClassVar[str]  # in code: pfl_lib.algorithm(name)
    label: ClassVar[str]  # in tables and figures
    family: ClassVar[str] = ""  # one of FAMILIES
    order: ClassVar[int] = 100  # the place in the family; names break ties
    place: ClassVar[tuple[int, int, int] | None] = None  # on the map, see pfl_lib.comparison

    # ---- description
    idea: ClassVar[str] = ""
    note: ClassVar[str] = ""  # good to know beside the equations
    equations: ClassVar[list[str]] = []  # labels in the book
    chapter: ClassVar[str] = ""  # the notebook that explains it
    paper: ClassVar[str] = ""
    shared: ClassVar[str] = ""  # what clients share
    private: ClassVar[str] = ""  # what stays with each client
    weights_by: ClassVar[str] = ""  # what decides how much each client counts
    cost: ClassVar[str] = "2Σ"  # parameters per client and round; Σ is one model
    tested: ClassVar[str] = "the client's own model, trained"
    newcomer: ClassVar[str] = "the mean of all personal models, trained locally for a round"

    # ---- properties
    partial: ClassVar[bool] = True  # may clients stay away from a round?
    handed: ClassVar[str] = ""  # the one model each client receives to begin from, if it does
    needs_groups: ClassVar[bool] = False  # does it need clients whose groups are known?
    #: hyper-parameters without a usable default, with examples
    needs: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _deprecated.present_methods(cls)

    def __post_init__(self) -> None:
        """Check the hyper-parameters; a subclass with further checks calls this, too."""
        for one in fields(self):
            value = getattr(self, one.name)
            if "check" in one.metadata:
                one.metadata["check"](one.name, value)
            if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
                object.__setattr__(self, one.name, value.item())  # of NumPy or torch: a number

    # ---- the run

    def start(self, fed: Federation) -> State:
        """The state before the first round: by default a common random model for every client."""
        return State(w=fed.initial())

    def round(self, state: State, fed: Federation, who: Tensor) -> State:
        """One round with the clients ``who``."""
        if not isinstance(state, State):
            raise TypeError(f"state must be the State of the round before, got {state!r}")
        received = self.download(state, fed, who)
        done = self.local(state, received, fed, who)
        return self.upload(state, done, fed, who)

    def download(self, state: State, fed: Federation, who: Tensor) -> State:
        """The start of the round for the clients ``who``: ``w``, one model per client, and whatever
        else they are sent.  By default their own models."""
        return State(w=state.w[who])

    def local(self, state: State, received: State, fed: Federation, who: Tensor) -> State:
        """The clients' work: what they ``received``, with ``w`` trained."""
        return received.set(w=train(fed, received.w, who))

    def upload(self, state: State, done: State, fed: Federation, who: Tensor) -> State:
        """The next state, made from the clients' results ``done``."""
        return state.put(who, w=done.w)

    # ---- evaluation

    def personal(self, state: State, fed: Federation) -> Tensor:
        """The model each client would use now, one row per client: these are tested.

        Where the state holds a global model ``x``, this must also work with one row per client in
        its place.
        """
        return state.w

    def extra_models(self, state: State, fed: Federation) -> dict[str, Tensor]:
        """Other models worth testing beside the personal ones."""
        return {}

    def newcomer_models(self, state: State, fed: Federation, newcomers: Federation) -> Tensor:
        """The model of each client of ``newcomers``, a federation that took no part in any round
        of ``fed``: one row per newcomer, as described in ``newcomer``.

        A newcomer may train as much as a client does in one round; other clients are unaffected.
        """
        shares = fed.sizes / fed.sizes.sum()
        mean = shares.to(fed.dtype) @ self.personal(state, fed)
        begin = mean.expand(newcomers.m, -1)
        return train(newcomers, begin, newcomers.everyone, tag="newcomer", uploaded=False)

    def sent(self, fed: Federation, who: Tensor, k: int) -> int:
        """Number of parameters sent in round ``k``, down and up, by all clients together."""
        return 2 * fed.d * len(who)

    # ---- introspection

    def settings(self) -> dict[str, Any]:
        """The hyper-parameters as plain data."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def handed_layers(self, fed: Federation) -> Sequence[tuple[str, slice]]:
        """The layers of the model that clients receive."""
        return fed.layers

    def why_not_mixed(self) -> str:
        """Why ALA cannot replace the received model by the client's own mix; "" if it can."""
        if self.handed:
            return ""
        return (
            "algorithm must hand every client one model to begin its round from, such as a "
            f"global model or a message; {self.label} does not"
        )


def preset(parent: type[Algorithm], kind: str, **values: Any) -> type[Algorithm]:
    """A subclass of ``parent`` called ``kind`` with other defaults and its own name.

    ``values`` are hyper-parameters of the parent, or facts about the preset.

    >>> import pfl_lib
    >>> Timid = preset(pfl_lib.methods.FedProx, "Timid", name="timid", label="Timid", mu=1.0)
    >>> Timid().settings()["mu"], Timid(mu=2.0).label
    (1.0, 'Timid')
    """
    known = {f.name: f for f in fields(parent)}
    facts = {name: value for name, value in values.items() if name not in known}
    unknown = [name for name in facts if not hasattr(parent, name)]
    if unknown:
        raise TypeError(f"{unknown[0]} is neither a hyper-parameter nor a fact of {parent.label}")
    changed = [
        (name, known[name].type, field(default=value, metadata=known[name].metadata))
        for name, value in values.items()
        if name in known
    ]
    example = "\n".join(
        f">>> pfl_lib.algorithm({facts['name']!r}).{name}\n{value!r}"
        for name, value in values.items()
        if name in known
    )
    facts["__doc__"] = f"{facts.get('idea') or facts['label']}\n\n>>> import pfl_lib\n{example}\n"
    made = make_dataclass(kind, changed, bases=(parent,), namespace=facts, frozen=True)
    made.__module__ = parent.__module__
    return made


def as_method(argument: str, value: Any) -> Algorithm:
    """The method ``value``, or the method of that name with default hyper-parameters."""
    # imported late: they import all methods, which import this module
    from pfl_lib.methods import BY_NAME, algorithm

    if isinstance(value, str):
        return algorithm(_check.one_of(argument, value, BY_NAME))
    if not isinstance(value, Algorithm):
        raise TypeError(
            f"{argument} must be a method such as pfl_lib.algorithm('fedavg'), or its name, got "
            f"{value!r}"
        )
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Algorithm):
        return {"name": value.name, **value.settings()}
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
