"""The client's side: its own data, the shape of the model, and an answer to each parcel."""

import copy
import hashlib
import json
from dataclasses import asdict, replace

import torch

from pfl_lib import _check
from pfl_lib.flower.messages import (
    Parcel,
    decode,
    encode,
    fingerprint,
    pack_rows,
    unpack_work,
)
from pfl_lib.local import LocalFederation
from pfl_lib.local.batches import Samples
from pfl_lib.partition import Partition


class OneClient(LocalFederation):
    """The part of a federation that lives with client ``number`` of ``clients``.

    ``train`` and ``test`` index its samples in ``data``, ``labels`` is what it believes its
    training labels are (None: the true ones).  Random draws are keyed by the client's number, so it
    trains exactly as it would among the others.

    >>> import pfl_lib
    >>> fed = pfl_lib.example()
    >>> own = fed.partition.train[3], fed.partition.test[3]
    >>> client = OneClient(3, 8, fed.data, *own, model="mlp", lr=0.1)
    >>> client.answer("hello", Parcel()).words["samples"]
    203
    """

    def __init__(self, number, clients, data, train, test, labels=None, model="mlp", **training):
        self.number = _check.whole("number", number, at_least=0)
        self._clients_in_all = _check.whole("clients", clients)
        if number >= clients:
            raise ValueError(f"number must lie in 0..{clients - 1}, the clients; got {number!r}")
        labels = None if labels is None else (labels,)
        super().__init__(
            data, Partition("own", (train,), (test,), labels=labels), model, **training
        )
        self.samples = len(train)
        self._train_samples = _called(number, self._train_samples)
        self._test_samples = _called(number, self._test_samples)

    @property
    def m(self):
        """How many clients there are in all."""
        return self._clients_in_all

    def with_part(self, positions):
        """This client with only some of its training samples."""
        here, (pick,), mine = copy.copy(self), positions, self._train_samples
        pick = pick.to(self.device)
        index, labels = mine.index[self.number][pick], mine.labels[self.number][pick]
        fewer = Samples(mine.inputs, (index,), (labels,), mine.weights)
        here._train_samples = _called(self.number, fewer)
        return here

    def answer(self, kind, parcel):
        """The reply to a parcel of this kind: "hello", "train" or "evaluate"."""
        _check.one_of("kind", kind, ("hello", "train", "evaluate"))
        if kind == "hello":
            return Parcel(words=self.hello())
        reply = self._train(parcel) if kind == "train" else self._evaluate(parcel)
        return replace(reply, words={"answers": fingerprint(self.number, parcel)})

    def _train(self, parcel):
        most = max((self.m + 2) * self.d, self.samples)  # APPLE hands out everybody's model
        work, k, part = unpack_work(parcel, self.d, self.dtype, most, self.samples)
        rows, shared = self._moved(work.rows), self._moved(work.shared)
        work = replace(work, rows=rows, shared=shared)
        here = self if part is None else self.with_part([part])
        return pack_rows(parcel, here.at(k).perform(work, torch.tensor([self.number])))

    def _evaluate(self, parcel):
        expected = {"most": self.d, "shape": (self.d,), "dtype": self.dtype}
        w = decode("w", parcel.arrays.get("w", b""), **expected).to(self.device)
        split = parcel.words.get("split", "test")
        accuracy, loss = self.evaluate(w[None], torch.tensor([self.number]), split)
        return Parcel({"accuracy": encode(accuracy[0]), "loss": encode(loss[0])})

    def hello(self):
        """What the server has to know of this client: no sample, no label."""
        data = self.data
        return {
            "client": self.number,
            "samples": self.samples,
            "kind": data.kind,
            "shape": list(data.shape),
            "classes": len(data.classes),
            "vocabulary": data.vocabulary,
            "agreement": agreement(self),
        }

    def _moved(self, tensors):
        """What came in a parcel, on this client's device."""
        return {name: tensor.to(self.device) for name, tensor in tensors.items()}


def _called(number, samples):
    """The samples of one client, found under its number."""
    index, labels = {number: samples.index[0]}, {number: samples.labels[0]}
    return replace(samples, index=index, labels=labels)


def agreement(fed):
    """A fingerprint of what server and clients must have in common: the model and how to train."""
    shapes = [(n, list(s)) for n, s in zip(fed.network.names, fed.network.shapes)]
    agreed = [fed.model_name, shapes, str(fed.dtype), asdict(fed.settings), fed.m]
    if (fed.loss, fed.metric) != ("cross_entropy", "accuracy"):
        agreed += [fed.loss, fed.metric]
    text = json.dumps(agreed)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
