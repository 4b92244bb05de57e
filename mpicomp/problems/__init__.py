"""The problems min f = (1/n) sum_i f_i, and the table by which the command line knows them."""

from mpicomp.problems.auroc import auroc
from mpicomp.problems.autoencoder import Autoencoder
from mpicomp.problems.base import Constants, FiniteSum, Objective, Problem
from mpicomp.problems.full_images import FullImages
from mpicomp.problems.glm import Logistic, NonconvexGLM, NonconvexLogistic
from mpicomp.problems.least_squares import LeastSquares
from mpicomp.problems.local_images import LocalImages
from mpicomp.problems.mlp import MLP
from mpicomp.problems.noisy import Noisy
from mpicomp.problems.quadratics import Quadratics
from mpicomp.problems.saddle import Saddle
from mpicomp.problems.softmax import Softmax

PROBLEMS: dict[str, type[Problem]] = {
    "quadratics": Quadratics,
    "logistic": Logistic,
    "nonconvex_logistic": NonconvexLogistic,
    "nonconvex_glm": NonconvexGLM,
    "least_squares": LeastSquares,
    "saddle": Saddle,
    "autoencoder": Autoencoder,
    "softmax": Softmax,
    "mlp": MLP,
    "local_images": LocalImages,
    "full_images": FullImages,
    "noisy": Noisy,
}

__all__ = [
    "MLP",
    "PROBLEMS",
    "Autoencoder",
    "Constants",
    "FiniteSum",
    "FullImages",
    "LeastSquares",
    "LocalImages",
    "Logistic",
    "Noisy",
    "NonconvexGLM",
    "NonconvexLogistic",
    "Objective",
    "Problem",
    "Quadratics",
    "Saddle",
    "Softmax",
    "auroc",
]
