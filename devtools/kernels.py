"""Kernels that start at once: forked from a process that has imported what notebooks import.

Importing torch, matplotlib and the rest takes seconds of processor time, and there are a hundred
notebooks. ``Template`` imports them once; every kernel is a fork of it that has run nothing yet.
"""

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
import uuid
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager

ROOT = Path(__file__).resolve().parents[1]
# What notebooks import, except pyplot, which must know its kernel. The first torch.func.grad
# imports torch._dynamo.
IMPORTED = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "torch",
    "torch._dynamo",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "sklearn.datasets",
    "sklearn.linear_model",
    "pfl_lib",
    "pfl_lib.book.experiments",
    "pfl_lib.book.theory",
)
SETTINGS = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "OMP_NUM_THREADS": "1"}


class Template:
    """A process that forks a kernel for every connection file it receives.

    It listens at ``address``, a socket in the folder ``workspace``, and ends with its parent.
    """

    def __init__(self, workspace):
        self.address = str(Path(workspace) / "template")
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(self.address)
            door.listen()
            command = [sys.executable, "-m", "devtools.kernels", str(door.fileno())]
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[door.fileno()]
            )

    def end(self):
        """Stop forking; kernels that still run end, too."""
        self.process.stdin.close()
        self.process.wait()


def template(workspace):
    """A ``Template``, or None on systems without a safe fork."""
    return Template(workspace) if sys.platform == "linux" else None


def fork(address, connection_file, folder):
    """Have the template start a kernel in ``folder``; returns its process number."""
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(address)
            with wire.makefile("rw") as text:
                print(json.dumps([str(connection_file), str(folder)]), file=text, flush=True)
                return int(text.readline())
    except (OSError, ValueError):
        raise RuntimeError("what every notebook imports failed; its error is above") from None


def fork_kernels(door):
    """The template's loop: import, then fork for each request, until stdin closes."""
    os.environ |= SETTINGS | {"JPY_PARENT_PID": str(os.getpid())}  # kernels die with their parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one waits for a kernel's end
    try:
        for name in IMPORTED:
            importlib.import_module(name)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # at once: whoever asks for a kernel learns that there will be none
    while sys.stdin not in select.select([door, sys.stdin], [], [])[0]:
        with door.accept()[0] as wire, wire.makefile("rw") as text:
            job = json.loads(text.readline())
            kernel = os.fork()
            if kernel == 0:
                _be_a_kernel(*job)
            print(kernel, file=text, flush=True)


def _be_a_kernel(connection_file, folder):
    from ipykernel.kernelapp import IPKernelApp

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # a group of its own, so that what it starts ends with it
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    os.chdir(folder)
    try:
        IPKernelApp.launch_instance(argv=["-f", connection_file, "--HistoryManager.enabled=False"])
    finally:
        os._exit(0)


class _Process:
    """The interface that a kernel manager expects of a kernel's process."""

    stdin = stdout = stderr = None

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self):
        return 0

    def send_signal(self, number):
        os.kill(self.pid, number)


def manager(address, workspace):
    """The class of managers whose kernels come from the template at ``address``, if there is one.

    They talk to their kernel through sockets in the folder ``workspace`` (its name must be short),
    not over the network: faster, and without kernels' warnings about TCP.
    """

    class FromTemplate(AsyncKernelManager):
        transport = "ipc"

        def _ip_default(self):
            return str(Path(workspace) / uuid.uuid4().hex[:12])

        async def _async_launch_kernel(self, kernel_cmd, **kw):
            if address is None:
                return await super()._async_launch_kernel(kernel_cmd, **kw)
            local = self.provisioner
            folder = kw.get("cwd") or Path.cwd()
            local.pid = local.pgid = fork(address, self.connection_file, folder)
            local.process = _Process(local.pid)
            self._reconcile_connection_info(local.connection_info)

        async def _async_interrupt_kernel(self):
            if not self.shutting_down:  # it is idle, and would only warn
                await super()._async_interrupt_kernel()

    return FromTemplate


if __name__ == "__main__":
    fork_kernels(socket.socket(fileno=int(sys.argv[1])))
