"""The worker of one SuperNode: answers message after message in one process.

Started by ``node.py``.  It asks the node for work by the same signed requests as Flower's
SuperExec, and lets Flower's own code run the ClientApp: only the end of the process after each
message is left out, so that torch, the data and the network stay loaded.
"""

import os
import sys
import threading
import time
from pathlib import Path

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.run_superexec import _SUPEREXEC_AUTH_METHODS
from flwr.supernode.runtime import run_clientapp as flower

from pfl_lib.flower import apps  # noqa: F401  what every message needs is loaded before the first
from pfl_lib.flower.node import Waits, shorten_waits


def die_with(parent):
    """End this process, whatever it does, as soon as its node is gone."""

    def watch():
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def stay_alive():
    """Have Flower's ``run_clientapp`` return after a message instead of ending the process."""
    at_the_end: list = []
    app_folder: list = []
    project_dir = flower.get_project_dir

    def keep(*_, exit_handlers=(), **__):
        at_the_end[:] = exit_handlers

    def finish(*_, **__):
        for handler in at_the_end:
            handler()

    def loaded_from(*which):
        folder = project_dir(*which)
        if app_folder and app_folder[0] != folder:  # another app: forget the modules of this one
            inside = str(app_folder[0])
            sys.path[:] = [p for p in sys.path if p != inside]
            for name, module in list(sys.modules.items()):
                if (getattr(module, "__file__", None) or "").startswith(inside):
                    del sys.modules[name]
        app_folder[:] = [folder]
        return folder

    flower.register_signal_handlers, flower.flwr_exit = keep, finish
    flower.get_project_dir = loaded_from


def main(address, secret_file, root_certificates):
    certificates = Path(root_certificates).read_bytes() if root_certificates else None
    connection = {"insecure": certificates is None}
    die_with(os.getppid())
    stay_alive()
    shorten_waits()
    client = RuntimeHttpClient.from_server_address(
        server_address=address,
        root_certificates=certificates,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(
                master_secret=Path(secret_file).read_bytes(),
                protected_methods=_SUPEREXEC_AUTH_METHODS,
            ),
        ],
        retry_invoker=make_simple_http_retry_invoker(),
        **connection,
    )
    waits, question = Waits(), AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while True:
        answer = client.AcquireTask(question)
        if answer.HasField("task") and answer.token:
            flower.run_clientapp(address, answer.token, certificates=certificates, **connection)
            waits.busy()
        else:
            waits.sleep(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
