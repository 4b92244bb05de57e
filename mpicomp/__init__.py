"""Distributed optimisation with compressed communication over MPI: packed bytes, counted as sent.

>>> import mpicomp
>>> from mpicomp import MARINA, Quadratics, RandK
>>> run = mpicomp.run(MARINA(Q=RandK(k=0.1)), Quadratics(d=50), workers=4, rounds=20)
>>> run.rows[-1].up_bytes == run.ledger.up_bytes
True
"""

from typing import TYPE_CHECKING, Any

from mpicomp import follow, problems
from mpicomp.base.errors import ConfigError, DivergedError, Interrupted, MpicompError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import *  # noqa: F403
from mpicomp.compressors import __all__ as _compressors
from mpicomp.embedded.aggregator import Aggregator
from mpicomp.embedded.descent import Descent
from mpicomp.keys import Key
from mpicomp.methods import *  # noqa: F403
from mpicomp.methods import __all__ as _methods
from mpicomp.problems import *  # noqa: F403
from mpicomp.problems import __all__ as _problems
from mpicomp.runtime.plotting import register
from mpicomp.runtime.run import Run, run
from mpicomp.version import __version__

if TYPE_CHECKING:
    from mpicomp.experiment.scripting import compare, load, plot, tune

__all__ = [
    *_compressors,
    *_methods,
    *_problems,
    "Aggregator",
    "ConfigError",
    "Descent",
    "DivergedError",
    "Interrupted",
    "Key",
    "MpicompError",
    "Part",
    "Parts",
    "Run",
    "__version__",
    "compare",
    "follow",
    "load",
    "plot",
    "problems",
    "run",
    "tune",
]


def __getattr__(name: str) -> Any:
    """The functions on many runs, imported when one is asked for: a rank of a single run needs none."""
    if name in ("compare", "load", "plot", "tune"):
        from mpicomp.experiment import scripting

        return getattr(scripting, name)
    raise AttributeError(f"module 'mpicomp' has no attribute {name!r}")


# Figures are a layer above runs, loaded when one is asked for.
register(lambda run, **words: __getattr__("plot")(run, **words))
