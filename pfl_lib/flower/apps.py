"""The two halves of a Flower app: a server that runs algorithms, a client that answers."""

import functools
import json
import os
import time
from pathlib import Path
from typing import Any

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:
    raise ImportError(
        "pfl_lib runs over Flower only where Flower is installed (Python 3.11 or newer): "
        "pip install 'pfl_lib[flower]'"
    ) from error
from safetensors.torch import save_file

from pfl_lib import _deprecated
from pfl_lib.flower.client import OneClient
from pfl_lib.flower.federation import RemoteFederation
from pfl_lib.flower.messages import Parcel, decode
from pfl_lib.flower.node import Waits, shorten_waits
from pfl_lib.flower.plan import Plan
from pfl_lib.rounds import run

TYPES = {"hello": "query.hello", "train": "train", "evaluate": "evaluate"}
GONE = (3, 4, 5)  # Flower's codes for a message or a node that is no longer there
NPY = "numpy.ndarray"  # Flower's name for an array in .npy form


def to_records(parcel):
    """A parcel as Flower's records."""
    content = RecordDict({"words": ConfigRecord(dict(parcel.words))})
    if parcel.arrays:
        content["arrays"] = ArrayRecord({n: _array(n, b) for n, b in parcel.arrays.items()})
    return content


def _array(name, data):
    tensor = decode(name, data, most=len(data))
    return Array(str(tensor.numpy().dtype), tuple(tensor.shape), NPY, data)


def from_records(content):
    """A parcel from Flower's records; arrays in any other form than ``.npy`` are refused."""
    unknown = set(content) - {"words", "arrays"}
    if unknown:
        raise ValueError(f"a message must hold 'words' and 'arrays', got {sorted(unknown)}")
    arrays = {}
    for name, array in content.get("arrays", {}).items():
        if array.stype != NPY:
            raise ValueError(f"array {name!r} must be a plain NumPy array, got {array.stype!r}")
        arrays[name] = bytes(array.data)
    return Parcel(arrays, dict(content.get("words", {})))


# ------------------------------------------------------------------------------------- the client
def named_part(number, plan):
    """The samples that the plan gives to client ``number``: data set, training, test, labels.

    In a lesson every client can load the whole data set and look at its own part only.  A client
    with data of its own brings another function of this form.
    """
    return plan.part(number)


def client_app(load=named_part, mods=()):
    """A Flower ClientApp; ``load(number, plan)`` gives ``(data, train, test, labels, clients)``.

    ``mods`` are Flower's: functions around every answer.
    """
    app = ClientApp(mods=list(mods))

    def answer(kind, message, context):
        parcel = from_records(message.content)
        me = _client(load, _number(context), context.run_config["plan"])
        return Message(to_records(me.answer(kind, parcel)), reply_to=message)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return answer("hello", message, context)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answer("train", message, context)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answer("evaluate", message, context)

    return app


@functools.lru_cache(maxsize=64)  # in a simulation one process answers for several clients
def _client(load, number, text):
    plan = Plan.from_json(text)
    data, train, test, labels, clients = load(number, plan)
    return OneClient(number, clients, data, train, test, labels, plan.model, **plan.training)


def _number(context):
    try:
        return int(context.node_config["partition-id"])
    except (KeyError, ValueError):
        raise ValueError(
            "a SuperNode needs the number of its client: --node-config 'partition-id=0', "
            f"got {dict(context.node_config)!r}"
        ) from None


# ------------------------------------------------------------------------------------- the server
class GridTransport:
    """Carries parcels over a Flower ``Grid``: a simulation's, or a SuperLink's.

    Nodes have random names, so each is asked which client it is.  A node that does not answer is
    taken for gone and asked again in every round; ``events`` is a file that gets one line for each
    thing that happens.
    """

    def __init__(self, grid, timeout=60.0, poll=0.05, events=None):
        self.grid, self.timeout, self.poll, self.events = grid, timeout, poll, events
        self.node_of, self.profiles, self.refused = {}, {}, {}
        self._hellos = {}  # message id: (node, when it is given up)
        self._known = set()

    @property
    def present(self):
        """The clients that answered when last asked."""
        return set(self.node_of)

    def connect(self, clients, seconds):
        """Wait for ``clients`` clients; what each says about itself, by its number."""
        began = time.monotonic()
        while True:
            self._send_hellos()
            self._read_hellos(strict=True)
            if set(range(clients)) <= self.present or time.monotonic() > began + seconds:
                return {i: self.profiles[i] for i in sorted(self.node_of)}
            time.sleep(max(self.poll, Waits.pause(time.monotonic() - began)))  # thousands may come

    def refresh(self):
        """Update who is present.  Only nodes never seen before are worth waiting for."""
        new = self._send_hellos()
        end = time.monotonic() + self.timeout
        self._read_hellos()
        while new & {node for node, _ in self._hellos.values()} and time.monotonic() < end:
            time.sleep(self.poll)
            self._read_hellos()

    def ask(self, kind, parcels):
        """{client: its reply, or why there is none}."""
        numbers = list(parcels)
        messages = [
            Message(to_records(parcels[i]), self.node_of[i], TYPES[kind], ttl=self.timeout)
            for i in numbers
        ]
        self.grid.push_messages(messages)
        # by the id of the question: an error the SuperLink makes up does not name the client
        waiting = {m.metadata.message_id: i for m, i in zip(messages, numbers)}
        replies, began = {}, time.monotonic()
        end = began + self.timeout
        while waiting and time.monotonic() < end:
            for m in self.grid.pull_messages(list(waiting)):
                i = waiting.pop(m.metadata.reply_to_message_id)
                replies[i] = self._reply(m, self.node_of.get(i))
                if m.has_error() and m.error.code in GONE:
                    self.node_of.pop(i, None)
            if waiting:
                time.sleep(max(self.poll, Waits.pause(time.monotonic() - began)))
        for i in waiting.values():
            replies[i] = f"no reply within {self.timeout:g} s"
            self.node_of.pop(i, None)
        return replies

    def note(self, event):
        if self.events:
            with open(self.events, "a") as file:
                print(json.dumps({"time": round(time.time(), 3), **event}), file=file)

    def complaints(self):
        """The errors of nodes that could not be identified."""
        return " ".join(sorted(set(self.refused.values())))

    def _reply(self, message, expected_node):
        if message.has_error():
            return f"error {message.error.code}: {message.error.reason}"
        if message.metadata.src_node_id != expected_node:
            return f"its reply was refused: it came from node {message.metadata.src_node_id}"
        try:
            return from_records(message.content)
        except ValueError as error:
            return f"its reply was refused: {error}"

    def _send_hellos(self):
        """Say hello to every node whose client is unknown; returns those never seen before."""
        now, online = time.monotonic(), set(self.grid.get_node_ids())
        self.node_of = {i: node for i, node in self.node_of.items() if node in online}
        self._hellos = {q: (n, end) for q, (n, end) in self._hellos.items() if end > now}
        waiting = {node for node, _ in self._hellos.values()}
        unknown = sorted(online - set(self.node_of.values()) - waiting)
        questions = [
            Message(to_records(Parcel()), node, TYPES["hello"], ttl=self.timeout)
            for node in unknown
        ]
        if questions:
            self.grid.push_messages(questions)
        for node, question in zip(unknown, questions):
            self._hellos[question.metadata.message_id] = (node, now + self.timeout)
        new = set(unknown) - self._known
        self._known |= new
        return new

    def _read_hellos(self, strict=False):
        """Note which nodes answered a hello, and which clients they are."""
        if not self._hellos:
            return
        for m in self.grid.pull_messages(list(self._hellos)):
            node, _ = self._hellos.pop(m.metadata.reply_to_message_id)
            reply = self._reply(m, node)
            if isinstance(reply, str):
                self.refused.setdefault(node, reply)  # the first says why, the others that
                continue
            number = reply.words.get("client")
            if isinstance(number, bool) or not isinstance(number, int):
                self.refused[node] = f"a node says that it is client {number!r}"
                continue
            if strict and number in self.node_of:
                raise ValueError(
                    f"two nodes say that they are client {number}: each needs a partition-id of "
                    "its own"
                )
            if self.profiles.setdefault(number, reply.words) != reply.words:
                self.refused[node] = f"client {number} came back as another one"
                continue
            self.node_of[number] = node
            self.note({"hello": number})


def server_app():
    """A Flower ServerApp that runs the plan and writes what came of it into the folder ``out``."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        plan = Plan.from_json(context.run_config["plan"])
        out = Path(context.run_config["out"])
        out.mkdir(parents=True, exist_ok=True)
        shorten_waits(at_most=plan.timeout)
        # filled as it goes: a run that fails does not take those before it along
        record: dict[str, Any] = {}
        try:
            _run_plan(grid, plan, out, record)
        except BaseException as error:
            record["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            side = out / "record.part"
            side.write_text(json.dumps(record, indent=1))
            os.replace(side, out / "record.json")  # whoever waits for it finds it whole

    return app


def _run_plan(grid, plan, out, record):
    transport = GridTransport(grid, plan.timeout, plan.poll, events=out / "events.jsonl")
    began = time.monotonic()
    _, dealt = plan.parts()
    fed = RemoteFederation(transport, plan.model, clients=dealt.m, wait=plan.wait, **plan.training)
    record |= {"meeting": round(time.monotonic() - began, 3), "runs": []}
    for number, one in enumerate(plan.runs):
        before, began = len(fed.traffic), time.monotonic()
        method = plan.method(one)
        broken = "drop" if method.partial else "stop"  # some cannot go on without a client
        name = f"{number}-{one['algorithm']}"
        options = plan.options(one) | {"broken": broken, "progress": False}
        history = run(method, fed, checkpoint=out / name, **options)
        name += ".safetensors"
        save_file({n: t.contiguous().clone() for n, t in history.state.items()}, out / name)
        record["runs"].append(
            {
                "run": one,
                "state": name,
                "seconds": round(time.monotonic() - began, 3),
                "history": history.record(),
                "traffic": fed.traffic[before:],
            }
        )


_deprecated.keep_former_names(__name__)
