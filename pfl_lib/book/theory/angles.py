"""HeurFedAMP: how much a client hears, and from whom."""

import math

from pfl_lib import _check


def message_noise(tau, similar):
    """(1 − τ)² + τ²/N: the noise left in u = (1 − τ)w + τ·(mean of N alike), w having 1.

    Equation label: eq-tau-noise

    >>> message_noise(tau=0.5, similar=1)
    0.5
    """
    return (1 - tau) ** 2 + tau**2 / _check.whole("similar", similar)


def best_tau(similar):
    """N/(N + 1), where ``message_noise`` is least: the plain mean of a client and its N like.

    Equation label: eq-tau-rule

    >>> best_tau(similar=19)
    0.95
    """
    return _check.whole("similar", similar) / (similar + 1)


def heur_share(sigma, gap, m, group):
    """Of what a client hears from others, the part from its own group: HeurFedAMP's, idealised.

    All cosines inside a group of ``group`` clients are alike, and larger by ``gap`` than those to
    the m − ``group`` strangers.

    Equation label: eq-heur-share

    >>> heur_share(sigma=0.0, gap=0.05, m=25, group=5)
    0.16666666666666666
    """
    strangers = (m - group) / (_check.whole("group", group, at_least=2) - 1)
    return 1 / (1 + strangers * math.exp(-sigma * gap))
