"""A small convolutional network on Fashion-MNIST, with dense and with compressed gradients.

    mpicomp data fetch fashion_mnist
    mpirun -n 4 python examples/fashion_mnist.py --figure fashion_mnist.png

Every rank has a share of the images.  ``--data digits`` needs no download.
"""

import argparse
import time

import torch
from drawing import draw
from mpi4py import MPI
from torch import nn

import mpicomp.torch
from mpicomp import DCGD, EFSGD, DoubleSqueeze, Identity, TopK
from mpicomp.data import load_images

comm = MPI.COMM_WORLD
torch.set_num_threads(1)

METHODS = {
    "dense": DCGD(Identity()),
    "EF-SGD, TopK 1 %": EFSGD(TopK(k=0.01)),
    "DoubleSqueeze, TopK 1 %": DoubleSqueeze(TopK(k=0.01), TopK(k=0.01)),
}


def network(side, classes):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def images(name):
    """Images (m, 1, side, side) and labels of training and test; a fixed tenth is for the test."""
    found = load_images(name)
    side = round(found.shape[1] ** 0.5)
    pixels = torch.tensor(found.intensities(slice(None)), dtype=torch.float32).view(-1, 1, side, side)
    labels = torch.tensor(found.labels, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    return (pixels[train], labels[train]), (pixels[test], labels[test])


def train(method, data, steps, batch=32, every=50):
    """Train a new network; a row of accuracy, bytes and seconds every so many steps."""
    (X, y), (X_test, y_test) = data
    X, y = X[comm.rank :: comm.size], y[comm.rank :: comm.size]
    model = network(X.shape[-1], 1 + int(y_test.max()))
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    opt = mpicomp.torch.Compressed(sgd, method, module=model)
    draws = torch.Generator().manual_seed(comm.rank)
    rows, seconds = [], 0.0
    for step in range(1, steps + 1):
        began = time.perf_counter()
        chosen = torch.randint(len(y), (batch,), generator=draws)
        opt.zero_grad()
        nn.functional.cross_entropy(model(X[chosen]), y[chosen]).backward()
        opt.step()
        seconds += time.perf_counter() - began
        if step % every == 0:
            model.eval()
            with torch.no_grad():
                accuracy = float((model(X_test).argmax(1) == y_test).float().mean())
            model.train()
            moved = (opt.ledger.up_bytes + opt.ledger.down_bytes) / comm.size
            rows.append({"steps": step, "bytes": moved, "seconds": seconds, "test accuracy": accuracy})
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--figure", help="a file to draw the accuracy into")
    asked = parser.parse_args()
    data = images(asked.data)
    histories = {}
    for label, method in METHODS.items():
        histories[label] = train(method, data, asked.steps)
        if comm.rank == 0:
            last = histories[label][-1]
            print(
                f"{label}: test accuracy {last['test accuracy']:.3f}, {last['bytes'] / 1e6:.3g} MB that a "
                f"rank sends and gets, {1000 * last['seconds'] / asked.steps:.1f} ms a step"
            )
    if asked.figure and comm.rank == 0:
        draw(asked.figure, histories, "test accuracy")
