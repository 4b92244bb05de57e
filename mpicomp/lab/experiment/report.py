"""Tables and figures of recorded runs, made from their files alone.

The folder of a comparison or a study gets ``table.md``, ``table.json`` and ``figure.png``, and where a study
has too many panels for one figure ``figure-2.png`` and so on.  A figure that cannot be drawn is left out,
with a warning: the tables are good without it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import as_path, os_errors_as, present, write_json, write_text
from mpicomp.lab.experiment.canvas import drawable, save
from mpicomp.lab.experiment.figure import draw, draw_all, pages
from mpicomp.lab.experiment.folder import read_case, read_comparison, read_study
from mpicomp.lab.experiment.lines import Line
from mpicomp.lab.experiment.picture import Picture
from mpicomp.lab.experiment.picturing import picture_of, picture_of_folders
from mpicomp.lab.experiment.study import Study
from mpicomp.lab.experiment.styling import PLAIN, Look, check_format
from mpicomp.lab.experiment.tables import markdown


def publish(folder: str | Path) -> list[Line]:
    """Write the tables and the figure of the comparison in ``folder``; returns the table's lines."""
    folder = as_path("folder", folder)
    comparison = read_comparison(folder)
    lines = comparison.lines()
    write_text(folder / "table.md", markdown(lines, comparison.suite))
    write_json(folder / "table.json", [asdict(line) for line in lines])
    picture = picture_of(comparison)
    _draw_into(folder, [picture], lambda pictures: [draw(*pictures)])
    return lines


def publish_study(folder: str | Path) -> dict[str, list[Line]]:
    """Write the tables and figures of a study: of each case, and of all cases together.

    Returns the lines of the tables by the cases' labels.
    """
    folder = as_path("folder", folder)
    study = read_study(folder)
    lines = {case.label: publish(folder / case.slug) for case in study.cases}
    tables = [(folder / case.slug / "table.md").read_text(encoding="utf-8") for case in study.cases]
    write_text(folder / "table.md", "\n".join(tables))
    write_json(folder / "table.json", {label: [asdict(line) for line in ls] for label, ls in lines.items()})
    pictures = _pictures(folder, study)
    _draw_into(folder, pictures, partial(_draw_study, drawable(study.title)), len(pages(pictures)))
    return lines


def _draw_into(
    folder: Path, pictures: list[Picture], drawing: Callable[[list[Picture]], list[Any]], most: int = 1
) -> None:
    """Save the figures of ``pictures`` as figure.png, figure-2.png, ..; remove up to ``most`` old ones first.

    Saves none if there are no curves.  Warns, and saves none, if they cannot be drawn, as without matplotlib.
    Raises ``RecordError`` if an old figure cannot be removed.
    """
    for old in _numbered(folder / "figure.png", most):
        with os_errors_as(RecordError, f"cannot replace {old}"):
            old.unlink(missing_ok=True)
    if not any(picture.curves for picture in pictures):
        return
    try:
        figures = drawing(pictures)
    except (ConfigError, RecordError) as error:
        warnings.warn(f"no figure in {folder}: {error}", stacklevel=3)
        return
    _save(figures, folder / "figure.png")


def _draw_study(title: str, pictures: list[Picture]) -> list[Any]:
    """The figures of a study: one, or several where one would have too many panels."""
    drawn = [page for page in pages(pictures) if any(picture.curves for picture in page)]
    if not drawn:
        raise RecordError("there is nothing to draw: every run diverged.")
    return [draw_all(title, page) for page in drawn]


def _save(figures: Sequence[Any], path: Path) -> list[Path]:
    """Save the figures as ``path`` and so on; returns the paths."""
    paths = _numbered(path, len(figures))
    for figure, place in zip(figures, paths, strict=True):
        save(figure, place)
    return paths


def _numbered(path: Path, count: int) -> list[Path]:
    """``path``, and the paths of the second and later figures, with -2, -3 after its stem."""
    return [path, *(path.with_stem(f"{path.stem}-{i}") for i in range(2, count + 1))]


def _pictures(folder: Path, study: Study) -> list[Picture]:
    """The pictures of a study's cases, each titled with the case's label."""
    pictures = {case.label: picture_of(read_case(folder, case)) for case in study.cases}
    return [replace(picture, title=drawable(label)) for label, picture in pictures.items()]


def plot_files(
    folders: Sequence[str | Path],
    path: str | Path | None = None,
    look: Look = PLAIN,
    format: str | None = None,
) -> list[Path]:
    """Redraw a figure from saved rows; returns its path, or several for a study with many panels.

    ``folders`` is one folder, of a comparison or a study, or any number of folders of runs.  The figure is
    written to ``path``, by default to ``figure.png`` in the first folder, or in another ``format``.  Raises
    ``ConfigError`` if there is no folder, the runs differ in problem, data or workers, or ``path`` ends in
    another format than ``format``; ``RecordError`` if a folder cannot be read.
    """
    places = [as_path("folder", f) for f in folders]
    if not places:
        raise ConfigError("plot needs a folder: that of a comparison, or of one or more runs.")
    target = _target(places[0], path, format)
    if len(places) == 1 and present(places[0] / "study.toml"):
        study = read_study(places[0])
        pictures = [picture.with_look(look) for picture in _pictures(places[0], study)]
        return _save(_draw_study(drawable(study.title), pictures), target)
    if len(places) == 1 and present(places[0] / "suite.toml"):
        picture = picture_of(read_comparison(places[0]))
    else:
        picture = picture_of_folders(places)
    return _save([draw(picture.with_look(look))], target)


def _target(folder: Path, path: str | Path | None, format: str | None) -> Path:
    """The file to write.  Raises ``ConfigError`` if the name and the format disagree."""
    if format is not None:
        check_format(format)
    if path is None:
        return folder / f"figure.{format or 'png'}"
    path = as_path("path", path, "file")
    if os.path.isdir(path):
        raise ConfigError(f"{path} is a folder: name a file, such as {path / 'figure.png'}.")
    if not path.suffix:
        return path.with_name(f"{path.name}.{format or 'png'}")
    if format is None or path.suffix == f".{format}":
        return path
    raise ConfigError(
        f"{path} ends in {path.suffix}, and the format is {format}; allowed: a name that ends in .{format}, "
        "or no format, and the name says it."
    )
