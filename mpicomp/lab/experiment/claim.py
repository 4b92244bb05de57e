"""Claim a folder for a comparison or a study: nothing of another one, or of the user's, is overwritten."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

from mpicomp.base.errors import RecordError
from mpicomp.base.files import present, read_json, write_text
from mpicomp.lab.experiment.averaged import averaged_in
from mpicomp.lab.experiment.belonging import check_belongs
from mpicomp.lab.experiment.folder import (
    check_below,
    check_inside,
    kept,
    read_tunings,
    runs_of,
    tuning_file,
)
from mpicomp.lab.experiment.start import fingerprint, starting_point
from mpicomp.lab.experiment.study import Study, load_file
from mpicomp.lab.experiment.suite import Suite
from mpicomp.lab.experiment.suite_file import load_suite
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.runtime.facts import read_facts
from mpicomp.runtime.record import check_claim

# What is written anew at the end: by ``experiment.report``, and in a comparison by ``finish_comparison``.
_PUBLISHED = ("table.md", "table.json", "figure.png")
_GATHERED = ("tuning.json", "rows.csv")


def open_comparison(out: Path, suite: Suite, resume: bool | None, averaged: str) -> dict[str, Tuning]:
    """Claim the folder ``out`` for ``suite``; returns the tunings recorded there, by label.

    resume    True: the folder must hold this comparison.  False: it must not hold any.  None: either.
    averaged  how its runs average messages; see the module ``averaged``

    Raises ``RecordError`` if that is violated, if the folder holds a run, another comparison, or files of the
    user's that would be overwritten, if it leads elsewhere, or if its results were computed on other data, or
    averaged otherwise.
    """
    path = out / "suite.toml"
    check_inside(out, suite)
    check_claim(out, "comparison", present(path), resume)
    if present(path):
        held = kept(path, load_suite)
        if different := [
            f.name for f in fields(suite) if f.compare and getattr(held, f.name) != getattr(suite, f.name)
        ]:
            raise RecordError(
                f"{out} holds a comparison with other {', '.join(different)}. Choose another --out."
            )
    elif present(out / "run.json"):
        raise RecordError(f"{out} already holds a run. Choose another --out.")
    _check_free(out, suite)
    _check_origin(out, suite, averaged)
    write_text(path, suite.source)
    return read_tunings(out, suite)


def open_study(out: Path, study: Study, resume: bool | None) -> None:
    """Claim the folder ``out`` for ``study``, as ``open_comparison`` does; the cases claim theirs later."""
    path = out / "study.toml"
    check_claim(out, "study", present(path), resume)
    if present(path) and kept(path, load_file) != study:
        raise RecordError(f"{out} holds another study. Choose another --out.")
    _check_free(out, study)
    for case in study.cases:
        check_below(out, out / case.slug)
        check_inside(out / case.slug, case.suite)
        _check_free(out / case.slug, case.suite)
    write_text(path, study.source)


def _check_free(out: Path, work: Suite | Study) -> None:
    """Raise ``RecordError`` if ``out`` holds files that ``work`` would overwrite, and has not begun."""
    if isinstance(work, Study):
        claim, names = "study.toml", [f"figure-{i}.png" for i in range(2, len(work.cases) + 1)]
    else:
        claim, names = "suite.toml", [*_GATHERED, *(f"runs/{entry.slug}" for entry in work.entries)]
    held = [name for name in (*_PUBLISHED, *names) if os.path.lexists(out / name)]
    if held and not present(out / claim):  # looked for last: other jobs write it first
        raise RecordError(
            f"{out} holds {', '.join(held)}, which would be overwritten, and no {claim}. "
            "Choose another --out."
        )


def _check_origin(out: Path, suite: Suite, averaged: str) -> None:
    """Raise ``RecordError`` if a result in the folder is not the suite's, or is averaged otherwise."""
    found = {path: read_json(path) for path in (tuning_file(out, entry) for entry in suite.entries)}
    for entry, seed, run in runs_of(out, suite):
        facts = read_facts(run)
        check_belongs(run, facts, suite, entry, seed)
        if config := facts.get("config"):
            found[run] = config | {"averaged": averaged_in(config)}
    data, start = suite.problem.fingerprint(), fingerprint(starting_point(suite.x0))
    for path, held in ((path, held) for path, held in found.items() if held):
        if (other := held.get("data", data)) != data:
            raise RecordError(
                f"{path} is of other data: their fingerprint is {other or 'empty'}, and the problem's is "
                f"{data or 'empty'} now. Put the data back, or choose another --out."
            )
        if (other := held.get("x0", "")) != start:
            raise RecordError(
                f"{path} started elsewhere: at an x0 of {other or 'the problem'}, and now x0 is of "
                f"{start or 'the problem'}. Put x0 back, or choose another --out."
            )
        if (other := held.get("averaged", averaged)) != averaged:
            raise RecordError(
                f"{path} is of runs with {other}, and now they have {averaged}, so iterates and bytes would "
                "be others. Give --server and --blocks as before, or choose another --out."
            )
