"""MARINA and VR-MARINA on a small convolutional network, beside DIANA, VR-DIANA, EF21 and dense methods.

    mpicomp data fetch fashion_mnist
    python examples/marina_network.py --figure marina_network.png

A problem of one's own whose gradients are torch's.  All methods are tuned alike, and send equally many
bytes, both directions together.  Fashion-MNIST stands in for CIFAR.  ``--data digits`` needs no download.
"""

import argparse
from dataclasses import dataclass
from math import ceil

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.func import functional_call

import mpicomp
from mpicomp import AGD, DIANA, EF21, GD, LBFGS, MARINA, VRDIANA, VRMARINA, RandK, TopK
from mpicomp.data import load_images
from mpicomp.problems.dense import Classification
from mpicomp.problems.objective import FiniteSum

torch.set_num_threads(1)


def network(side, classes):
    torch.manual_seed(0)
    reduced = ceil(ceil(side / 2) / 2)
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * reduced**2, classes),
    )


@dataclass(frozen=True)
class ConvNet(Classification):
    """Cross-entropy of ``network``; x holds its parameters one after the other, in single precision."""

    def network(self):
        return network(round(self.images().shape[1] ** 0.5), self.images().classes)

    def x0(self):
        parameters = [p.detach().ravel() for p in self.network().parameters()]
        return torch.cat(parameters).numpy()

    def dimension(self):
        return self.x0().size

    def objective(self, i, n):
        X, labels = self.shard(i, n)
        side = round(X.shape[1] ** 0.5)
        pixels = torch.tensor(X, dtype=torch.float32).view(-1, 1, side, side)
        return ConvNetObjective(self.network(), pixels, torch.tensor(labels, dtype=torch.int64))


class ConvNetObjective(FiniteSum):
    def __init__(self, model, X, labels):
        self.model, self.X, self.labels, self.samples = model, X, labels, len(labels)

    def part(self, rows):
        return ConvNetObjective(self.model, self.X[rows], self.labels[rows])

    def value(self, x):
        with torch.no_grad():
            return float(self._loss(torch.tensor(x, dtype=torch.float32)))

    def grad(self, x):
        leaf = torch.tensor(x, dtype=torch.float32, requires_grad=True)
        (g,) = torch.autograd.grad(self._loss(leaf), leaf)
        return g.numpy()

    def _loss(self, x):
        shapes = {name: p.shape for name, p in self.model.named_parameters()}
        pieces = x.split([shape.numel() for shape in shapes.values()])
        parameters = {name: v.view(shapes[name]) for name, v in zip(shapes, pieces, strict=True)}
        return nn.functional.cross_entropy(functional_call(self.model, parameters, (self.X,)), self.labels)


def first_of_each(name, each):
    """The first ``each`` images of every class, and their labels."""
    images = load_images(name)
    rows = np.concatenate([np.flatnonzero(images.labels == c)[:each] for c in range(images.classes)])
    return images.intensities(rows), images.labels[rows]


def contestants(k, batch, share):
    """Methods by label; a batch is the given ``share`` of a worker's samples."""
    Q = RandK(k=k)
    p = min(k, share / (1 + share))  # what theory says: equal costs of dense rounds and others, at most
    return {
        "GD": GD(gamma=0.2),
        "AGD": AGD(gamma=0.05, mu=0.0),
        "L-BFGS": LBFGS(),
        "MARINA RandK": MARINA(Q, gamma=0.025),
        "VR-MARINA RandK": VRMARINA(Q, batch=batch, gamma=0.025, p=p),
        "DIANA RandK": DIANA(Q, gamma=0.025),
        "VR-DIANA RandK": VRDIANA(Q, batch=batch, gamma=0.025, p=share),
        "EF21 TopK": EF21(TopK(k=k), gamma=0.025),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--each", type=int, default=50, help="images of a class")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--k", type=float, default=0.1, help="the share of entries that a message has")
    parser.add_argument("--share", type=float, default=0.1, help="the share of samples in a batch")
    parser.add_argument("--dense-rounds", type=int, default=60, help="how many dense rounds the bytes buy")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--tuning-seeds", type=int, default=1)
    parser.add_argument("--figure", help="a file to draw f into")
    asked = parser.parse_args()
    problem = ConvNet(first_of_each(asked.data, asked.each))
    samples = min(problem.shard_sizes(asked.workers))
    methods = contestants(asked.k, max(1, round(asked.share * samples)), asked.share)
    comparison = mpicomp.compare(
        methods,
        problem,
        tune={label: (-1, 1) for label in methods if label != "L-BFGS"},
        workers=asked.workers,
        rounds=100 * asked.dense_rounds,
        max_bytes=asked.dense_rounds * 8 * problem.dimension() * asked.workers,
        every=5,
        seeds=list(range(asked.seeds)),
        tuning_seeds=asked.tuning_seeds,
        title=f"A convolutional network, d = {problem.dimension()}",
    )
    print(comparison.table())
    if asked.figure:
        figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        for ax, x in zip(axes, ("both", "up"), strict=True):
            comparison.plot(x=x, y="f", bands="quantile", axes=ax)
            ax.set_yscale("log")
            lines, labels = ax.get_legend_handles_labels()
            ax.get_legend().remove()
        figure.legend(lines, labels, loc="outside upper center", ncols=4, frameon=False)
        figure.savefig(asked.figure, dpi=150)
