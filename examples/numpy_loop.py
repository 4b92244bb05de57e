"""A training loop of one's own in numpy and mpi4py, twice: with MPI's Allreduce and with an Aggregator.

    mpirun -n 4 python examples/numpy_loop.py --figure numpy_loop.png

Softmax regression on the handwritten digits of scikit-learn; every rank has a share of them.
"""

import argparse

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

import mpicomp

comm = MPI.COMM_WORLD
pixels, digit = load_digits(return_X_y=True)
A = np.float32(pixels[comm.rank :: comm.size] / 16)
TRUTH = np.eye(10, dtype=np.float32)[digit[comm.rank :: comm.size]]
START = np.zeros((64, 10), np.float32)


def loss_and_gradient(W):
    """The cross-entropy of this rank's digits and its gradient, shape (64, 10)."""
    logits = A @ W
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return -np.mean(np.log(shares[TRUTH == 1])), A.T @ (shares - TRUTH) / len(A)


def train(mean_of, steps):
    """Gradient descent; ``mean_of`` averages gradients over the ranks.  Returns the losses."""
    W, losses = START.copy(), []
    for _ in range(steps):
        loss, gradient = loss_and_gradient(W)
        W -= 0.5 * mean_of(gradient)
        losses.append(comm.allreduce(loss) / comm.size)
    return losses


def allreduce(gradient):
    mean = np.empty_like(gradient)
    comm.Allreduce(gradient, mean)
    return mean / comm.size


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--figure", help="a file to draw the losses into")
    asked = parser.parse_args()

    dense = train(allreduce, asked.steps)
    aggregator = mpicomp.Aggregator(mpicomp.EF21(mpicomp.TopK(k=0.05)), like=START)
    compressed = train(aggregator, asked.steps)
    if comm.rank == 0:
        each, ledger = comm.size * asked.steps, aggregator.ledger
        up, down = ledger.up_bytes / each, ledger.down_bytes / each
        print(f"dense:      loss {dense[-1]:.4f}; a gradient has {START.nbytes} bytes")
        print(f"compressed: loss {compressed[-1]:.4f}; a rank sends {up:.0f} a step and gets {down:.0f}")
        if asked.figure:
            import matplotlib.pyplot as plt

            steps = np.arange(1, asked.steps + 1)
            plt.figure(figsize=(5, 3.2), layout="constrained")
            plt.loglog(steps * 2 * START.nbytes, dense, label="dense, there and back")
            plt.loglog(steps * (up + down), compressed, label="EF21, TopK 5 %")
            plt.xlabel("bytes that a rank sends and gets")
            plt.ylabel("loss")
            plt.legend()
            plt.savefig(asked.figure, dpi=150)
