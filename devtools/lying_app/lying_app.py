"""One client, the second, answers every round but the first and the last with another lie.

Its tests lie too: the first says an accuracy of five, every later one none beside a finite loss.
"""

import torch
from flwr.app import Message

from pfl_lib.flower.apps import client_app, from_records, server_app, to_records
from pfl_lib.flower.messages import Parcel, decode, encode, fingerprint

LIAR = 1
LIES = ("NaN", "infinity", "one number too few", "another type", "an array nobody asked for",
        "the reply of the round before", "a reply that names another client's question",
        "a reply that is not an array")  # fmt: skip
OF_TESTS = ("an accuracy of five", "no accuracy beside a loss")
before = {}


def spoil(lie, question, reply):
    """The reply with which the client lies."""
    arrays, words = dict(reply.arrays), dict(reply.words)
    w = decode("rows.w", arrays["rows.w"], most=10_000_000)
    if lie == "NaN":
        w[0] = torch.nan
    elif lie == "infinity":
        w[0] = torch.inf
    elif lie == "one number too few":
        w = w[:-1]
    elif lie == "another type":
        w = w.double()
    elif lie == "an array nobody asked for":
        arrays["rows.more"] = encode(w)
    elif lie == "the reply of the round before":
        return before["reply"]
    elif lie == "a reply that names another client's question":
        words["answers"] = fingerprint(0, question)
    arrays["rows.w"] = encode(w)
    return Parcel(arrays, words)


def spoil_test(lie, reply):
    """The reply to a test with which the client lies."""
    accuracy = decode("accuracy", reply.arrays["accuracy"], most=1)
    wrong = accuracy.new_full((), 5.0 if lie == OF_TESTS[0] else torch.nan)
    return Parcel({**reply.arrays, "accuracy": encode(wrong)}, reply.words)


def lying(message, context, call_next):
    reply = call_next(message, context)
    lies = context.node_config["partition-id"] == LIAR
    if lies and message.metadata.message_type == "evaluate":
        lie = OF_TESTS[before.setdefault("tests", 0) > 0]
        before["tests"] += 1
        honest = from_records(reply.content)
        return Message(to_records(spoil_test(lie, honest)), reply_to=message)
    if message.metadata.message_type != "train" or not lies:
        return reply
    question, honest = from_records(message.content), from_records(reply.content)
    k = question.words["round"]
    if 1 <= k <= len(LIES):
        content = to_records(spoil(LIES[k - 1], question, honest))
        if LIES[k - 1] == "a reply that is not an array":
            content["arrays"]["rows.w"].stype = "pickle"
        reply = Message(content, reply_to=message)
    before["reply"] = honest
    return reply


server = server_app()
client = client_app(mods=[lying])
