"""What a text stands for whose class this process has not imported, where nothing may be imported.

A record is read by more people than the one who made it, and to import a class executes its module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from mpicomp.base.errors import ConfigError
from mpicomp.methods import Method
from mpicomp.methods.parameters import StepSize
from mpicomp.problems import Problem


def _refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
    raise ConfigError(
        f"{self.text} is known by its text alone: reading a folder imports no class that the folder names. "
        "Give the method and the problem yourself to run them."
    )


@dataclass(frozen=True, repr=False)
class UnimportedMethod(Method):
    """A method that is only named: it cannot run.  Where its text is ``gamma``, nothing is known of it."""

    text: str
    gamma: StepSize = "theory"

    bound = resolve = worker_step = server_step = replica_step = paper_bits = paper_bits_down = theory = (
        _refuse
    )

    @property
    def step(self) -> str:
        """Not known: the class has the default."""
        return "?"

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class UnimportedProblem(Problem):
    """A problem that is only named: it has no f_i."""

    text: str

    dimension = objective = constants = _refuse

    def __repr__(self) -> str:
        return self.text
