"""Who is late, and by how much: the timetable of asynchronous federated learning.

A client with delay q pulls the global model in round r, uploads what it trained in round r + q (it
misses q aggregations and joins one), and pulls again in round r + q + 1.  Delay 0 is on time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pfl_lib import _check

SPFL_PERIODS = (1, 2, 3, 4, 5)  # SPFL Sec. 4.2: five stragglers among ten clients
NAMED = ("spfl", "alternating")


@dataclass(frozen=True)
class Timetable:
    """``delays[i]`` are client i's delays in successive absences, repeated cyclically.

    >>> print(timetable([0, 2, (1, 0)], clients=3).draw(rounds=6))
    0 ↕↕↕↕↕↕
    1 ↓·↑↓·↑
    2 ↓↑↕↓↑↕
    """

    delays: tuple[tuple[int, ...], ...]

    def pulled(self, k):
        """For each client the round in which it pulled the model it works on in round ``k``."""
        return [k - self._place(i, k)[0] for i in range(len(self.delays))]

    def pulls(self, k):
        """The clients that pull the global model at the beginning of round ``k``."""
        return [i for i in range(len(self.delays)) if self._place(i, k)[0] == 0]

    def arrivals(self, k):
        """The clients whose models reach the server in round ``k``."""
        return [i for i in range(len(self.delays)) if self._place(i, k)[1] == 0]

    def on_time(self, k):
        """The clients that do both in round ``k``."""
        return [i for i in self.arrivals(k) if self._place(i, k)[0] == 0]

    def draw(self, rounds):
        """One line per client: ↓ pulls, ↑ uploads, ↕ both in one round, · away."""
        signs = {(True, True): "↕", (True, False): "↓", (False, True): "↑", (False, False): "·"}
        width = len(str(len(self.delays) - 1))
        lines = []
        for i in range(len(self.delays)):
            places = (self._place(i, k) for k in range(rounds))
            line = "".join(signs[gone == 0, left == 0] for gone, left in places)
            lines.append(f"{i:>{width}} {line}")
        return "\n".join(lines)

    def _place(self, i, k):
        """Rounds since client i's last pull, and rounds until it uploads."""
        ends = list(accumulate(q + 1 for q in self.delays[i]))
        place = k % ends[-1]
        for end, q in zip(ends, self.delays[i]):
            if place < end:
                return place - (end - 1 - q), end - 1 - place


def timetable(stragglers, clients):
    """The timetable given by ``stragglers`` in a federation of ``clients`` clients.

    * ``"spfl"``: the last half of the clients, with delays 1 to 5 in turn; ten clients give the
      setting of SPFL Sec. 4.2, every arrival of a straggler being a late one;
    * ``"alternating"``: the same clients and delays, but after each late arrival a straggler is on
      time once, as in that paper's public code; then even a server that drops late models uses
      them;
    * a number s: the last s clients, with delays 1, 2, …, s; 0 means nobody is late;
    * one entry per client: its delay, or several delays that follow each other.

    >>> timetable("spfl", clients=10).delays[4:]
    ((0,), (1,), (2,), (3,), (4,), (5,))
    >>> timetable("alternating", clients=10).delays[4:]
    ((0,), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0))
    """
    check(stragglers)
    _check.whole("clients", clients)
    if stragglers in NAMED:
        periods = [SPFL_PERIODS[j % len(SPFL_PERIODS)] for j in range(clients // 2)]
        late: Sequence = [(q, 0) for q in periods] if stragglers == "alternating" else periods
    elif not isinstance(stragglers, Sequence):
        late = range(1, _check.whole("stragglers", stragglers, at_least=0) + 1)
    else:
        late = stragglers
        if len(late) != clients:
            raise ValueError(
                f"stragglers must hold one entry for each of the {clients} clients, got {len(late)}"
            )
    if len(late) > clients:
        raise ValueError(f"stragglers must be at most {clients}, the clients; got {stragglers!r}")
    delays = [0] * (clients - len(late)) + list(late)
    return Timetable(tuple(_cycle(q) for q in delays))


def check(stragglers):
    """Refuse what ``timetable`` would refuse for every number of clients.

    >>> check("spfl")
    """
    if isinstance(stragglers, str):
        _check.one_of("stragglers", stragglers, NAMED)
    elif isinstance(stragglers, Sequence) and not isinstance(stragglers, bytes):
        for q in stragglers:
            _cycle(q)
    else:
        _check.whole("stragglers", stragglers, at_least=0)


def _cycle(delay):
    delays = tuple(delay) if isinstance(delay, (tuple, list)) else (delay,)
    if not delays:
        raise ValueError("stragglers holds a client with no delay at all; 0 means on time")
    return tuple(_check.whole("each delay in stragglers", q, at_least=0) for q in delays)
