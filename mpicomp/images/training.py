"""Train a model of images over ranks with compressed gradients, in stages of decreasing step sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpicomp.base.checks import as_integer, as_workers
from mpicomp.base.errors import ConfigError, MpicompError, RecordError
from mpicomp.base.files import as_path_or_none, present
from mpicomp.base.units import one_line
from mpicomp.compressors import TopK
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from mpicomp.images.model import ImageModel, kind_of
from mpicomp.methods import EF21SGDM, Method
from mpicomp.runtime.alike import refuse_other_call
from mpicomp.runtime.facts import read_facts
from mpicomp.runtime.run import left_in_order, run
from mpicomp.text.config import as_method
from mpicomp.transports import connect
from mpicomp.transports.launcher import launched_rank

Stage = tuple[float, int]  # a step size, and for how many rounds

# Chosen by the bits a pixel of 700 training images that were held out: see docs/images.md.
RECIPES: dict[str, tuple[Method, tuple[Stage, ...]]] = {
    "local": (
        EF21SGDM(TopK(k=0.01), gamma=1.0, eta=0.03, batch=512),
        ((1.0, 5000), (0.3, 3000), (0.1, 2000)),
    ),
    "full": (
        EF21SGDM(TopK(k=0.05), gamma=2.0, eta=0.1, batch=512),
        ((2.0, 6000), (0.6, 3000), (0.2, 1000)),
    ),
}


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of ``train``.

    value                 the mean of -log p, in nats, over 2000 training pixels of each worker, at the end
    up_bytes, down_bytes  bytes of all rounds and workers in each direction
    interrupted           whether a signal ended the training early
    """

    model: ImageModel
    value: float
    up_bytes: int
    down_bytes: int
    interrupted: bool


def train(
    problem: LocalImages | FullImages,
    method: Method | str | None = None,
    stages: Sequence[Stage] | None = None,
    *,
    workers: int = 4,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool | None = False,
    checkpoint_every: int | None = None,
    progress: Any = None,
) -> Trained:
    """Train a model on ``problem`` by ``method``, with the step sizes and rounds of ``stages`` in turn.

    A stage starts at the final x of the previous one, with zero residuals.  None for ``method`` or ``stages``
    means those of ``RECIPES``.  Each stage writes its record to ``out``/stage-1, .., and the model is written
    to ``out``/model.npz.  ``progress`` is called as in ``run``, with the rounds of all stages.  Under mpirun
    every rank calls this and gets the same model.

    resume            as in ``run``: True continues the training in ``out``, by the same stages, to the model
                      of one that was not interrupted, bit for bit; None continues it if there is one, else
                      starts
    checkpoint_every  rounds between checkpoints of a stage; one is written at its end, too

    Raises ``ConfigError`` for settings that cannot run, and ``RecordError`` if ``out`` holds one of these
    files without ``resume``, or what is no training with these settings.
    """
    usual, its_stages = RECIPES[kind_of(problem)]
    method = as_method(usual if method is None else method)
    out = as_path_or_none("out", out)
    # Before the first stage: the mistake of a later one would cost all rounds before it.
    pairs = _pairs(its_stages if stages is None else stages)
    planned = [(method.with_step(step), as_integer("rounds", rounds)) for step, rounds in pairs]
    _check_folder(out, planned, as_workers(workers), resume)
    x, up, down, before, interrupted = None, 0, 0, 0, False
    for number, (stepping, rounds) in enumerate(planned, 1):

        def advance(round: int, row: Any, before: int = before) -> None:
            if progress is not None:
                progress(before + round, row)

        done = run(
            stepping,
            problem,
            workers=workers,
            rounds=rounds,
            seed=seed,
            every=rounds,
            observe=2000,
            x0=x,
            out=None if out is None else out / f"stage-{number}",
            resume=resume if number == 1 or resume is False else None,  # a later stage may not have begun
            checkpoint_every=checkpoint_every,
            progress=advance,
        )
        x, before = done.x, before + rounds
        up, down = up + done.rows[-1].up_bytes, down + done.rows[-1].down_bytes
        interrupted = done.status == "interrupted"
        if interrupted:
            break
    model = ImageModel.of(problem, x)
    if out is not None and launched_rank() == 0 and not interrupted:
        model.save(out / "model.npz")
    return Trained(model, done.rows[-1].value, up, down, interrupted)


def _pairs(stages: Any) -> list[tuple[Any, Any]]:
    """The stages as pairs, at least one.  Raises ``ConfigError`` for anything else."""
    try:
        pairs = [(step, rounds) for step, rounds in stages]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise ConfigError(
            f"stages={one_line(stages)}; allowed: pairs of a step size and rounds, such as "
            "[(1.0, 5000), (0.3, 3000)], or None."
        )
    return pairs


def _check_folder(
    out: Path | None, planned: Sequence[tuple[Method, int]], workers: int, resume: bool | None
) -> None:
    """Raise ``RecordError`` on all ranks if ``out`` holds what would be overwritten; collective.

    A training that is resumed goes on in what it has written itself, by the same stages.
    """

    def look() -> None:
        if out is None:
            return
        model, stages = out / "model.npz", [out / f"stage-{k}" for k in range(1, len(planned) + 2)]
        if resume is False:
            for path in (*stages, model):
                if present(path):
                    raise RecordError(f"{path} is already there. Choose another folder for the training.")
        asked = [facts.get("asked", {}) for stage in stages if (facts := read_facts(stage))]
        held = [(one.get("method"), one.get("rounds")) for one in asked]
        own = [(repr(method), rounds) for method, rounds in planned]
        if held != own[: len(held)] or (present(model) and len(held) < len(own)):
            shown = ", ".join(f"{rounds} rounds of {method}" for method, rounds in held) or "none"
            raise RecordError(
                f"{out} holds a training by other stages: {shown}. It is resumed by its own ones. Give "
                "these, or choose another folder."
            )

    control = connect(workers)
    with left_in_order(control, MpicompError):
        refuse_other_call(control, "mpicomp.images.train")
        control.ask_server(look)
