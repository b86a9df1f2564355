"""Toy problems small enough to solve exactly, on which the theorems and errata are tried."""

from pfl_lib import _deprecated
from pfl_lib.book.theory.angles import best_tau, heur_share, message_noise
from pfl_lib.book.theory.basics import holds, norm2, size, weigh
from pfl_lib.book.theory.bounds import (
    THEOREM2,
    coupling_smoothness,
    lowest_curvature,
    proximal_gradient_bound,
    proximal_gradient_slope_bound,
    theorem1_bound,
    theorem2_bound,
    weak_convexity,
)
from pfl_lib.book.theory.budget import ala_once, ala_spent, explained
from pfl_lib.book.theory.federations import DescentFederation, QuadraticFederation, iterate
from pfl_lib.book.theory.feedback import (
    FeedbackPath,
    critical_drift,
    critical_sigmas,
    feedback_loop,
    fit_drift,
    group_distance,
    resting_gap,
)
from pfl_lib.book.theory.graph import (
    RULES,
    descend,
    distance_moved,
    laplacian,
    majorizer,
    mean_shift,
    rounds_until,
    self_weight_floor,
    springs,
)
from pfl_lib.book.theory.late import Straggler, leap_errors, logistic_straggler
from pfl_lib.book.theory.mixtures import ala_path, best_mixtures, shared_and_personal
from pfl_lib.book.theory.problems import (
    FlatBowls,
    Problem,
    Quadratics,
    convex_toy,
    nonconvex_toy,
    plane_toy,
    random_starts,
)
from pfl_lib.book.theory.running import (
    as_is_bound,
    local_descent,
    lojasiewicz_constant,
    relative_error,
    run_as_is,
)
from pfl_lib.book.theory.selection import (
    FEDACS_THEOREM,
    PulledQuadratics,
    balanced,
    fedacs_theorem_bound,
    fedacs_toy,
)
from pfl_lib.book.theory.sweeps import bistable_centers, count_limits, width_sweep

__all__ = [
    "FEDACS_THEOREM",
    "RULES",
    "THEOREM2",
    "DescentFederation",
    "FeedbackPath",
    "FlatBowls",
    "Problem",
    "PulledQuadratics",
    "QuadraticFederation",
    "Quadratics",
    "Straggler",
    "ala_once",
    "ala_path",
    "ala_spent",
    "as_is_bound",
    "balanced",
    "best_mixtures",
    "best_tau",
    "bistable_centers",
    "convex_toy",
    "count_limits",
    "coupling_smoothness",
    "critical_drift",
    "critical_sigmas",
    "descend",
    "distance_moved",
    "explained",
    "fedacs_theorem_bound",
    "fedacs_toy",
    "feedback_loop",
    "fit_drift",
    "group_distance",
    "heur_share",
    "holds",
    "iterate",
    "laplacian",
    "leap_errors",
    "local_descent",
    "logistic_straggler",
    "lojasiewicz_constant",
    "lowest_curvature",
    "majorizer",
    "mean_shift",
    "message_noise",
    "nonconvex_toy",
    "norm2",
    "plane_toy",
    "proximal_gradient_bound",
    "proximal_gradient_slope_bound",
    "random_starts",
    "relative_error",
    "resting_gap",
    "rounds_until",
    "run_as_is",
    "self_weight_floor",
    "shared_and_personal",
    "size",
    "springs",
    "theorem1_bound",
    "theorem2_bound",
    "weak_convexity",
    "weigh",
    "width_sweep",
]

_deprecated.keep_former_names(__name__)
