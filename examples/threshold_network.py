"""TopK against a hard threshold at equal bytes up, on a network with three hidden layers.

    mpicomp data fetch mnist
    python examples/threshold_network.py --figure threshold_network.png

EF-SGD on batches; 10 workers hold 500 images of one digit each, and a seed draws batches and x0.  Step sizes
of both compressors come from one grid, by powers of two, and the threshold is found anew for each of them.
``--data digits`` needs no download.
"""

import argparse
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import mannwhitneyu

import mpicomp
from mpicomp import EFSGD, HardThreshold, TopK
from mpicomp.data import load_images
from mpicomp.keys import Key
from mpicomp.problems.dense import Classification, cross_entropy
from mpicomp.problems.objective import FiniteSum

WORKERS = 10
TUNING_SEEDS = (100, 101, 102)  # they choose step sizes and thresholds, and are not shown
CLOSE = 0.01  # the accepted relative difference of bytes up
TRIALS = 12  # of a threshold, at most


@dataclass(frozen=True)
class DeepMLP(Classification):
    """Cross-entropy of a network with ``depth`` hidden layers of ``hidden`` tanh units, in single precision.

    x = (W_1, b_1, W_2, b_2, ..), row by row.  x0 is drawn from ``seed``: weights normal with
    variance 1 / (columns of the matrix), biases 0.
    """

    hidden: int = 64
    depth: int = 3
    seed: int = 0

    def widths(self):
        return [self.images().shape[1]] + [self.hidden] * self.depth + [self.images().classes]

    def dimension(self):
        widths = self.widths()
        return sum((before + 1) * after for before, after in pairwise(widths))

    def x0(self):
        x, stream = (
            np.zeros(self.dimension(), np.float32),
            Key(self.seed, 0, None, 1).shared("deep mlp/start"),
        )
        for W, _ in layers(x, self.widths()):
            W[:] = stream.normals(W.size).reshape(W.shape) / np.sqrt(W.shape[1])
        return x

    def objective(self, i, n):
        X, labels = self.shard(i, n)
        return DeepObjective(np.float32(X), labels, self.widths())


class DeepObjective(FiniteSum):
    def __init__(self, X, labels, widths):
        self.X, self.labels, self.widths, self.samples = X, labels, widths, len(labels)

    def part(self, rows):
        return DeepObjective(self.X[rows], self.labels[rows], self.widths)

    def value(self, x):
        return self._forward(x)[1]

    def grad(self, x):
        inputs, _, back = self._forward(x)
        g = np.empty_like(x)
        both = zip(layers(x, self.widths), layers(g, self.widths), inputs, strict=True)
        for (W, _), (gW, gb), A in reversed(list(both)):
            gW[:] = back.T @ A
            gb[:] = back.sum(axis=0)
            back = (back @ W) * (1 - A * A)  # of the images themselves it is not used
        return g

    def _forward(self, x):
        """The inputs of the layers, the loss, and its gradient in the logits."""
        inputs = [self.X]
        *hidden, (W, b) = layers(x, self.widths)
        for V, c in hidden:
            inputs.append(np.tanh(inputs[-1] @ V.T + c))
        return inputs, *cross_entropy(inputs[-1] @ W.T + b, self.labels)


def layers(x, widths):
    """(W_1, b_1), (W_2, b_2), .. as views of x."""
    found, start = [], 0
    for before, after in pairwise(widths):
        end = start + before * after
        found.append((x[start:end].reshape(after, before), x[end : end + after]))
        start = end + after
    return found


def first_of_each(name, each):
    """The first images of each class, so that with split="sorted" a worker has one class."""
    images = load_images(name)
    rows = np.concatenate([np.flatnonzero(images.labels == c)[:each] for c in range(images.classes)])
    return images.intensities(rows), images.labels[rows]


def last_f(run):
    """f over the last tenth of the rounds."""
    return mean(row.f for row in run.rows if row.round >= 0.9 * run.rows[-1].round)


def bytes_up(run):
    return run.rows[-1].up_bytes


def total_error(run):
    return run.rows[-1].error


@dataclass(frozen=True)
class Trial:
    """One step size of one compressor, with the mean f of the tuning seeds."""

    f: float
    gamma: float
    C: mpicomp.Compressor


class Contest:
    """TopK with a share k of the entries, and a hard threshold that sends as many bytes up."""

    def __init__(self, problem, k, rounds, batch):
        self.problem, self.top, self.rounds, self.batch = problem, TopK(k), rounds, batch

    def run(self, C, gamma, seeds):
        method = EFSGD(C, gamma=gamma, batch=self.batch)
        settings = {"workers": WORKERS, "rounds": self.rounds, "every": max(1, self.rounds // 40)}
        starts = {seed: replace(self.problem, seed=seed) for seed in seeds}
        return [mpicomp.run(method, start, seed=seed, **settings) for seed, start in starts.items()]

    def matched(self, gamma, wanted):
        """The threshold whose runs send ``wanted`` bytes up, and these runs."""
        lam, low, high = 1.0, None, None
        for _ in range(TRIALS):
            runs = self.run(HardThreshold(lam), gamma, TUNING_SEEDS)
            sent = mean(map(bytes_up, runs))
            if abs(sent / wanted - 1) < CLOSE:
                break
            low, high = (lam, high) if sent > wanted else (low, lam)
            between = low is not None and high is not None
            lam = (low * high) ** 0.5 if between else lam * min(4, max(0.25, sent / wanted))
        return HardThreshold(lam), runs

    def try_step(self, gamma):
        """The trials of both at this step, in the order of ``LABELS``."""
        top = self.run(self.top, gamma, TUNING_SEEDS)
        hard, runs = self.matched(gamma, mean(map(bytes_up, top)))
        trials = []
        for C, made in ((self.top, top), (hard, runs)):
            trials.append(Trial(mean(map(last_f, made)), gamma, C))
            error, sent = mean(map(total_error, made)), mean(map(bytes_up, made)) / WORKERS
            print(f"step {gamma:g}, {C}: f {trials[-1].f:.4f}, total error {error:.3g}, up {sent:.4g} B")
        return trials

    def tune(self, gammas):
        """The best trial of each, of these steps and those beyond while the best is at an end."""
        tried = {gamma: self.try_step(gamma) for gamma in gammas}
        while True:
            best = [min(trials, key=lambda t: t.f) for trials in zip(*tried.values(), strict=True)]
            ends = {min(tried): min(tried) / 2, max(tried): max(tried) * 2}
            beyond = {ends[trial.gamma] for trial in best if trial.gamma in ends}
            if not beyond:
                return best
            tried |= {gamma: self.try_step(gamma) for gamma in beyond}


LABELS = ("TopK", "hard threshold")


def draw(path, shown):
    """f and the total error against bytes up; a band from the least to the most of the seeds."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for label, runs in shown.items():
        up = np.median([[row.up_bytes / WORKERS / 1e3 for row in run.rows] for run in runs], axis=0)
        for ax, name in zip(axes, ("f", "error"), strict=True):
            values = np.array([[getattr(row, name) for row in run.rows] for run in runs])
            (line,) = ax.plot(up, np.median(values, axis=0), label=label)
            ax.fill_between(up, values.min(axis=0), values.max(axis=0), color=line.get_color(), alpha=0.2)
    for ax, name in zip(axes, ("f", "total error"), strict=True):
        ax.set(xlabel="KB up, a worker", ylabel=name, yscale="log")
        ax.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)


def spread(values):
    return f"{median(values):.4g} [{min(values):.4g} .. {max(values):.4g}]"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--each", type=int, default=500, help="images of a class")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--k", type=float, default=0.002, help="the share of entries that TopK sends")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=float, nargs="+", default=[0.1, 0.2, 0.4, 0.8], help="to begin with")
    parser.add_argument("--figure", help="a file to draw f and the total error into")
    asked = parser.parse_args()
    problem = DeepMLP(first_of_each(asked.data, asked.each), split="sorted", hidden=asked.hidden)
    contest = Contest(problem, asked.k, asked.rounds, asked.batch)
    best = contest.tune(asked.steps)
    shown = {}
    for label, trial in zip(LABELS, best, strict=True):
        runs = shown[label] = contest.run(trial.C, trial.gamma, range(asked.seeds))
        print(f"{label} at its best step, {trial.gamma:g}, {trial.C}, d = {problem.dimension()}:")
        for name, of in (("f", last_f), ("total error", total_error), ("bytes up", bytes_up)):
            print(f"    {name}: {spread([of(run) for run in runs])}")
        down = [run.rows[-1].down_bytes + run.rows[-1].up_bytes for run in runs]
        print(f"    bytes up + down: {spread(down)}")
    for name, of in (("f", last_f), ("total error", total_error)):
        p = mannwhitneyu(*([of(run) for run in runs] for runs in shown.values())).pvalue
        print(f"{name}: p = {p:.2g} by the test of Mann and Whitney")
    if asked.figure:
        draw(asked.figure, shown)
