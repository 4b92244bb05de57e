"""Fill in a job script, and hand it to Slurm."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from unicodedata import category

from mpicomp.base.errors import ConfigError

SCRIPTS = Path(__file__).parent  # those that are filled in here
_NOT_TEXT = {"Cc", "Cs", "Zl", "Zp"}  # controls, undecodable bytes, separators of lines and paragraphs

# What tasks of an array must not share, as the shell writes it: task 3 has the seed 3, and the file or folder
# %s-3 in the place of %s.
_OF_A_TASK = {"--seed": '"${SLURM_ARRAY_TASK_ID:-%s}"'} | dict.fromkeys(
    ("--out", "--follow", "--tensorboard"), '%s"${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}"'
)


def fill(script: str, request: Mapping[str, object], arguments: Sequence[str], array: bool = False) -> str:
    """``script`` with the two lines filled in that a user would edit: the Slurm options and the command.

    request    options of sbatch by name; options that are None are left out
    arguments  of ``mpicomp run``
    array      whether the script may be an array: then each task has a seed and a folder of its own

    Raises ``ConfigError`` for a value that is not one line of text: its second line would be the script's.
    """
    values = {f"--{name}": str(v) for name, v in request.items()} | {str(a): str(a) for a in arguments}
    for name, value in values.items():
        if any(category(character) in _NOT_TEXT for character in value):
            given = "" if name == value else f"{name} "
            raise ConfigError(
                f"{given}{value!r} holds a line break or another control character, which a job script "
                "cannot carry; write it on one line."
            )
    asked = " ".join(f"--{name}={shlex.quote(str(v))}" for name, v in request.items() if v is not None)
    words = [shlex.quote(argument) for argument in arguments]
    if array:
        for k, name in enumerate(arguments[:-1]):
            words[k + 1] = _OF_A_TASK.get(name, "%s") % words[k + 1]
    lines = script.splitlines()
    for start, line in {"#SBATCH ": f"#SBATCH {asked}", "run=(": f"run=({' '.join(words)})"}.items():
        first = next(number for number, old in enumerate(lines) if old.startswith(start))
        lines[first] = line
    return "\n".join(lines) + "\n"


def job_script(requeue: bool, request: Mapping[str, object], arguments: Sequence[str]) -> str:
    """The filled-in script of one run, or of one that queues itself again until it is done."""
    name = "requeue.sh" if requeue else "run.sh"
    return fill((SCRIPTS / name).read_text(encoding="utf-8"), request, arguments, array=requeue)


def submit(script: str) -> int:
    """Hand ``script`` to sbatch, which prints the job's number; returns the exit status of sbatch.

    The job finds this Python environment's commands.  Raises ``ConfigError`` if there is no sbatch.
    """
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "no sbatch found: submit where Slurm is, on a login node of the cluster. --dry-run shows the "
            "job script here, and `mpicomp run --ranks N` runs without Slurm."
        )
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(["sbatch"], input=script, text=True, env=os.environ | {"PATH": path}).returncode
