"""The loop of rounds: who takes part, the round itself, measuring, checkpoints."""

import time

import torch
from tqdm.auto import tqdm

from pfl_lib import _check, checkpoints
from pfl_lib._version import __version__
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.history import History
from pfl_lib.random import keyed_generator


def run(
    algorithm: Algorithm,
    fed,
    rounds: int,
    *,
    participation: float = 1.0,
    evaluate_every: int = 1,
    checkpoint=None,
    checkpoint_every: int = 1,
    progress: bool = True,
) -> History:
    """Run ``algorithm`` on ``fed`` for ``rounds`` rounds; resume where ``checkpoint`` ends.

    ``participation`` is the share of clients that take part in a round, drawn anew each round by
    the federation's seed.  Models are tested every ``evaluate_every`` rounds and after the last.
    """
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"algorithm must be an Algorithm, got {algorithm!r}; see algorithm(name)")
    _check.whole("rounds", rounds)
    _check.whole("evaluate_every", evaluate_every)
    _check.whole("checkpoint_every", checkpoint_every)
    if not _check.between("participation", participation, 0, 1) > 0:
        raise ValueError(f"participation must lie in (0, 1], got {participation!r}")
    if participation < 1 and not algorithm.partial:
        raise ValueError(
            f"{algorithm.label} needs every client in every round, "
            f"got participation={participation!r}"
        )

    settings = {
        "algorithm": algorithm.name,
        **{f"{algorithm.name}.{k}": v for k, v in algorithm.settings().items()},
        **fed.describe(),
        "participation": participation,
        "evaluate_every": evaluate_every,
        "version": __version__,
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
    if state is None:
        state = algorithm.start(fed.at(0))

    bar = tqdm(total=rounds, initial=min(done, rounds), desc=algorithm.label, disable=not progress)
    with bar:
        for k in range(done, rounds):
            here = fed.at(k)
            who = participants(fed, participation, k)
            began = time.perf_counter()
            state = algorithm.round(state, here, who)
            _synchronise(fed.device)
            seconds += time.perf_counter() - began
            sent += algorithm.sent(here, who, k)
            _refuse_broken_models(algorithm, state, k)
            if (k + 1) % evaluate_every == 0 or k + 1 == rounds:
                _measure(history, algorithm, state, here, k + 1, seconds, sent)
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
    """The clients of round k, in order: a keyed draw without replacement."""
    if share == 1:
        return fed.everyone
    count = max(1, round(share * fed.m))
    generator = keyed_generator(fed.settings.seed, "participants", k)
    return torch.randperm(fed.m, generator=generator)[:count].sort().values.to(fed.device)


def _measure(history, algorithm, state, fed, round_, seconds, sent):
    accuracy, loss = fed.evaluate(algorithm.personal(state, fed))
    history.rounds.append(round_)
    history.accuracy.append(accuracy.tolist())
    history.loss.append(loss.tolist())
    history.seconds.append(seconds)
    history.sent.append(sent)
    for name, w in algorithm.also(state, fed).items():
        history.also.setdefault(name, []).append(fed.evaluate(w)[0].tolist())


def _refuse_broken_models(algorithm, state, k):
    """A model that is no longer finite would spread through every mix: stop where it appears."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            rows = ""
            if tensor.ndim == 2:
                bad = (~torch.isfinite(tensor).all(1)).nonzero().flatten().tolist()
                rows = f" of client{'s' * (len(bad) > 1)} {', '.join(map(str, bad[:10]))}"
            raise FloatingPointError(
                f"{algorithm.label}, round {k + 1}: {name}{rows} is no longer finite; "
                "a smaller learning rate, or a smaller step on the server, usually helps"
            )


def _synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
