"""The caveats of a comparison: one sentence for each conclusion that its results do not support.

A difference between two methods is called resolved if it is larger than the choice of seeds explains.  The
criterion is the two-sided Mann-Whitney test, applied to each pair by itself, at the 5 % level.  With three
seeds for each method no difference is resolved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from itertools import combinations
from math import comb, inf

from mpicomp.lab.experiment.lines import End, Line
from mpicomp.lab.experiment.suite import Entry, Suite
from mpicomp.methods import Method
from mpicomp.methods.parameters import is_tunable
from mpicomp.runtime.observation import FULL
from mpicomp.text.unimported import UnimportedMethod

LEVEL = 0.05  # of the test
COST_ERROR = 0.05  # largest accepted relative error of costs, due to the rounds between observations
EXCESS = 0.1  # accepted excess of f at the target, as a fraction of f(x⁰) - (least f at a target)


def caveats(lines: Sequence[Line], suite: Suite) -> list[str]:
    """The sentences to print below the suite's table; none where nothing needs saying."""
    checks = (
        _missing, _rose, _far_from_least_f, _precision, _unimported, _budgets, _edges, _observation,
        _unresolved,
    )  # fmt: skip
    return [sentence for check in checks for sentence in check(lines, suite)]


def unresolved(lines: Sequence[Line], measure: str, suite: Suite) -> list[tuple[str, str]]:
    """The pairs of labels whose difference in ``measure``, a field of ``End``, is not resolved.

    Methods that both miss the target with every seed are not compared, nor are those without the measure.
    """
    have = [line for line in lines if line.ends and None not in {getattr(e, measure) for e in line.ends}]
    known = {line.label: _values(line, measure, suite) for line in have}
    pairs = [(a, b) for a, b in combinations(known, 2) if min(*known[a], *known[b]) < inf]
    return [(a, b) for a, b in pairs if not _resolved(known[a], known[b])]


def _values(line: Line, measure: str, suite: Suite) -> list[float]:
    """One value a seed; infinite for a run that diverged, and for a run that missed the target."""
    reached = {end.seed for end in line.ends if end.status == "target" or suite.target is None}
    seen = [float(getattr(end, measure)) if end.seed in reached else inf for end in line.ends]
    return seen + [inf] * line.diverged


def _resolved(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether the values a and b of two methods differ by more than the seeds explain.

    Where neither method depends on its seed, whether they differ at all.
    """
    if min(len(a), len(b)) < 2:  # a run of a comparison that is not finished
        return False
    if len({*a}) == 1 == len({*b}):
        return a[0] != b[0]
    return _p_value(a, b) <= LEVEL


def _p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """The two-sided p-value of the Mann-Whitney test, exact, ties included.

    All ways to choose ``len(a)`` of the values are equally likely under the null hypothesis.  The p-value is
    twice the smaller of P(rank sum <= that of ``a``) and P(rank sum >= that of ``a``), at most 1.
    """
    from scipy.stats import rankdata

    ranks = (2 * rankdata([*a, *b])).astype(int).tolist()  # doubled: tied values have half-integer ranks
    # ways[m][s]: the choices of m values whose doubled rank sum is s
    ways: list[Counter[int]] = [Counter({0: 1}), *(Counter[int]() for _ in a)]
    for rank in ranks:
        for dealt in range(len(a), 0, -1):
            for total, count in ways[dealt - 1].items():
                ways[dealt][total + rank] += count
    seen, deals = sum(ranks[: len(a)]), ways[len(a)]
    below = sum(count for total, count in deals.items() if total <= seen)
    above = sum(count for total, count in deals.items() if total >= seen)
    return min(1.0, 2 * min(below, above) / deals.total())


def _missing(lines: Sequence[Line], suite: Suite) -> list[str]:
    absent = [f"{line.missing} of {line.label}" for line in lines if line.missing]
    return [f"Of {len(suite.seeds)} seeds, runs are missing: {', '.join(absent)}."] if absent else []


def _rose(lines: Sequence[Line], suite: Suite) -> list[str]:
    rose = [line.label for line in lines if line.rose]
    return [f"f ended above f(x⁰) with some seed of {_names(rose)}."] if rose else []


def _far_from_least_f(lines: Sequence[Line], suite: Suite) -> list[str]:
    """Methods that met the target far above the least f: a saturating loss is flat there too."""
    at = {line.label: line.f for line in lines if line.f is not None and line.reached}
    if suite.target is None or not at:
        return []
    least, start = min(at.values()), max(end.start_f for line in lines for end in line.ends)
    far = [label for label, f in at.items() if f - least > EXCESS * (start - least)]
    where = ", ".join(f"{label} at f = {at[label]:.4g}" for label in far)
    return [f"The target was reached far from the least f, {least:.4g}: {where}."] if far else []


def _precision(lines: Sequence[Line], suite: Suite) -> list[str]:
    by_formats: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.formats:
            by_formats.setdefault(line.formats, []).append(line.label)
    if len(by_formats) < 2:
        return []
    groups = (f"{' and '.join(formats)}: {', '.join(labels)}" for formats, labels in by_formats.items())
    return [f"Unequal precision of what is sent. {'; '.join(groups)}."]


def _budgets(lines: Sequence[Line], suite: Suite) -> list[str]:
    """Tuned lines that differ in numbers such as η are one method, tried as often as all of them together."""
    by_method: dict[tuple[object, ...], list[Entry]] = {}
    for entry in suite.entries:
        key = _apart_from_numbers(entry.method) if entry.tune else (entry.label,)
        by_method.setdefault(key, []).append(entry)
    by_trials: dict[int, list[str]] = {}
    for entries in by_method.values():
        together = " together" * (len(entries) > 1)
        labels = " and ".join(entry.label for entry in entries)
        by_trials.setdefault(sum(entry.trials for entry in entries), []).append(labels + together)
    if len(by_trials) < 2:
        return []
    groups = (f"{trials or 'none'}: {', '.join(labels)}" for trials, labels in sorted(by_trials.items()))
    return [f"Unequal budgets: step sizes asked for, {'; '.join(groups)}."]


def _unimported(lines: Sequence[Line], suite: Suite) -> list[str]:
    unread = [entry.label for entry in suite.entries if isinstance(entry.method, UnimportedMethod)]
    if not unread:
        return []
    return [f"The class of {_names(unread)} is not imported here: in what precision it sends is not said."]


def _apart_from_numbers(method: Method) -> tuple[object, ...]:
    """The method's class and its compressors, sizes and words: all but the step size and other numbers."""
    kind = type(method)
    kept = [f.name for f in fields(method) if not is_tunable(kind, f.name)]
    return kind, *((name, getattr(method, name)) for name in kept)


def _edges(lines: Sequence[Line], suite: Suite) -> list[str]:
    if not any(line.at_edge for line in lines):
        return []
    return ["† The best step size tried is at the edge of its range; one beyond may be better."]


def _observation(lines: Sequence[Line], suite: Suite) -> list[str]:
    rows = suite.observation
    sampled = [f"f and ∇f are of {rows.observe} samples of each worker."] * (rows.observe != FULL)
    if suite.target is None:
        return sampled
    share = {
        line.label: (rows.gap(int(line.rounds)) - 1) / line.rounds
        for line in lines
        if line.rounds and line.reached == line.finished
    }
    coarse = [label for label, off in share.items() if off > COST_ERROR]
    if not coarse:
        return sampled
    rounds = f"every {rows.every} rounds" if rows.at is None else "after few rounds"
    return [
        *sampled,
        f"Observed {rounds}: costs of {_names(coarse)} may be up to "
        f'{max(share.values()):.0%} too high; every = "1%" mends it.',
    ]


def _unresolved(lines: Sequence[Line], suite: Suite) -> list[str]:
    if not any(_depends_on_seed(line.ends) for line in lines):
        return ["One seed resolves no difference between methods that draw at random."] * (
            len(suite.seeds) == 1
        )
    least = next(m for m in range(2, 9) if 2 / comb(2 * m, m) <= LEVEL)
    if len(suite.seeds) < least:
        return [f"{len(suite.seeds)} seeds resolve no difference between random methods; {least} may."]
    target = suite.target is not None
    measures = {"total_bytes": "bytes up + down", "up_bytes": "bytes up"} if target else {"f": "f"}
    measures |= {"error": "total error"} if suite.y == "error" else {}
    measures |= {"grad_norm_sq": "|∇f|²"} if suite.y == "gradient" and not target else {}
    said = []
    for measure, name in measures.items():
        by_first: dict[str, list[str]] = {}
        for a, b in unresolved(lines, measure, suite):
            by_first.setdefault(a, []).append(b)
        if by_first:
            pairs = "; ".join(f"{a} and {_names(others)}" for a, others in by_first.items())
            said.append(f"Not resolved in {name}: {pairs}.")
    if said:
        said.append(f"(Mann-Whitney, {len(suite.seeds)} seeds, each pair by itself, {LEVEL:.0%} level.)")
    return said


def _depends_on_seed(ends: Sequence[End]) -> bool:
    return len({(end.rounds, end.total_bytes, end.f) for end in ends}) > 1


def _names(labels: Sequence[str]) -> str:
    """``a, b or c``: the labels as a sentence lists them."""
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} or {labels[-1]}"
