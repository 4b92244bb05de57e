"""Distributed optimisation with compressed communication over MPI: packed bytes, counted as sent.

>>> import mpicomp
>>> from mpicomp import MARINA, Quadratics, RandK
>>> run = mpicomp.run(MARINA(Q=RandK(k=0.1)), Quadratics(d=50), workers=4, rounds=20)
>>> run.rows[-1].up_bytes == run.ledger.up_bytes
True
"""

from typing import TYPE_CHECKING

from mpicomp.base.lazy import found, importing
from mpicomp.compressors import COMPRESSORS as COMPRESSORS
from mpicomp.methods import METHODS as METHODS
from mpicomp.problems import PROBLEMS as PROBLEMS
from mpicomp.runtime import plotting
from mpicomp.transports import ending, openers
from mpicomp.transports.launcher import launched_ranks

if TYPE_CHECKING:
    from mpicomp.base.errors import ConfigError as ConfigError
    from mpicomp.base.errors import DivergedError as DivergedError
    from mpicomp.base.errors import Interrupted as Interrupted
    from mpicomp.base.errors import MpicompError as MpicompError
    from mpicomp.base.parts import Part as Part
    from mpicomp.base.parts import Parts as Parts
    from mpicomp.base.version import __version__ as __version__
    from mpicomp.compressors import *  # noqa: F403
    from mpicomp.compressors.promises import check_compressor as check_compressor
    from mpicomp.images.full_images import FullImages as FullImages
    from mpicomp.images.local_images import LocalImages as LocalImages
    from mpicomp.keys import Key as Key
    from mpicomp.lab.bench.advice import advise as advise
    from mpicomp.lab.experiment.scripting import compare as compare
    from mpicomp.lab.experiment.scripting import load as load
    from mpicomp.lab.experiment.scripting import plot as plot
    from mpicomp.lab.experiment.scripting import tune as tune
    from mpicomp.loops.aggregator import Aggregator as Aggregator
    from mpicomp.loops.descent import Descent as Descent
    from mpicomp.methods import *  # noqa: F403
    from mpicomp.problems import *  # noqa: F403
    from mpicomp.problems.promises import check_problem as check_problem
    from mpicomp.runtime import callbacks as callbacks
    from mpicomp.runtime.promises import check_method as check_method
    from mpicomp.runtime.result import Run as Run
    from mpicomp.runtime.run import run as run

# The annex registers its problems here, where nothing below it names it.
PROBLEMS.add("local_images", "mpicomp.images.local_images:LocalImages")
PROBLEMS.add("full_images", "mpicomp.images.full_images:FullImages")

# torch is above the transports, and the opener of its process groups is loaded where torch is.
openers.register("torch.distributed", "mpicomp.torch.opening:OPENER")

_PLACES = METHODS.places | COMPRESSORS.places | PROBLEMS.places
for _module, _names in {
    "base.errors": "ConfigError DivergedError Interrupted MpicompError",
    "base.parts": "Part Parts",
    "base.version": "__version__",
    "compressors": "Absolute Compressor Contractive Unbiased",
    "compressors.promises": "check_compressor",
    "keys": "Key",
    "lab.bench.advice": "advise",
    "lab.experiment.scripting": "compare load plot tune",  # on many runs
    "loops.aggregator": "Aggregator",
    "loops.descent": "Descent",
    "methods": "Method",
    "problems": "Constants FiniteSum Objective Problem",
    "problems.promises": "check_problem",
    "runtime.promises": "check_method",
    "runtime.result": "Run",
    "runtime.run": "run",
}.items():
    _PLACES |= {name: f"mpicomp.{_module}:{name}" for name in _names.split()}

if not TYPE_CHECKING:
    __all__ = [*_PLACES, "callbacks"]
    __getattr__, __dir__ = importing(__name__, _PLACES | {"callbacks": "mpicomp.runtime.callbacks"})

if (launched_ranks() or 1) > 1:  # an error may come before the first collective call
    ending.watch()

# Figures are a layer above runs, loaded when one is asked for.
plotting.register(lambda run, **words: found(_PLACES["plot"])(run, **words))
