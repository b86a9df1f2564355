"""The loop of rounds: who takes part, the round itself, measuring, checkpoints, callbacks."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from pfl_lib import _check, checkpoints
from pfl_lib._disk import DiskState, InitialOnDisk
from pfl_lib._show import progress_bar
from pfl_lib._version import __version__
from pfl_lib.callbacks import Callback, Moment
from pfl_lib.faults import Answering, BrokenClients, Guarded, in_words, named
from pfl_lib.federation import checked_clients, checked_federation
from pfl_lib.history import History
from pfl_lib.methods.base import Algorithm, State, as_method
from pfl_lib.random import keyed_generator

#: What to do about a client whose model or loss is no longer finite.
BROKEN = ("stop", "drop", "restore")
ADVICE = "a smaller learning rate, or a smaller step on the server, usually helps"


@torch.inference_mode(False)
@_check.keywords
def run(
    algorithm: Algorithm | str,
    fed,
    rounds: int,
    *,
    participation: float = 1.0,
    evaluate_every: int = 1,
    checkpoint=None,
    checkpoint_every: int = 1,
    test_clients: Any = None,
    state_folder: str | os.PathLike | None = None,
    broken: str = "stop",
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> History:
    """Run ``algorithm`` on ``fed`` for ``rounds`` rounds; resume where ``checkpoint`` ends.

    A name, such as "fedavg", means the method with its default hyper-parameters.
    ``participation`` is the share of clients that take part in a round, drawn anew each round from
    the federation's seed.  Models are tested every ``evaluate_every`` rounds and after the last.
    ``test_clients`` are the clients to be tested (None: all); the others have NaN in the history.
    With ``state_folder`` the clients' rows are kept in memory-mapped files there and only take
    memory in rounds in which they take part; numbers and checkpoints are the same, so that a run
    can be resumed with or without it.
    ``callbacks`` are notified of every step: see :mod:`pfl_lib.callbacks`.

    A client whose training ends in NaN or infinity is detected before its model is mixed.
    ``broken="stop"`` ends the run with an error, "drop" repeats the round without the client,
    "restore" gives it back the model it began to train from; ``history.broken`` records which
    clients, and when.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 4, participation=0.5, progress=False)
    >>> history.label, history.rounds, history.last > 0.5
    ('FedAvg', [1, 2, 3, 4], True)
    """
    checked_federation("fed", fed)
    rounds = _check.whole("rounds", rounds)
    evaluate_every = _check.whole("evaluate_every", evaluate_every)
    checkpoint_every = _check.whole("checkpoint_every", checkpoint_every)
    algorithm = as_method("algorithm", algorithm)
    _check_method(algorithm, participation, broken)
    _check_folder("checkpoint", checkpoint)
    _check_folder("state_folder", state_folder)
    if state_folder is not None and fed.device.type != "cpu":
        raise ValueError(f"state_folder must be None on {fed.device}: files hold tensors of a CPU")
    tested = None if test_clients is None else checked_clients(fed, test_clients, "test_clients")
    if tested == []:
        raise ValueError("test_clients must hold at least one client; None tests all")
    callbacks = _checked_callbacks(callbacks)
    _check.flag("progress", progress)

    settings = {
        "algorithm": algorithm.name,
        **{f"{algorithm.name}.{k}": v for k, v in algorithm.settings().items()},
        **fed.describe(),
        "participation": participation,
        "evaluate_every": evaluate_every,
        "version": __version__,
        **({"broken": broken} if broken != "stop" else {}),
        **({} if tested is None else {"test_clients": tested}),
    }
    now = Moment(
        algorithm,
        fed,
        rounds,
        History(algorithm.label, algorithm.tested, settings, ids=_names_of(fed)),
        State(),
        checkpoint=checkpoint,
    )
    _begin(now, evaluate_every, callbacks, state_folder)
    shown = {"total": rounds, "initial": now.round, "desc": algorithm.label}
    with progress_bar(progress, **shown) as bar, ExitStack() as ending:
        for one in callbacks:
            ending.callback(one.on_end, now)
        _notify(callbacks, "on_start", now)
        if not now.history.stopped:
            _forget_early(now, evaluate_every)
        while now.round < rounds and not now.history.stopped:
            _one_round(now, participation, broken)
            _notify(callbacks, "on_round_end", now)
            if now.round % evaluate_every == 0 or _is_last(now):
                _measure(now, broken, tested)
                _notify(callbacks, "on_evaluate", now)
                bar.set_postfix({now.history.metric: f"{now.history.last:.4f}"})
            if checkpoint is not None and (now.round % checkpoint_every == 0 or _is_last(now)):
                _save(now, callbacks)
                _notify(callbacks, "on_checkpoint", now)
            bar.update()
        now.history.state = now.state
    return now.history


def _names_of(fed: Any) -> list[str]:
    """Who the clients are, where the federation has a partition that knows it."""
    return list(getattr(getattr(fed, "partition", None), "ids", ()))


def _is_last(now: Moment) -> bool:
    return now.round == now.rounds or bool(now.history.stopped)


def _notify(callbacks: Sequence[Callback], what: str, now: Moment) -> None:
    for one in callbacks:
        getattr(one, what)(now)


# ---- before the first round ----------------------------------------------------------------------


def _check_method(algorithm: Algorithm, participation: float, broken: str) -> None:
    _check.between("participation", participation, 0, 1, "(]")
    if participation < 1 and not algorithm.partial:
        raise ValueError(
            f"{algorithm.label} needs every client in every round, "
            f"got participation={participation!r}"
        )
    if _check.one_of("broken", broken, BROKEN) == "drop" and not algorithm.partial:
        raise ValueError(
            f"{algorithm.label} needs every client in every round, so none can be dropped; "
            "broken must be 'stop' or 'restore', got 'drop'"
        )


def _check_folder(name: str, folder: Any) -> None:
    if folder is not None:
        _check.folder(name, folder)


def _checked_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    if isinstance(callbacks, (str, Callback, Mapping)) or not hasattr(callbacks, "__iter__"):
        raise TypeError(f"callbacks must be a list of Callback objects, got {callbacks!r}")
    callbacks = _check.several("callbacks", callbacks, "Callback objects")
    for one in callbacks:
        if not isinstance(one, Callback):
            raise TypeError(f"callbacks must hold Callback objects, got {one!r}")
    return callbacks


def _begin(
    now: Moment, evaluate_every: int, callbacks: Sequence[Callback], state_folder: Any
) -> None:
    """Begin with the method's initial state, or with that of the newest checkpoint."""
    settings, on_disk = now.history.settings, state_folder is not None
    device = None if on_disk else now.fed.device
    found = now.checkpoint and checkpoints.newest(now.checkpoint, settings, device)
    if not found:
        fed = now.fed.at(0)
        fed = InitialOnDisk(fed, state_folder) if on_disk else fed
        now.state = _placed(now.algorithm.start(fed), now.fed, state_folder)
        return
    record, tensors = found
    if record["round"] > now.rounds:
        raise ValueError(
            f"{now.checkpoint} holds {record['round']} rounds already; rounds must be at least "
            f"that, got {now.rounds}"
        )
    now.state, now.round = _placed(tensors, now.fed, state_folder), record["round"]
    now.seconds, now.sent = record["elapsed"], record["moved"]
    network = getattr(now.fed, "network", None)
    if network is not None:  # go on to the same last digit: see pfl_lib.local.layout
        network.transposed[:] = record.get("transposed", network.transposed)
    now.history = History(**{"ids": now.history.ids, **record["history"]})  # ids are younger
    stopped, now.history.stopped = now.history.stopped, ""  # callbacks may stop the run again
    if not stopped:
        _forget_early(now, evaluate_every)
    for name, one in _by_name(callbacks).items():
        if name in record.get("callbacks", {}):
            one.restore(record["callbacks"][name])


def _placed(tensors: Mapping[str, Any], fed: Any, state_folder: Any) -> State:
    """The state, in memory or on the disk."""
    return State(**tensors) if state_folder is None else DiskState(state_folder, fed.m, **tensors)


def _forget_early(now: Moment, evaluate_every: int) -> None:
    """Drop a measurement that was made only because its round was the last of a shorter run."""
    early = bool(now.round % evaluate_every) and now.history.rounds[-1:] == [now.round]
    if early and now.round < now.rounds:
        now.history.forget_last()


def _by_name(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Callbacks by their names in checkpoints."""
    return {f"{number} {type(one).__name__}": one for number, one in enumerate(callbacks)}


# ---- rounds --------------------------------------------------------------------------------------


def _one_round(now: Moment, participation: float, broken: str) -> None:
    k, algorithm = now.round, now.algorithm
    here, who = now.fed.at(k), participants(now.fed, participation, k)
    began = time.perf_counter()
    now.state, took_part = _guarded_round(algorithm, now.state, here, who, broken, now.history)
    _synchronize(now.fed.device)
    now.seconds += time.perf_counter() - began
    now.sent += algorithm.sent(here, took_part, k)
    changed: Mapping[str, Any] = now.state
    if isinstance(now.state, DiskState):
        now.state, changed = now.state.flushed()
    _refuse_broken_models(algorithm, changed, k)
    now.round = k + 1


def _save(now: Moment, callbacks: Sequence[Callback]) -> None:
    remembered = {name: one.state() for name, one in _by_name(callbacks).items()}
    for name, state in remembered.items():
        try:
            json.dumps(state)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"the state of callback {name} must be plain data: {error}; the checkpoint of "
                f"round {now.round} was not written"
            ) from error
    record = {
        "round": now.round,
        "elapsed": now.seconds,
        "moved": now.sent,
        "transposed": list(getattr(getattr(now.fed, "network", None), "transposed", ())),
        "settings": now.history.settings,
        "history": now.history.record(),
        "callbacks": {name: state for name, state in remembered.items() if state},
    }
    checkpoints.save(now.checkpoint, now.round, now.state, record)


def participants(fed, share, k):
    """The clients of round k, in order: a keyed draw without replacement.

    >>> import pfl_lib
    >>> participants(pfl_lib.example(), share=0.5, k=0)
    tensor([2, 4, 5, 6])
    """
    checked_federation("fed", fed)
    _check.whole("k", k, at_least=0)
    if _check.between("share", share, 0, 1, "(]") == 1:
        return fed.everyone
    count = max(1, round(share * fed.m))
    generator = keyed_generator(fed.settings.seed, "participants", k)
    return torch.randperm(fed.m, generator=generator)[:count].sort().values.to(fed.device)


def _guarded_round(algorithm, state, fed, who, broken, history):
    """The state after a round, and its participants.

    States are never changed in place and random draws are keyed, so that a round repeated without
    a broken client is the same as if the client had not taken part.
    """
    where = f"{algorithm.label}, round {fed.k + 1}"
    while True:
        watch = Guarded(fed, restore=broken == "restore")
        try:
            state = algorithm.round(state, watch, who)
        except BrokenClients as error:
            left = who[~torch.isin(who, who.new_tensor([i for i, _ in error.found]))]
            if broken == "stop" or not algorithm.partial or len(left) == 0:
                last = "" if broken == "stop" else ", and no client is left"
                advice = getattr(error, "advice", ADVICE)
                if advice != ADVICE and not algorithm.partial:  # lost, and it cannot drop any
                    last, advice = "", f"{algorithm.label} needs every client in every round"
                raise FloatingPointError(f"{where}: {error}{last}; {advice}") from error
            _note(history, fed, error.found, "dropped")
            who = left
            continue
        _note(history, fed, watch.found, "restored")
        return state, who


def _note(history, fed, found, then):
    for client, what in dict.fromkeys(found):
        entry = {"round": fed.k + 1, "client": client, "what": what, "then": then}
        history.broken.append(entry)


def _measure(now: Moment, broken: str, tested: list[int] | None) -> None:
    history, algorithm, state = now.history, now.algorithm, now.state
    where = f"{algorithm.label}, round {now.round}"
    # some methods train once more for the test, so clients may be lost here, too
    fed = Answering(
        now.fed.at(now.round - 1), set() if tested is None else set(range(now.fed.m)) - set(tested)
    )
    silent = set(fed.lost)  # these are not tested
    accuracy, loss = fed.evaluate(algorithm.personal(state, fed))
    absent = accuracy.isnan() & loss.isnan()  # a broken model still has an accuracy
    lost = [i for i in absent.nonzero().flatten().tolist() if i not in silent]
    spoiled = (~torch.isfinite(loss) & ~absent).nonzero().flatten().tolist()
    found = [(i, "test loss") for i in spoiled]
    if found and broken == "stop":
        raise FloatingPointError(f"{where}: {in_words(found)}; {ADVICE}")
    if lost and broken == "stop":
        raise FloatingPointError(
            f"{where}: {named(lost)} {'were' if len(lost) > 1 else 'was'} not measured: no answer; "
            f"run(..., broken={'drop' if algorithm.partial else 'restore'!r}) leaves the lost out"
        )
    _note(history, fed, [(i, "no answer") for i in lost], "not measured")
    _note(history, fed, found, "noted")
    history.rounds.append(now.round)
    history.accuracy.append(accuracy.tolist())
    history.loss.append(loss.tolist())
    history.seconds.append(now.seconds)
    history.sent.append(now.sent)
    for name, w in algorithm.extra_models(state, fed).items():
        history.extra_models.setdefault(name, []).append(fed.evaluate(w)[0].tolist())


def _refuse_broken_models(algorithm, changed, k):
    """Stop if the server's step made values non-finite; the clients' models were checked before."""
    for name, tensor in changed.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"{algorithm.label}, round {k + 1}: {name} of the state must be a tensor, got "
                f"{tensor!r}"
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise FloatingPointError(
                f"{algorithm.label}, round {k + 1}: the server's step left {name} no longer "
                f"finite; {ADVICE}"
            )


def _synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
