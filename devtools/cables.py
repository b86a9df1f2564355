"""Virtual machines with their own addresses, connected by cables that can fail (Linux).

Each machine is a network namespace. A cable is two TUN devices, one at each end, and a thread that
carries the packets from one to the other: it loses some, delays all, repeats some, and carries
nothing while it is cut. It does not use the kernel's ``tc … netem``, which many kernels
lack; either way real IP packets are lost, and TCP has to cope.

Nothing is left behind: namespaces and devices belong to this process and end with it. It needs
root, or a machine where users may create namespaces.
"""

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

NEW_USER, NEW_NET = 0x10000000, 0x40000000
SET_TUN, PLAIN_TUN = 0x400454CA, 0x1001  # an ioctl; IP packets without a header of the device's own
CENTRE, PLACE = "10.77.0.1", "10.77.1.{}"


def isolate():
    """Leave this thread and its children no network but the loopback."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NET) and libc.unshare(NEW_USER | NEW_NET):
        raise OSError(ctypes.get_errno(), "this machine does not let us make a network namespace")
    with socket.socket() as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # up and running


def _tun(name, *addresses):
    """The open end of a new TUN device in the namespace of the calling thread."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, SET_TUN, struct.pack("16sH22x", name.encode(), PLAIN_TUN))
    for command in (*addresses, f"link set {name} up"):
        ip(command)
    return end


def ip(command):
    where = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    subprocess.run(["ip", *command.split()], check=True, capture_output=True, env=where)


class Machine:
    """A namespace kept by one thread; whatever ``do`` calls runs in it, processes too.

    Its address is ``address``, and a cable joins it to the centre, where ``CENTRE`` is the address.
    """

    def __init__(self, number):
        self.number, self.address = number, PLACE.format(number + 1)
        self.cable = Cable(seed=number)
        self._thread = ThreadPoolExecutor(1, f"machine{number}", initializer=isolate)
        self.there = self.do(_tun, "cable", f"addr add {self.address}/16 dev cable")
        self.here = _tun(f"cable{number}")
        ip(f"route add {self.address} dev cable{number} src {CENTRE}")

    def do(self, function, *arguments, **named):
        return self._thread.submit(function, *arguments, **named).result()

    def pull_the_plug(self):
        """Unplug the cable: the device at this end goes down."""
        self.do(ip, "link set cable down")

    def plug_in(self):
        self.do(ip, "link set cable up")

    def close(self):
        self._thread.shutdown()
        os.close(self.here)
        os.close(self.there)


class Cable:
    """The quality of a cable: ``loss`` and ``twice`` are probabilities, ``delay`` is in seconds.

    >>> cable = Cable(loss=1.0)
    >>> cable.fate(), cable.lost
    ([], 1)
    """

    def __init__(self, loss=0.0, delay=0.0, twice=0.0, seed=0):
        self.chance = random.Random(seed)
        self.carried = self.lost = self.repeated = 0
        self.set(loss, delay, twice)

    def set(self, loss=0.0, delay=0.0, twice=0.0):
        self.loss, self.delay, self.twice = loss, delay, twice

    def fate(self):
        """After how many seconds the next packet arrives: once, twice, or never."""
        if self.chance.random() < self.loss:
            self.lost += 1
            return []
        self.carried += 1
        # up to half as long again: packets overtake each other
        late = [self.delay * (1 + self.chance.random() / 2)]
        if self.chance.random() < self.twice:
            self.repeated += 1
            late.append(late[0] + 0.2 + self.chance.random())
        return late


class Cables:
    """``count`` machines around this process, which becomes the centre; use it in a ``with``."""

    def __init__(self, count):
        isolate()
        ip(f"addr add {CENTRE}/32 dev lo")
        self.machines = [Machine(i) for i in range(count)]
        self._open = True
        self._carrier = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self):
        self._carrier.start()
        return self.machines

    def __exit__(self, *_):
        self._open = False
        self._carrier.join()
        for machine in self.machines:
            machine.close()

    def _carry(self):
        ways = {}
        for machine in self.machines:
            ways[machine.here] = machine.there, machine.cable
            ways[machine.there] = machine.here, machine.cable
        on_the_way, order = [], itertools.count()
        while self._open:
            wait = min(0.1, max(0.0, on_the_way[0][0] - time.monotonic())) if on_the_way else 0.1
            for end in select.select(list(ways), [], [], wait)[0]:
                other, cable = ways[end]
                packet = _quietly(os.read, end, 65536)
                for late in cable.fate() if packet else ():
                    item = (time.monotonic() + late, next(order), other, packet)
                    heapq.heappush(on_the_way, item)
            while on_the_way and on_the_way[0][0] <= time.monotonic():
                _, _, other, packet = heapq.heappop(on_the_way)
                _quietly(os.write, other, packet)


def _quietly(call, *arguments):
    """Where an end is down or full, the packet is lost."""
    try:
        return call(*arguments)
    except OSError:
        return None
