"""Functions for scripts and notebooks that do the same as the commands: compare, tune, load, plot.

Under mpirun every rank calls ``compare`` and ``tune``, and gets the same result.  ``load`` and ``plot``
involve one rank only.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import as_path, present
from mpicomp.base.units import one_line
from mpicomp.lab.experiment import compare as comparing
from mpicomp.lab.experiment.figure import draw_panel
from mpicomp.lab.experiment.folder import read_comparison, read_run
from mpicomp.lab.experiment.job import Progress
from mpicomp.lab.experiment.picturing import picture_of, picture_of_runs
from mpicomp.lab.experiment.report import publish
from mpicomp.lab.experiment.results import Comparison, Record
from mpicomp.lab.experiment.shipped import located
from mpicomp.lab.experiment.study import Study, load_file
from mpicomp.lab.experiment.styling import as_look
from mpicomp.lab.experiment.suite import Suite
from mpicomp.lab.experiment.suite_file import check_range, parse_suite, plain, suite_of
from mpicomp.lab.experiment.trials import Tuning
from mpicomp.methods import Method
from mpicomp.methods.parameters import is_auto
from mpicomp.problems import Problem
from mpicomp.runtime.bars import shown
from mpicomp.runtime.placement import OF_COMPARISONS, Placement
from mpicomp.runtime.result import Run
from mpicomp.text.config import as_method, as_problem, to_text
from mpicomp.transports.launcher import launched_rank

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Range = tuple[int, int]
Methods = Mapping[str, Method | str] | Sequence[Method | str]


def compare(
    methods: str | Path | Suite | Methods,
    problem: Problem | str | None = None,
    *,
    tune: Range | Mapping[str, Range] | None = None,
    out: str | Path | None = None,
    resume: bool | None = False,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> Comparison:
    """Run several methods on one problem, with every seed::

        methods = {"EF21": "ef21(topk(k=5))", "GD": "gd"}
        result = compare(methods, "quadratics(d=50)", workers=4, rounds=100, seeds=[0, 1], tune=(0, 4))
        print(result.table())
        result.plot()

    methods   the methods, or their texts, as a list or by their labels; or a suite: the path of its TOML
              file, the name of one that comes with the package, or a ``Suite``.  A suite
              holds the problem, the ranges to tune and the settings: give none of them beside it
    tune      (lo, hi): try the step sizes times 2^lo, .., 2^hi and keep the best of each method but those
              with the step size "auto".  Or such a range for each label that is to be tuned
    settings  ``workers`` and ``rounds``, which are needed, and ``seeds``, ``every``, ``at``, ``observe``,
              ``x0``, ``down``, ``tuning_seeds``, ``target_grad_norm_sq``, ``hold``, ``max_bytes``,
              ``max_seconds``, ``title``, ``x`` and ``y``.  They mean the same as in a suite's TOML file:
              python -m pydoc mpicomp.lab.experiment.suite_file
    out       a folder for the record, the table and the figure.  None: the comparison is in memory only
    resume    False: start; a folder that holds a comparison is refused.  True: continue the comparison in
              ``out``; runs that ended are kept, others start afresh.  None: continue it if there is one, else
              start

    ``server``, ``blocks``, ``device`` and ``cuda_aware`` are settings too, as in ``run``.  ``progress`` is
    True for a bar, False for none, None for one in a notebook, or a function that is called with the run
    under way, its round and the row, if any.  A method that diverges is part of the result.  Under mpirun
    every rank calls this and gets the same comparison.

    Raises ``ConfigError`` for an argument that is not allowed.  An interrupt raises ``Interrupted``, a
    ``KeyboardInterrupt`` whose ``so_far`` is the comparison of the runs that ended in this call.
    """
    placement = _placement(settings)
    suite = _suite(methods, problem, tune, settings)
    if out is not None:
        _check_reads_back(suite)
    with shown(progress, lambda stage, round, row: stage) as report:
        comparison = comparing.compare(suite, out, resume=resume, placement=placement, progress=report)
    if out is not None and launched_rank() == 0:
        publish(out)
    return comparison


def tune(
    method: Method | str,
    problem: Problem | str,
    *,
    exponents: Range = (0, 6),
    progress: Progress | bool | None = None,
    **settings: Any,
) -> Tuning:
    """Find the best step size for ``method``, among its own times 2^lo, .., 2^hi::

        method = EF21(TopK(k=5))
        tuning = tune(method, "quadratics(d=50)", workers=4, rounds=100)
        tuned = method.with_step(tuning.best.gamma)

    ``exponents`` is (lo, hi).  While the best is the largest or the smallest tried, the next power of two is
    tried too, at most 8 at each end.  ``progress`` and ``settings`` are those of ``compare``, but ``down`` is
    "exact" by default.  The rule for "best" is explained by:
    python -m pydoc mpicomp.lab.experiment.tuning

    It warns where no step is a good one: all diverged or let f rise, all ended alike, or the best is the last
    that was tried at an end.

    Under mpirun every rank calls this and gets the same tuning.  An interrupt raises ``Interrupted``, a
    ``KeyboardInterrupt`` whose ``so_far`` is the tuning with the step sizes that were tried.
    """
    method, placement = as_method(method), _placement(settings)
    check_range(plain(exponents), "exponents")
    suite = _suite(
        {to_text(method): method}, problem, {to_text(method): exponents}, {"down": "exact"} | settings
    )
    with shown(progress, lambda stage, round, row: stage) as report:
        tuning = comparing.tune_first(suite, placement=placement, progress=report)
    if (doubt := tuning.doubt) and launched_rank() == 0:
        warnings.warn(doubt, stacklevel=2)
    return tuning


def _placement(settings: dict[str, Any]) -> Placement:
    """The placement of the runs; its settings are taken out of ``settings``."""
    return Placement(**{name: settings.pop(name) for name in OF_COMPARISONS if name in settings})


def load(folder: str | Path) -> Record | Comparison:
    """Read the record of the run, or of the comparison, in ``folder``, finished or not.

    Raises ``RecordError`` if the folder holds neither, or cannot be read.
    """
    folder = as_path("folder", folder)
    if present(folder / "study.toml"):
        cases = ", ".join(sorted(str(path.parent) for path in folder.glob("*/suite.toml")))
        raise RecordError(f"{folder} holds a study. Load one of its comparisons: {cases or 'none yet'}.")
    return read_comparison(folder) if present(folder / "suite.toml") else read_run(folder)


def plot(
    *results: Run | Record | Comparison,
    x: str = "both",
    y: str = "gradient",
    axes: Axes | None = None,
    ax: Axes | None = None,
    style: str = "screen",
    bands: str = "range",
    xlim: str | Sequence[float | None] | None = None,
    ylim: str | Sequence[float | None] | None = None,
    labels: Sequence[str] | None = None,
) -> Axes:
    """Draw a comparison, or runs of one problem, into ``axes`` or into a new figure; returns the axes.

    x      "rounds", "up", "both", "seconds" or "epochs"; "bytes" is "both": uplink and downlink, per worker
    y      "gradient", which is |∇f(x)|², "f", "f-f*", or "error", the mean over workers of Σ_k |e_i^k|² of
           error feedback.  Where the problem does not know f*, the least f of the rows is in its place, and
           the label of the axis says so
    axes   also called ``ax``, as in other libraries
    style  "screen", "paper" or "talk": sizes of panel, text and lines; the text of given axes keeps its size
    bands  over the seeds: "range", "quantile" (the quartiles) or "none"
    xlim   the ends of the x axis, (A, B) or "A:B", either end left out or None
    ylim   the ends of the y axis
    labels the names of the curves, one for each in the order in which they are drawn

    Runs of one method with different seeds give one curve: the median, and the range as a band.  Raises
    ``ConfigError`` for other values, and if the runs differ in problem or number of workers.
    """
    look = as_look(x, y, style, bands, xlim, ylim, labels)
    if look.x is None or len(look.x) > 1:
        raise ConfigError(f"x = {x!r}; allowed in Python: one axis. Call plot once for each.")
    if axes is not None and ax is not None:
        raise ConfigError("plot was given axes and ax, which are one argument. Leave one of them out.")
    for result in results:
        if not isinstance(result, Run | Record | Comparison):
            raise ConfigError(
                f"plot was given {one_line(result)}; allowed: a comparison, or runs one after the other, as "
                "in plot(a, b) or plot(*runs). Read a folder by load."
            )
    if len(results) == 1 and isinstance(results[0], Comparison):
        picture = picture_of(results[0])
    elif runs := [result for result in results if not isinstance(result, Comparison)]:
        if len(runs) < len(results):
            raise ConfigError("plot takes one comparison, or any number of runs, and not both.")
        picture = picture_of_runs(runs)
    else:
        raise ConfigError("plot takes one comparison, or one or more runs.")
    axes = ax if axes is None else axes
    if axes is not None and not hasattr(axes, "get_legend_handles_labels"):
        raise ConfigError(
            f"axes = {one_line(axes)}; allowed: one panel of matplotlib's, as axes[0] of plt.subplots(2)."
        )
    return draw_panel(picture.with_look(look), axes)


def _suite(
    methods: str | Path | Suite | Methods,
    problem: Problem | str | None,
    tune: Range | Mapping[str, Range] | None,
    settings: dict[str, Any],
) -> Suite:
    """The suite of the arguments of ``compare``."""
    if isinstance(methods, str | Path | Suite):
        if problem is not None or tune is not None or settings:
            raise ConfigError("a suite holds its problem and its settings; give methods to choose them here.")
        found = methods if isinstance(methods, Suite) else load_file(located(methods))
        if isinstance(found, Study):
            raise ConfigError(f"{methods} has a [[case]]: it is a study, for `mpicomp compare {methods}`.")
        return found
    labelled = _labelled(methods)
    problem = None if problem is None else as_problem(problem)
    if not isinstance(problem, Problem) or not all(isinstance(m, Method) for m in labelled.values()):
        raise ConfigError(
            f"compare takes Methods and a Problem; it was given {one_line([*labelled.values()])} and "
            f"{one_line(problem)}."
        )
    if isinstance(tune, Mapping):
        ranges: Mapping[str, Range | None] = tune
    else:
        if tune is not None:
            check_range(plain(tune))
        ranges = {label: None if is_auto(m.step) else tune for label, m in labelled.items()}
    return suite_of(labelled, problem, ranges, settings)


def _labelled(methods: Methods) -> dict[str, Method]:
    """The methods by their labels or texts.

    Raises ``ConfigError`` for what holds no methods, and if two without a label are the same.
    """
    if isinstance(methods, set | frozenset):
        raise ConfigError(
            f"compare was given methods in a set, {one_line(methods)}, and a set has no order: give a list."
        )
    if not isinstance(methods, Collection) or isinstance(methods, bytes):
        raise ConfigError(
            f"compare was given {one_line(methods)}; allowed: methods in a list, or in a dict by their "
            "labels, the name of a suite, its path, or a Suite."
        )
    if isinstance(methods, Mapping):
        return {label: as_method(method) for label, method in methods.items()}
    labelled = {to_text(method): method for method in map(as_method, methods)}
    if len(labelled) < len(methods):
        raise ConfigError("two of the methods are the same; allowed: different methods, or labels for them.")
    return labelled


def _check_reads_back(suite: Suite) -> None:
    """Raise ``ConfigError`` unless the suite is that of its text, which a folder keeps."""
    reason = "it reads as another one."
    try:
        if parse_suite(suite.source) == suite:
            return
    except ConfigError as error:
        reason = str(error)
    raise ConfigError(
        f"a folder keeps a comparison as a text, and that of this one cannot be read back: {reason} There, "
        "numbers are finite, and integers have 64 bits; a class is named by its module or file, so it is not "
        "local to a function or a notebook; data are named by the path of a file. Or leave out the folder."
    )
