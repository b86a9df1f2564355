"""A SuperNode that stays awake: Flower's own, with short waits and one worker that stays.

    python -P node.py --superlink … [what flower-supernode takes]

Flower starts a process for each message, and its SuperNode sleeps for three seconds when it found
nothing to do.  Here the worker (``worker.py``) keeps the client's data and network from message to
message, and waits are short.  Protocol, encryption and keys are Flower's.

It runs as a plain file, not as a part of the package: importing ``pfl_lib`` would load torch, which
a SuperNode has no use for.
"""

import contextlib
import importlib
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

AT_LEAST, AT_MOST = 0.05, 2.0  # seconds between two looks for something to do
BEGINS_AGAIN = 5  # times in a row that a worker may die young before its node gives up
YOUNG = 60.0  # seconds


class Waits:
    """Stands for the module ``time`` where Flower waits: a tenth of how long nothing has happened.

    A node that trains for ten seconds per round waits at most one; an idle node rarely polls.

    >>> waits = Waits()
    >>> waits.pause(idle=0.0), waits.pause(idle=4.0), waits.pause(idle=500.0)
    (0.05, 0.4, 2.0)
    """

    def __init__(self):
        self._since = time.monotonic()

    def busy(self):
        """Note that something has happened."""
        self._since = time.monotonic()

    @staticmethod
    def pause(idle):
        return min(AT_MOST, max(AT_LEAST, idle / 10))

    def sleep(self, seconds):
        """What Flower calls: 3 s with nothing to do, 0.5 s while the worker works."""
        if seconds < 1:
            self.busy()
            time.sleep(min(seconds, AT_LEAST))
        else:
            time.sleep(min(seconds, self.pause(time.monotonic() - self._since)))

    def __getattr__(self, name):
        return getattr(time, name)


def shorten_waits(at_most=None):
    """An object that is still on its way is asked for again at once, not a second later.

    After ``at_most`` seconds it is given up; Flower would wait for two hours for the rest of a
    reply whose sender was cut off half-way.
    """
    from flwr.supercore.inflatable import inflatable_utils

    for pull in (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree):
        known = pull.__kwdefaults__ or {}
        wanted = {"initial_backoff": AT_LEAST, "max_time": at_most, "backoff_cap": AT_MOST}
        known.update({n: v for n, v in wanted.items() if n in known and v is not None})


def keep_a_worker(command, lost=lambda: None):
    """Start the worker, and start it again if it dies; at last end this process too.

    ``lost`` is called after each death, so that nothing keeps waiting for the dead worker.
    """

    def watch():
        young = 0
        while young < BEGINS_AGAIN:
            began = time.monotonic()
            code = subprocess.Popen(command).wait()
            young = young + 1 if time.monotonic() - began < YOUNG else 0
            print(f"the worker ended with code {code}; starting another", flush=True)
            lost()
        os._exit(1)

    threading.Thread(target=watch, name="worker", daemon=True).start()


def give_up_work(state):
    """The worker is dead: have its node answer "crashed" now, not when a minute is over.

    ``state`` is the node's.  Work that was begun gets an error as its reply, work that was only
    handed out goes to the next worker, and a reply that is not complete never will be.
    """
    with state.lock_task_store:
        for record in state.task_token_store.values():
            record.active_until = record.active_until.replace(year=2000)
        state._cleanup_expired_task_tokens_locked()
    with state.lock_msg_store:
        replies = [i for i, e in state.msg_store.items() if e.message.metadata.reply_to_message_id]
    store = state.object_store
    for reply in replies:
        with contextlib.suppress(Exception):  # it may be sent and forgotten while we look
            if any(store.get(number) == b"" for number in _objects(store.get_object_tree(reply))):
                store.delete(reply)  # the attempt to send it then fails instead of waiting


def forget_half_messages(loop):
    """A message whose run ends while it comes in is forgotten altogether.

    ``loop`` is Flower's module.  It keeps the half that has come (1.41), for whose rest the worker
    would wait two hours, and its node, which does one thing at a time, for the worker: a SuperLink
    that was killed and came back would never hear from it again.
    """
    pull = loop._pull_and_store_message

    def pull_whole(state, object_store, **options):
        before = set(state.msg_store)
        run_id = pull(state=state, object_store=object_store, **options)
        if run_id is None:
            for number in set(state.msg_store) - before:
                state.delete_messages(message_ids=[number])
                object_store.delete(number)  # a reader gets "not found" instead of waiting
        return run_id

    loop._pull_and_store_message = pull_whole


def _objects(tree):
    yield tree.object_id
    for child in tree.children:
        yield from _objects(child)


def main():
    cli: Any = importlib.import_module("flwr.supernode.cli.flower_supernode")
    loop: Any = importlib.import_module("flwr.supernode.start_client_internal")
    given, _ = cli._parse_args_run_supernode().parse_known_args()
    loop.time = Waits()
    shorten_waits()
    forget_half_messages(loop)
    states: list[Any] = []

    class Factory(cli.NodeStateFactory):
        """Flower's own, which lets us see the state that it makes."""

        def state(self):
            states[:] = [super().state()]
            return states[0]

    cli.NodeStateFactory = Factory
    # whoever knows the secret may take this node's work; the folder is the owner's alone
    with tempfile.TemporaryDirectory(prefix="pfl-node-") as private:
        secret = Path(private) / "secret"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
        sys.argv += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
        worker = [sys.executable, "-m", "pfl_lib.flower.worker", f"{given.host}:{given.port}"]
        worker += [str(secret), given.ssl_ca_certfile or ""]
        keep_a_worker(worker, lost=lambda: [give_up_work(state) for state in states])
        cli.flower_supernode()


if __name__ == "__main__":
    main()
