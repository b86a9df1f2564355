"""A federation with remote clients: the same interface, but the work is sent to them."""

import copy
import math
import sys
import time
from dataclasses import asdict

import torch

from pfl_lib import _check, _deprecated, models
from pfl_lib.data.dataset import SampleForm
from pfl_lib.faults import BrokenClients
from pfl_lib.federation import check_models, check_work, checked_clients, checked_parts
from pfl_lib.flower.client import OneClient, agreement
from pfl_lib.flower.messages import (
    Parcel,
    decode,
    encode,
    fingerprint,
    pack_work,
    unpack_rows,
)
from pfl_lib.local import LocalFederation
from pfl_lib.local.base import ModelFederation
from pfl_lib.local.federation import ENGINES

TRANSPORT = ("connect", "refresh", "ask", "present", "note", "complaints")
FOR_CLIENTS = ("engine", "chunk", "keep_memory")  # options of the clients only
MOST_SAMPLES = 10_000_000  # a client that claims more is not believed


class ClientsLost(BrokenClients):
    """Clients that did not answer; ``run(..., broken="drop")`` repeats the round without them.

    >>> print(ClientsLost({2: "no reply within 60 s"}))
    client 2: no reply within 60 s
    """

    advice = 'run(..., broken="drop") goes on without them until they are back'

    def __init__(self, reasons):
        self.reasons = dict(reasons)
        super().__init__([(client, "no answer") for client in self.reasons])
        self.args = ("; ".join(f"client {i}: {why}" for i, why in self.reasons.items()),)


class RemoteFederation(ModelFederation):
    """``clients`` clients behind ``transport``, which carries parcels to them and back.

    ``training`` are options of ``pfl_lib.Federation`` (``lr``, ``optimizer``, …), the same for
    server and clients.  The server holds no samples: clients report their shape, the number of
    classes and their sample counts when they connect.

    A client that does not answer raises ``ClientsLost``.  Replies are kept until the next
    round, so that a round repeated without a lost client does not ask the others twice.  Each reply
    names the request it answers; one for an earlier request or another client is refused.  Absent
    clients' accuracy and loss are NaN.  ``traffic`` records each exchange with the clients.

    >>> import pfl_lib
    >>> near = pfl_lib.example("logistic_regression")
    >>> far = RemoteFederation(in_process(near), "logistic_regression", clients=8, lr=0.1)
    >>> options = {"rounds": 1, "progress": False}
    >>> here = pfl_lib.run(pfl_lib.algorithm("fedavg"), near, **options)
    >>> there = pfl_lib.run(pfl_lib.algorithm("fedavg"), far, **options)
    >>> torch.allclose(here.state.x, there.state.x, atol=1e-6)
    True
    >>> far.traffic[0]["down"]  # bytes: eight models of 650 numbers, and what .npy adds
    21824
    """

    def __init__(self, transport, model="mlp", *, clients, wait=60.0, **training):
        clients, wait = _check.whole("clients", clients), _check.positive("wait", wait)
        lacks = [name for name in TRANSPORT if not hasattr(transport, name)]
        if lacks:
            raise TypeError(
                f"transport must be one such as in_process(fed), with {', '.join(TRANSPORT)}; got "
                f"{transport!r} without {', '.join(lacks)}"
            )
        if training.get("dtype") is torch.bfloat16:
            raise ValueError(
                "dtype must be torch.float32 or torch.float64, got torch.bfloat16, which the "
                "plain arrays that travel do not know"
            )
        check_for_clients(training)
        self.transport, self.traffic, self._kept, self._part = transport, [], {}, None
        profiles = transport.connect(clients, wait)
        missing = sorted(set(range(clients)) - set(profiles))
        if missing:
            raise ConnectionError(
                f"{len(profiles)} of {clients} clients said hello within {wait:g} s; "
                f"missing: {', '.join(map(str, missing))}. {transport.complaints()}".rstrip()
            )
        counts = [_sample_count(profiles[i], i) for i in range(clients)]
        own = {name: value for name, value in training.items() if name not in FOR_CLIENTS}
        super().__init__(model, _form(profiles), counts, device="cpu", **own)
        agreed = agreement(self)
        for client, words in profiles.items():
            if words.get("agreement") != agreed:
                raise ValueError(
                    f"client {client} has another model or other training settings than the "
                    "server; both must be given the same"
                )

    @property
    def post(self):
        _deprecated.warn("RemoteFederation.post", "RemoteFederation.transport")
        return self.transport

    def at(self, k):
        """This federation in round ``k``; clients that have returned are part of it again."""
        here = super().at(k)
        here._kept = {}
        self.transport.refresh()
        return here

    def perform(self, work, who):
        """Let the clients ``who`` do ``work`` where they are; returns the rows they send back."""
        clients = checked_clients(self, who)
        check_work(self, work, clients)
        part = self._part or [None] * self.m
        parcels = {i: pack_work(work, row, self.k, part[i]) for row, i in enumerate(clients)}
        self._must_be_there(clients)
        keys = {i: fingerprint(i, parcel) for i, parcel in parcels.items()}
        ask = {i: parcel for i, parcel in parcels.items() if keys[i] not in self._kept}
        read = lambda i, parcel: unpack_rows(parcel, work, clients.index(i))  # noqa: E731
        answers, lost = self._ask("train", ask, read)
        self._kept |= {keys[i]: rows for i, rows in answers.items()}
        if lost:
            raise ClientsLost(lost)
        done = [self._kept[keys[i]] for i in clients]
        return {
            name: torch.stack([d[name] for d in done]) if done else rows
            for name, rows in work.rows.items()
        }

    @torch.no_grad()
    def evaluate(self, w, who=None, split="test"):
        """Accuracy and mean loss of row i of ``w`` on its client's data; NaN for absent clients."""
        clients = checked_clients(self, self.everyone if who is None else who)
        check_models(self, w, clients, split)
        result = {"accuracy": torch.full((len(clients),), torch.nan, dtype=self.dtype)}
        result["loss"] = result["accuracy"].clone()
        present = self.transport.present  # made anew at each look
        here = [i for i in clients if i in present]
        row_of = {i: row for row, i in enumerate(clients)}
        words = {"split": split}
        ask = {i: Parcel({"w": encode(w[row_of[i]])}, words) for i in here}
        one = {"most": 1, "shape": (), "dtype": self.dtype}

        def read(i, parcel):
            found = {name: decode(name, parcel.arrays.get(name, b""), **one) for name in result}
            _check_measured(self.metric, *(number.item() for number in found.values()))
            return found

        for i, numbers in self._ask("evaluate", ask, read)[0].items():
            for name, number in numbers.items():
                result[name][row_of[i]] = number
        return result["accuracy"], result["loss"]

    def with_part(self, positions):
        """This federation with only some of each client's training samples, by their positions."""
        here = copy.copy(self)
        here._part = checked_parts(self, positions)
        return here

    def describe(self):
        """What a run must agree on to be resumed, as plain data."""
        return {"data": "remote", "partition": list(self.sample_counts), **super().describe()}

    def __repr__(self):
        return f"RemoteFederation({self.m} clients, {self.model_name} with {self.d:,} parameters)"

    # ---- inside -----------------------------------------------------------------------------

    def _must_be_there(self, clients):
        present = self.transport.present
        absent = [i for i in clients if i not in present]
        if absent:
            raise ClientsLost(dict.fromkeys(absent, "not connected"))

    def _ask(self, kind, parcels, read):
        """(answers, reasons of those without): one exchange with several clients.

        ``read(client, parcel)`` makes an answer of a reply; one that it refuses counts as none.
        """
        if not parcels:
            return {}, {}
        entry = {
            "kind": kind,
            "round": self.k,
            "clients": sorted(parcels),
            "down": sum(p.size for p in parcels.values()),
        }
        self.transport.note({"asked": kind, **entry})
        began = time.monotonic()
        replies = self.transport.ask(kind, parcels)
        came = {i: r for i, r in replies.items() if isinstance(r, Parcel)}
        lost = {i: r for i, r in replies.items() if i not in came}
        answers = {}
        for i, parcel in came.items():
            try:
                if parcel.words.get("answers") != fingerprint(i, parcels[i]):
                    raise ValueError("it answers another question than the one that was asked")
                answers[i] = read(i, parcel)
            except ValueError as error:
                lost[i] = f"its reply was refused: {error}"
        entry["up"] = sum(p.size for p in came.values())
        entry["lost"] = {str(i): why for i, why in lost.items()}
        entry["seconds"] = round(time.monotonic() - began, 3)
        self.traffic.append(entry)
        self.transport.note({"answered": kind, **entry})
        return answers, lost


def check_for_clients(training):
    """Refuse options that only clients use, before any of them does."""
    _check.one_of("engine", training.get("engine", "auto"), ENGINES)
    _check.whole("chunk", training.get("chunk") or 1)
    _check.flag("keep_memory", training.get("keep_memory", True))


def _check_measured(metric, measured, loss):
    """Refuse what no test gives.  A broken model has an accuracy and no finite loss, samples of
    one class have no AUC, those of none no F1."""
    most = sys.float_info.max if metric == "mae" else 1.0
    none = math.isnan(measured)
    right = 0 <= measured <= most or (none and metric in ("auc", "f1"))
    if not (none and math.isnan(loss)) and (not right or loss < 0):
        raise ValueError(f"no test gives {metric} {measured:g} with a loss of {loss:g}")


def _sample_count(words, client):
    """A client's reported number of samples, checked."""
    count = words.get("samples")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MOST_SAMPLES:
        raise ValueError(
            f"samples of client {client} must be a whole number from 1 to {MOST_SAMPLES:,}, "
            f"got {count!r}"
        )
    return count


def _form(profiles):
    """The form of the clients' samples, from which the model is built."""
    first = profiles[min(profiles)]
    names = ("kind", "shape", "classes", "vocabulary")
    for client, words in profiles.items():
        for name in names:
            if words.get(name) != first.get(name) or name not in words:
                raise ValueError(
                    f"clients must have data of one form, but client {client} says "
                    f"{name} = {words.get(name)!r} and client {min(profiles)} {first.get(name)!r}"
                )
    classes = tuple(range(first["classes"]))
    return SampleForm("remote", first["kind"], tuple(first["shape"]), classes, first["vocabulary"])


class InProcess:
    """A transport to ``OneClient`` objects in this process, without a network.

    ``silent`` clients do not answer.

    >>> import pfl_lib
    >>> transport = in_process(pfl_lib.example())
    >>> transport.silent = {3}
    >>> sorted(transport.connect(clients=8, seconds=1))
    [0, 1, 2, 4, 5, 6, 7]
    """

    def __init__(self, clients):
        clients = _check.several("clients", clients, "OneClient objects")
        for client in clients:
            if not isinstance(client, OneClient):
                raise TypeError(f"clients must hold OneClient objects, got {client!r}")
        self.clients = {client.number: client for client in clients}
        self.silent, self.present, self.notes = set(), set(), []

    def connect(self, clients, seconds):
        """The profiles of the clients that are present, by number."""
        self.refresh()
        return {i: self.clients[i].answer("hello", Parcel()).words for i in sorted(self.present)}

    def refresh(self):
        """Update which clients are present."""
        self.present = set(self.clients) - self.silent

    def ask(self, kind, parcels):
        """{client: its reply, or the reason for none}."""
        replies = {}
        for i, parcel in parcels.items():
            if i in self.silent:
                replies[i] = "no reply"
                self.present.discard(i)
            else:
                replies[i] = self.clients[i].answer(kind, parcel)
        return replies

    def note(self, event):
        self.notes.append(event)

    def complaints(self):
        return ""


def in_process(fed):
    """The clients of an ordinary federation, each on its own side of an ``InProcess`` transport.

    >>> import pfl_lib
    >>> in_process(pfl_lib.example()).clients[3].hello()["samples"]
    203
    """
    if not isinstance(fed, LocalFederation):
        raise TypeError(f"fed must be a pfl_lib.Federation, got {fed!r}")
    partition, training, model = fed.partition, asdict(fed.settings), _model(fed)
    training |= {"lr": fed.lr, "init_seed": fed.init_seed, "dtype": fed.dtype, "engine": fed.engine}
    training |= {"loss": fed.loss, "metric": fed.metric}
    clients = []
    for i in range(fed.m):
        labels = None if partition.labels is None else partition.labels[i]
        samples = (fed.data, partition.train[i], partition.test[i], labels)
        clients.append(OneClient(i, fed.m, *samples, model, **training))
    return InProcess(clients)


def _model(fed):
    """The model's name, or a module like the given one if it has none."""
    if fed.model_name in models.names():
        return fed.model_name
    return fed.network.filled(fed.initial()[0])
