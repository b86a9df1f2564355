"""A straggler's four models in LGA's known answers: as taken, a round later, now, and its own."""

from tests.support.known_answers import known

PULL, NEXT = known("LGA", "w^{t0}"), known("LGA", "w^{t1}")
NOW, LOCAL = known("LGA", "w^{t_tau}"), known("LGA", "w_k^{t0}")
ALL = (PULL, NEXT, NOW, LOCAL)
STAGES = [slice(0, 2), slice(2, 4)]
