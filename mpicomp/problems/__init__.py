"""The problems min f = (1/n) sum_i f_i, each with its constants.  A new one needs a line in the table."""

from mpicomp.problems.base import Constants, Objective, Problem
from mpicomp.problems.glm import Logistic, NonconvexGLM, NonconvexLogistic
from mpicomp.problems.least_squares import LeastSquares
from mpicomp.problems.noisy import Noisy
from mpicomp.problems.quadratics import Quadratics
from mpicomp.problems.saddle import Saddle

PROBLEMS: dict[str, type[Problem]] = {
    "quadratics": Quadratics,
    "logistic": Logistic,
    "nonconvex_logistic": NonconvexLogistic,
    "nonconvex_glm": NonconvexGLM,
    "least_squares": LeastSquares,
    "saddle": Saddle,
    "noisy": Noisy,
}

__all__ = [
    "PROBLEMS",
    "Constants",
    "LeastSquares",
    "Logistic",
    "Noisy",
    "NonconvexGLM",
    "NonconvexLogistic",
    "Objective",
    "Problem",
    "Quadratics",
    "Saddle",
]
