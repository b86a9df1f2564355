"""A whole Flower network on this machine: a SuperLink and SuperNodes as processes on 127.0.0.1.

Linux only, since ended processes are looked for in /proc.  Nothing leaves the machine: telemetry,
update checks and the installation of packages at run time are switched off.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pfl_lib import _check

BIN = Path(sys.executable).parent
APP = Path(__file__).parent / "app"
NODE = Path(__file__).parent / "node.py"
NAME = "here"  # what the flwr command calls this SuperLink
SERVERS = (b"flwr-serverapp", b"flwr-simulation")  # processes with the server's program in them


class LocalNetwork:
    """A SuperLink, and one SuperNode per client; use it in a ``with`` statement.

    ``simulation=True`` has the SuperLink simulate the clients (Ray) instead.  ``tls`` is a folder
    for certificates and keys: then every connection is encrypted and only registered nodes may
    join.  With ``resident=False`` nodes are Flower's own, which start a process for each message.
    ``database=True`` has the SuperLink remember nodes and runs in a file, so that it can be killed
    and started again.

    >>> network = LocalNetwork(clients=3)  # nothing is started before ``with network:``
    >>> network.processes
    {}
    """

    address = "127.0.0.1"  # of the SuperLink, as the nodes see it

    def __init__(self, clients, simulation=False, tls=None, resident=True, database=False):
        self.clients = _check.whole("clients", clients)
        self.simulation = _check.flag("simulation", simulation)
        self.resident = _check.flag("resident", resident)
        self.database = _check.flag("database", database)
        self.tls = None if tls is None else _check.path("tls", tls)
        self.processes, self.forced = {}, []
        self.newest = None  # the number of the run that was submitted last
        self._asked = 0.0  # when the SuperLink was last asked how a run is

    def __enter__(self):
        if not (BIN / "flower-superlink").exists():
            raise ImportError(
                f"Flower is not installed for {sys.executable}: pip install 'pfl_lib[flower]'"
            )
        self.home = Path(tempfile.mkdtemp(prefix="pfl-"))
        self.port, *self.node_ports = _free_ports(1 if self.simulation else 1 + self.clients)
        self._configure()
        try:
            self.start_link()
            if self.tls:
                self._register()
            if not self.simulation:
                for i in range(self.clients):
                    self.start_node(i)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind, *_):
        self.stop()
        if kind is None:
            shutil.rmtree(self.home, ignore_errors=True)

    # ---- what one does with it ----------------------------------------------------------------

    def start_node(self, i):
        """Start the SuperNode of client ``i``, for the first time or again."""
        stock = [str(BIN / "flower-supernode")]
        command = [sys.executable, "-P", str(NODE)] if self.resident else stock
        command += ["--superlink", f"{self.address}:{self.port}"]
        command += ["--host", "127.0.0.1", "--port", str(self.node_ports[i])]
        command += ["--node-config", f"partition-id={i} num-partitions={self.clients}"]
        if self.tls:
            command += ["--root-certificates", str(self.tls / "ca.crt")]
            command += ["--auth-supernode-private-key", str(self.tls / f"node{i}")]
            command += self._certificates()
        else:
            command.append("--insecure")
        return self._spawn(f"node{i}", command)

    def kill_node(self, i):
        """End the SuperNode of client ``i`` and its children at once, as a power cut would."""
        self._kill(f"node{i}")

    def kill_link(self):
        """End the SuperLink and the server's program at once; ``start_link`` starts it again."""
        self._kill("link")

    def _kill(self, name):
        process = self.processes[name]
        for pid in [process.pid, *_descendants(process.pid)]:
            _signal(pid, signal.SIGKILL)
        process.wait()

    def workers(self):
        """The numbers of the processes in which clients train, where nodes keep one."""
        nodes = [p.pid for name, p in self.processes.items() if name.startswith("node")]
        below = [pid for node in nodes for pid in _descendants(node)]
        return [pid for pid in below if b"pfl_lib.flower.worker" in _command(pid)]

    def kill_worker(self, i, what=signal.SIGKILL):
        """End the worker of client ``i`` at once; its node starts another.

        With ``what=signal.SIGSTOP`` it is only held, until ``signal.SIGCONT``.
        """
        below = _descendants(self.processes[f"node{i}"].pid)
        for pid in [p for p in below if b"pfl_lib.flower.worker" in _command(p)]:
            _signal(pid, what)

    def submit(self, plan, out, app=APP):
        """Start a run of ``plan``; it writes into the folder ``out``.  Returns the run's number.

        A run that was cut short goes on from its last round if the same plan is submitted again
        with the same folder.  ``app`` is the folder of a Flower app that takes plans.
        """
        (Path(out) / "record.json").unlink(missing_ok=True)
        config = self.home / "run.toml"
        # a JSON string is also a TOML string
        lines = [f"plan = {json.dumps(plan.to_json())}", f"out = {json.dumps(str(out))}"]
        config.write_text("\n".join(lines) + "\n")
        command = ["run", str(app), NAME, "--format", "json", "-c", str(config)]
        if self.simulation:
            resources = "client-resources-num-cpus=1 init-args-num-cpus=2"
            command += ["--federation-config", f"num-supernodes={self.clients} {resources}"]
        reply = json.loads(self.flwr(*command))
        if "run-id" not in reply:
            raise RuntimeError(f"flwr run: {reply}")
        self.newest = str(reply["run-id"])
        return self.newest

    def wait(self, run_id, out, seconds=600.0):
        """Wait for the end of a run; what the server wrote."""
        end = time.monotonic() + seconds
        while not (Path(out) / "record.json").exists():
            if time.monotonic() > end:
                raise RuntimeError(f"run {run_id} did not end: {self.log('link')}")
            self.check(run_id, out)
            time.sleep(0.2)
        record = json.loads((Path(out) / "record.json").read_text())
        if "error" in record:
            raise RuntimeError(record["error"])
        return record

    def check(self, run_id, out):
        """Refuse to wait for a run that is over without a result, with its last words.

        The SuperLink is asked only while no process of the server's runs.  It may be about to begin
        (Flower starts one again that took too long); if it has begun, it is dead, which the
        SuperLink itself would notice a minute later.
        """
        if self.processes["link"].poll() is not None:
            raise RuntimeError(f"run {run_id}: the SuperLink has ended: {self.log('link')}")
        if self._serving() or time.monotonic() < self._asked + 3:
            return
        self._asked = time.monotonic()
        reply = json.loads(self.flwr("list", NAME, "--run-id", run_id, "--format", "json"))
        status = reply["runs"][0]["status"]
        begun = status == "running" or status.startswith("finished")
        if begun and not self._serving() and not (Path(out) / "record.json").exists():
            said = self.flwr("log", run_id, NAME, "--show")[-2000:]
            raise RuntimeError(
                f"run {run_id}: the server's process has ended without a result ({status}); it "
                f"said: {said}"
            )

    def _serving(self):
        """Does a process run that has the server's program in it?"""
        below = _descendants(self.processes["link"].pid)
        return any(name in _command(pid) for pid in below for name in SERVERS)

    def bytes_of(self, run_id):
        """What went into and out of the SuperLink for this run, as the SuperLink counts it."""
        reply = json.loads(self.flwr("list", NAME, "--run-id", run_id, "--format", "json"))
        traffic = reply["runs"][0]["network-traffic"]
        return {"in": traffic["inbound-bytes"], "out": traffic["outbound-bytes"]}

    def processor_seconds(self):
        """What all processes of this network have used so far, the ended ones included."""
        pids = [p for q in self.processes.values() for p in (q.pid, *_descendants(q.pid))]
        ticks = sum(sum(map(int, found[11:15])) for pid in pids if (found := _fields(pid)))
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """The bytes that all processes of this network hold now, shared pages counted once."""
        pids = [p for q in self.processes.values() for p in (q.pid, *_descendants(q.pid))]
        return 1024 * sum(map(_kilobytes, pids))

    def flwr(self, *arguments):
        """Run the ``flwr`` command; what it printed."""
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(f"flwr {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def log(self, name):
        """The end of what a process wrote."""
        return (self.home / f"{name}.log").read_text(errors="replace")[-2000:]

    def stop(self):
        """End the nodes, then the SuperLink; by force only what is left after half a minute."""
        pids = [p for q in self.processes.values() for p in (q.pid, *_descendants(q.pid))]
        for name in sorted(self.processes, reverse=True):  # node…, then link
            if self.processes[name].poll() is None:
                self.processes[name].terminate()
        end = time.monotonic() + 30
        for process in self.processes.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        while any(map(is_alive, pids)) and time.monotonic() < end:
            time.sleep(0.1)
        self.forced = [pid for pid in pids if is_alive(pid)]
        for pid in self.forced:
            _signal(pid, signal.SIGKILL)

    # ---- inside -------------------------------------------------------------------------------

    def _configure(self):
        (self.home / "ray").mkdir()
        # Ray queries the cloud's metadata service unless it finds this file
        (self.home / "ray_bootstrap_config.yaml").write_text("provider: {type: local}\n")
        trust = "insecure = true"
        if self.tls:
            trust = f"root-certificates = {json.dumps(str((self.tls / 'ca.crt').resolve()))}"
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n'
            f'address = "{self.address}:{self.port}"\n{trust}\n'
        )
        self.env = {
            **os.environ,
            "HOME": str(self.home),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_TMPDIR": str(self.home / "ray"),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }

    def start_link(self):
        """Start the SuperLink, for the first time or again, and wait until it answers."""
        command = [str(BIN / "flower-superlink"), "--host", self.address, "--port", str(self.port)]
        command.append("--disable-runtime-dependency-installation")
        command += ["--simulation"] if self.simulation else []
        command += ["--database", str(self.home / "superlink.db")] if self.database else []
        command += (
            [*self._certificates(), "--enable-supernode-auth"] if self.tls else ["--insecure"]
        )
        self._spawn("link", command)
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection((self.address, self.port), timeout=1).close()
                return
            except OSError:
                if self.processes["link"].poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"no SuperLink: {self.log('link')}") from None
                time.sleep(0.1)

    def _register(self):
        assert self.tls is not None
        for i in range(self.clients):
            self.flwr("supernode", "register", str(self.tls / f"node{i}.pub"), NAME)

    def _certificates(self):
        names = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
        tls = Path(self.tls or "")
        return [p for flag, name in names.items() for p in (f"--ssl-{flag}", str(tls / name))]

    def _spawn(self, name, command):
        if shutil.which("setpriv"):  # if this process dies, nothing is left running
            command = ["setpriv", "--pdeathsig", "TERM", "--", *command]
        with open(self.home / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.processes[name].pid


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _fields(pid):
    """The fields of /proc/PID/stat from the state on, or None."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def _kilobytes(pid):
    """A process's share of the memory it maps; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _stat(pid):
    """(state, parent) of a process, or None."""
    fields = _fields(pid)
    return None if fields is None else (fields[0], int(fields[1]))


def is_alive(pid):
    """Does a process of this number run?"""
    found = _stat(pid)
    return found is not None and found[0] != "Z"


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _descendants(pid):
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _stat(entry.name)) and found[0] != "Z":
            parents[int(entry.name)] = found[1]
    everyone, todo = [], [pid]
    while todo:
        todo = [child for child, parent in parents.items() if parent in todo]
        everyone += todo
    return everyone


def _signal(pid, what):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
