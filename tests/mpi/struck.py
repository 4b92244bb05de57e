"""A run in which one rank comes to grief: `struck.py JSON`, a ``fault_injection.Strike`` as JSON.

The rank strikes itself at the first opportunity from the round on, in the middle of what the phase names.
It leaves the time in FOLDER.struck; the server leaves in FOLDER.saved the rounds of finished checkpoints.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import mpicomp
from mpicomp.base import files
from mpicomp.codecs import messages
from mpicomp.runtime import loop, session
from mpicomp.runtime.measure import Lent, Measured
from mpicomp.text.config import parse_method, parse_problem
from mpicomp.transports.launcher import launched_rank

asked = json.loads(sys.argv[1])
folder = Path(asked["folder"])
method = parse_method(asked["method"])
armed = False


def strike() -> None:
    if not armed or launched_rank() != asked["rank"]:
        return
    mark = Path(f"{folder}.struck")
    if not mark.exists():  # a stopped process that mpirun lets go on before it ends it comes here again
        mark.write_text(repr(time.time()))
    how = asked["how"]
    if how == "raise":
        raise ZeroDivisionError("struck")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "exit":
        sys.exit(0)
    if how == "leave":
        os._exit(0)
    if how == "hang":
        time.sleep(1000)


def before(owner, name):
    """Let ``owner.name`` begin with a strike."""
    original = getattr(owner, name)

    def struck(*args, **options):
        strike()
        return original(*args, **options)

    setattr(owner, name, struck)


def step(self, k, original=loop.Loop.step):
    global armed
    armed = k >= asked["round"]
    return original(self, k)


server_half = type(method).server_step


def server_step(self, s, r, key):
    step, taken = server_half(self, s, r, key), []
    take = step.take

    def struck(key, up):
        if len(taken) == 3:
            strike()
        taken.append(key)
        take(key, up)

    step.take = struck
    return step


class Torn:
    """A file of which, if it is the one that the phase names, a part is written when the rank is struck."""

    def __init__(self, path, mode):
        self.file = open(path, mode)  # noqa: SIM115 (closed with this one)
        self.meant = asked["phase"] in str(path)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def write(self, content):
        first = int(asked["share"] * len(content)) if self.meant else len(content)
        self.file.write(content[:first])
        self.file.flush()
        if self.meant:
            strike()
        self.file.write(content[first:])

    def flush(self):
        self.file.flush()

    def fileno(self):
        return self.file.fileno()


def save(self, original=session.Session.save):
    original(self)
    if launched_rank() == 0:
        with open(f"{folder}.saved", "a") as saved:
            saved.write(f"{self.round}\n")


loop.Loop.step = step
session.Session.save = save
files.open = Torn
match asked["phase"]:
    case "data":
        armed = True
        before(type(parse_problem(asked["problem"])), "objective")
    case "gradient":
        before(Lent, "__enter__")
    case "compress":
        before(messages, "encode")
    case "server":
        type(method).server_step = server_step
    case "replica_step" | "receive" | "own_message":
        before(type(method), asked["phase"])
    case "observe":
        before(Measured, "observe")
    case "row":
        before(session.Recorder, "add")

if __name__ == "__main__":
    try:
        mpicomp.run(method, parse_problem(asked["problem"]), **asked["options"], out=folder)
    except mpicomp.MpicompError as error:
        if launched_rank() == 0:
            print(error, file=sys.stderr)
        sys.exit(1)
