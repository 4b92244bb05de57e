"""The problems min f = (1/n) sum_i f_i by their names in texts; a class is imported when it is asked for."""

from typing import TYPE_CHECKING

from mpicomp.base.lazy import Table, importing
from mpicomp.problems.base import Problem as Problem
from mpicomp.problems.constants import Constants as Constants
from mpicomp.problems.objective import FiniteSum as FiniteSum
from mpicomp.problems.objective import Objective as Objective

if TYPE_CHECKING:
    from mpicomp.problems.attacked import Attacked as Attacked
    from mpicomp.problems.autoencoder import Autoencoder as Autoencoder
    from mpicomp.problems.glm import Logistic as Logistic
    from mpicomp.problems.glm import NonconvexGLM as NonconvexGLM
    from mpicomp.problems.glm import NonconvexLogistic as NonconvexLogistic
    from mpicomp.problems.least_squares import LeastSquares as LeastSquares
    from mpicomp.problems.mlp import MLP as MLP
    from mpicomp.problems.noisy import Noisy as Noisy
    from mpicomp.problems.quadratics import Quadratics as Quadratics
    from mpicomp.problems.saddle import Saddle as Saddle
    from mpicomp.problems.softmax import Softmax as Softmax

PROBLEMS: Table[Problem] = Table(
    __name__,
    {
        "quadratics": "quadratics:Quadratics",
        "logistic": "glm:Logistic",
        "nonconvex_logistic": "glm:NonconvexLogistic",
        "nonconvex_glm": "glm:NonconvexGLM",
        "least_squares": "least_squares:LeastSquares",
        "saddle": "saddle:Saddle",
        "autoencoder": "autoencoder:Autoencoder",
        "softmax": "softmax:Softmax",
        "mlp": "mlp:MLP",
        "noisy": "noisy:Noisy",
        "attacked": "attacked:Attacked",
    },
)

if not TYPE_CHECKING:
    __all__ = [*PROBLEMS.places, "Constants", "FiniteSum", "Objective", "PROBLEMS", "Problem"]
    __getattr__, __dir__ = importing(__name__, PROBLEMS.places)
