"""Stand-ins for a method or problem whose class may not be imported: they hold only its text.

People read each other's folders of results, and importing a class executes its module.  So texts in such
folders import nothing.
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
    """A method known only by its text; it cannot run.  Its ``gamma`` says nothing about the real one."""

    text: str
    gamma: StepSize = "theory"

    bound = resolve = worker_step = server_step = replica_step = paper_bits = paper_bits_down = theory = (
        _refuse
    )

    @property
    def step(self) -> str:
        """The text "?", as the step size is not known: the class has its default."""
        return "?"

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class UnimportedProblem(Problem):
    """A problem known only by its text; it has no f_i."""

    text: str

    dimension = objective = constants = _refuse

    def __repr__(self) -> str:
        return self.text
