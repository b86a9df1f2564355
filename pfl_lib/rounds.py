"""The loop of rounds: who takes part, the round itself, measuring, checkpoints."""

import os
import time

import torch
from tqdm.auto import tqdm

from pfl_lib import _check, checkpoints
from pfl_lib._version import __version__
from pfl_lib.faults import Answering, BrokenClients, Guarded, in_words, named
from pfl_lib.federation import checked_federation
from pfl_lib.history import History
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.random import keyed_generator

#: What becomes of a client whose model or loss is no longer finite.
BROKEN = ("stop", "drop", "restore")
ADVICE = "a smaller learning rate, or a smaller step on the server, usually helps"


def run(
    algorithm: Algorithm,
    fed,
    rounds: int,
    *,
    participation: float = 1.0,
    evaluate_every: int = 1,
    checkpoint=None,
    checkpoint_every: int = 1,
    broken: str = "stop",
    progress: bool = True,
) -> History:
    """Run ``algorithm`` on ``fed`` for ``rounds`` rounds; resume where ``checkpoint`` ends.

    ``participation`` is the share of clients that take part in a round, drawn anew each round by
    the federation's seed.  Models are tested every ``evaluate_every`` rounds and after the last.

    A client whose training ends in NaN or infinity is noticed before anybody hears of it.
    ``broken="stop"`` ends the run there, "drop" repeats the round as if the client had stayed
    away, "restore" puts back the model it began the round's training with; ``history.broken``
    says which clients, and when.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 4, participation=0.5, progress=False)
    >>> history.label, history.rounds, history.last > 0.5
    ('FedAvg', [1, 2, 3, 4], True)
    """
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"algorithm must be an Algorithm, got {algorithm!r}; see algorithm(name)")
    checked_federation("fed", fed)
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        raise TypeError(f"checkpoint must be the path of a folder or None, got {checkpoint!r}")
    if checkpoint is not None and os.path.exists(checkpoint) and not os.path.isdir(checkpoint):
        raise ValueError(f"checkpoint must be the path of a folder, got the file {checkpoint!r}")
    rounds = _check.whole("rounds", rounds)
    evaluate_every = _check.whole("evaluate_every", evaluate_every)
    checkpoint_every = _check.whole("checkpoint_every", checkpoint_every)
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

    settings = {
        "algorithm": algorithm.name,
        **{f"{algorithm.name}.{k}": v for k, v in algorithm.settings().items()},
        **fed.describe(),
        "participation": participation,
        "evaluate_every": evaluate_every,
        "version": __version__,
        **({"broken": broken} if broken != "stop" else {}),
    }
    history = History(algorithm.label, algorithm.tested, settings)
    state, done, seconds, sent = None, 0, 0.0, 0
    if checkpoint is not None:
        found = checkpoints.newest(checkpoint, settings, fed.device)
        if found:
            record, tensors = found
            state, done = State(**tensors), record["round"]
            seconds, sent = record["elapsed"], record["moved"]
            history = History(**record["history"])
            early = bool(done % evaluate_every) and history.rounds[-1:] == [done]
            if early and done < rounds:  # it was measured as the last round, and is not
                history.forget_last()
            if done > rounds:
                raise ValueError(
                    f"{checkpoint} holds {done} rounds already; rounds must be at least that, "
                    f"got {rounds}"
                )
    if state is None:
        state = algorithm.start(fed.at(0))

    bar = tqdm(total=rounds, initial=min(done, rounds), desc=algorithm.label, disable=not progress)
    with bar:
        for k in range(done, rounds):
            here = fed.at(k)
            who = participants(fed, participation, k)
            began = time.perf_counter()
            state, heard = _guarded_round(algorithm, state, here, who, broken, history)
            _synchronize(fed.device)
            seconds += time.perf_counter() - began
            sent += algorithm.sent(here, heard, k)
            _refuse_broken_models(algorithm, state, k)
            if (k + 1) % evaluate_every == 0 or k + 1 == rounds:
                _measure(history, algorithm, state, here, k + 1, seconds, sent, broken)
                bar.set_postfix(accuracy=f"{history.last:.4f}")
            if checkpoint is not None and ((k + 1) % checkpoint_every == 0 or k + 1 == rounds):
                record = {
                    "round": k + 1,
                    "elapsed": seconds,
                    "moved": sent,
                    "settings": settings,
                    "history": history.record(),
                }
                checkpoints.save(checkpoint, k + 1, state, record)
            bar.update()
    history.state = state
    return history


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
    """The state after a round, and who was part of it.

    States are never changed in place and random draws are keyed, so that a round repeated without
    a broken client is the round in which it stayed away.
    """
    where = f"{algorithm.label}, round {fed.k + 1}"
    while True:
        watch = Guarded(fed, restore=broken == "restore")
        try:
            state = algorithm.round(state, watch, who)
        except BrokenClients as error:
            left = who[~torch.isin(who, who.new_tensor([i for i, _ in error.found]))]
            if broken == "stop" or not algorithm.partial or len(left) == 0:
                last = "" if broken == "stop" else ", and nobody is left to go on with"
                advice = getattr(error, "advice", ADVICE)
                if advice != ADVICE and not algorithm.partial:  # lost, and it can drop nobody
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


def _measure(history, algorithm, state, fed, round_, seconds, sent, broken):
    where = f"{algorithm.label}, round {round_}"
    fed = Answering(fed)  # some methods train once more, for the test
    accuracy, loss = fed.evaluate(algorithm.personal(state, fed))
    absent = accuracy.isnan() & loss.isnan()  # a model that is broken still has an accuracy
    lost = absent.nonzero().flatten().tolist()
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
    history.rounds.append(round_)
    history.accuracy.append(accuracy.tolist())
    history.loss.append(loss.tolist())
    history.seconds.append(seconds)
    history.sent.append(sent)
    for name, w in algorithm.extra_models(state, fed).items():
        history.extra_models.setdefault(name, []).append(fed.evaluate(w)[0].tolist())


def _refuse_broken_models(algorithm, state, k):
    """The clients sent finite models; should the server's own step have spoiled them, stop."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise FloatingPointError(
                f"{algorithm.label}, round {k + 1}: the server's step left {name} no longer "
                f"finite; {ADVICE}"
            )


def _synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
