"""What an algorithm is: a frozen set of hyper-parameters and one round written in two verbs."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor


class State(Mapping):
    """Named tensors, read as attributes, never changed in place: a checkpoint is just this.

    >>> state = State(w=torch.zeros(3, 2))
    >>> state = state.put(torch.tensor([1]), w=torch.ones(1, 2))
    >>> state
    State(w: (3, 2))
    >>> state.w
    tensor([[0., 0.],
            [1., 1.],
            [0., 0.]])
    """

    def __init__(self, **tensors: Tensor):
        self._tensors = tensors

    def put(self, who, **rows):
        """The state with the rows of the clients ``who`` replaced."""
        new = {name: self[name].index_copy(0, who, r) for name, r in rows.items()}
        return State(**{**self._tensors, **new})

    def set(self, **tensors):
        """The state with whole tensors replaced or added."""
        return State(**{**self._tensors, **tensors})

    def __getattr__(self, name):
        try:
            return self.__dict__["_tensors"][name]
        except KeyError:
            raise AttributeError(f"the state holds {sorted(self)}, not {name!r}") from None

    def __getitem__(self, name):
        return self._tensors[name]

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def __repr__(self):
        return f"State({', '.join(f'{n}: {tuple(t.shape)}' for n, t in self.items())})"


@dataclass(frozen=True)
class Algorithm:
    """One method.  Subclasses give ``start``, ``round`` and ``personal``; the rest has defaults.

    >>> import pfl_lib
    >>> @dataclass(frozen=True)
    ... class LastOneWins(Algorithm):
    ...     name, label = "last", "Last one wins"
    ...
    ...     def round(self, state, fed, who):
    ...         w = fed.train(state.w[who], who)
    ...         return state.put(who, w=w[-1:].expand_as(w))
    >>> history = pfl_lib.run(LastOneWins(), pfl_lib.example(), rounds=1, progress=False)
    >>> history.label, history.accuracy[0][0] > 0
    ('Last one wins', True)
    """

    name: ClassVar[str]  # how one asks for it: pfl_lib.algorithm(name)
    label: ClassVar[str]  # how tables and figures call it
    paper: ClassVar[str] = ""
    tested: ClassVar[str] = "the client's own model, trained"
    partial: ClassVar[bool] = True  # may clients stay away from a round?

    def __post_init__(self):
        """Refuse bad hyper-parameters; a subclass that checks its own calls this one too."""

    def start(self, fed) -> State:
        """The state before the first round: by default a common random model for every client."""
        return State(w=fed.initial())

    def round(self, state: State, fed, who: Tensor) -> State:
        """One round with the clients ``who``."""
        raise NotImplementedError

    def download(self, state: State, fed, who: Tensor) -> Tensor:
        """The models with which the clients ``who`` would begin this round: by default the global
        one.  ALA asks for it, to put a mix in its place."""
        return state.x.expand(len(who), -1)

    def personal(self, state: State, fed) -> Tensor:
        """The model each client would use now, one row a client: what the tables test."""
        return state.w

    def also(self, state: State, fed) -> dict[str, Tensor]:
        """Other models worth testing beside the personal ones."""
        return {}

    def sent(self, fed, who: Tensor, round_: int) -> int:
        """Parameters that move in this round, down and up, all clients together."""
        return 2 * fed.d * len(who)

    def settings(self) -> dict:
        """The hyper-parameters as plain data."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _plain(value):
    if isinstance(value, Algorithm):
        return {"name": value.name, **value.settings()}
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
