"""Five training programs, four of them public, with their gradients averaged in several ways.

    mpicomp data fetch mnist
    mpicomp data fetch mnist.t
    mpirun -n 4 python examples/five_programs.py

They are makemore's MLP, here on the words of Python's standard library, torch's examples ``mnist``,
``mnist_rnn`` and ``vae``, and the network of ``language_model.py`` at a constant rate.  Each has its own
optimiser and learning rate; the public ones are cut short.  Every rank has a share of the samples.
``--data digits`` needs no download.
"""

import argparse
import re
import sysconfig
from abc import ABC, abstractmethod
from pathlib import Path

import torch
from language_model import (
    BOTH_WAYS,
    FOUR_BITS,
    HALF_AHEAD,
    LENGTH,
    NESTEROV,
    PLAIN,
    SPARSE_LOCO,
    Transformer,
    source,
)
from mpi4py import MPI
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

import mpicomp.torch
from mpicomp import DCGD, EFSGD, BlockFloat, DoubleSqueeze, Identity, TopK
from mpicomp.data import load_images

comm = MPI.COMM_WORLD
torch.set_num_threads(1)

EIGHT_BITS = DoubleSqueeze(BlockFloat(bits=8), BlockFloat(bits=8))
LOCAL = {"sync_every": 8}
# Contestants: a method, the settings of local steps, and those of the outer SGD after them.
CONTESTANTS = {
    "dense": (DCGD(Identity()), {}, None),
    "8 bits both ways": (EIGHT_BITS, {}, None),
    "4 bits both ways": (FOUR_BITS, {}, None),
    "EF-SGD, TopK 1 %": (EFSGD(TopK(k=0.01)), {}, None),
    "8 local steps, dense": (DCGD(Identity()), LOCAL, NESTEROV),
    "8 local steps, 4 bits both ways": (FOUR_BITS, LOCAL, NESTEROV),
    "8 local steps, SparseLoCo": (SPARSE_LOCO, LOCAL, PLAIN),
    "8 local steps, SparseLoCo both ways": (BOTH_WAYS, LOCAL, PLAIN),
    "8 local steps, SparseLoCo both ways, half ahead": (BOTH_WAYS, LOCAL | HALF_AHEAD, PLAIN),
}
STDLIB = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


class Program(ABC):
    """A network, its samples, its optimiser and its score.

    train, test  samples: tuples of tensors with one row for a sample
    steps        of a training; ``batch`` samples in each, of a rank
    schedule     a number of steps, and the factor of the learning rate after each so many steps
    """

    steps: int
    batch = 16
    schedule = 10**9, 1.0
    unit: str

    @abstractmethod
    def network(self): ...

    @abstractmethod
    def optimiser(self, parameters): ...

    def loss(self, model, X, y):
        return F.cross_entropy(model(X), y)

    def score(self, model, *samples):
        return self.loss(model, *samples)


class Words(Program):
    """makemore's MLP: the next letter of a word from the three before it."""

    steps, batch, schedule, unit = 8000, 8, (4000, 0.1), "nats a letter"

    def __init__(self):
        text = "".join(file.read_text(errors="replace") for file in STDLIB).lower()
        samples = [], []  # 0 stands before the first letter of a word and after the last
        for number, word in enumerate(sorted(set(re.findall("[a-z]+", text)))):
            codes = [0, 0, 0, *(ord(letter) - ord("a") + 1 for letter in word), 0]
            samples[number % 10 == 0].extend(codes[i : i + 4] for i in range(len(word) + 1))
        self.train, self.test = ((s[:, :3], s[:, 3]) for s in map(torch.tensor, samples))

    def network(self):
        return nn.Sequential(
            nn.Embedding(27, 10), nn.Flatten(), nn.Linear(30, 200), nn.Tanh(), nn.Linear(200, 27)
        )

    def optimiser(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)


class Pictures(Program):
    """A program on images of one channel; of a set without images to test on a tenth tests."""

    def __init__(self, data):
        if data == "mnist":
            self.train, self.test = read(data), read("mnist.t")
        else:
            X, y = read(data)
            tests = torch.arange(len(y)) % 10 == 0
            self.train, self.test = (X[~tests], y[~tests]), (X[tests], y[tests])
        self.side = self.train[0].shape[-1]


def read(name):
    """Images (m, 1, side, side) from 0 to 1, and their classes."""
    found = load_images(name)
    side = round(found.shape[1] ** 0.5)
    X = torch.tensor(found.intensities(slice(None)), dtype=torch.float32)
    return X.view(-1, 1, side, side), torch.tensor(found.labels, dtype=torch.int64)


class Classes(Pictures):
    """A classifier, with the mean and deviation of MNIST's pixels taken off; the score is its accuracy."""

    unit = "% right"

    def __init__(self, data):
        super().__init__(data)
        for X, _ in (self.train, self.test):
            X.sub_(0.1307).div_(0.3081)

    def score(self, model, X, y):
        return 100 * (model(X).argmax(1) == y).float().mean()


class Cnn(Classes):
    """torch's example ``mnist``."""

    steps = 472

    def network(self):
        return nn.Sequential(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(64 * (self.side // 2 - 2) ** 2, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, 10),
        )

    def optimiser(self, parameters):
        return torch.optim.Adadelta(parameters, lr=1.0)


class LastRow(nn.Module):
    """An LSTM reads an image row by row; its output at the last row."""

    def __init__(self, side):
        super().__init__()
        self.lstm = nn.LSTM(side, 64, batch_first=True)

    def forward(self, X):
        return self.lstm(X.squeeze(1))[0][:, -1]


class Rnn(Classes):
    """torch's example ``mnist_rnn``."""

    steps, schedule = 1880, (938, 0.7)

    def network(self):
        return nn.Sequential(
            LastRow(self.side),
            nn.BatchNorm1d(64),
            nn.Dropout(0.25),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(32, 10),
        )

    def optimiser(self, parameters):
        return torch.optim.Adadelta(parameters, lr=0.1)


class Autoencoder(nn.Module):
    """A variational autoencoder: the decoded images, and the means and log variances of their codes."""

    def __init__(self, pixels):
        super().__init__()
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 400), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(400, 20), nn.Linear(400, 20)
        self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, pixels))

    def forward(self, X):
        hidden = self.hidden(X)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + torch.randn_like(mean) * torch.exp(log_variance / 2)
        return self.decoder(code), mean, log_variance


class Vae(Pictures):
    """torch's example ``vae``: the negative evidence lower bound."""

    steps, batch, unit = 1400, 32, "nats an image"

    def network(self):
        return Autoencoder(self.side**2)

    def optimiser(self, parameters):
        return torch.optim.Adam(parameters, lr=1e-3)

    def loss(self, model, X, y):
        decoded, mean, log_variance = model(X)
        errors = F.binary_cross_entropy_with_logits(decoded, X.flatten(1), reduction="sum")
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2
        return (errors + divergence) / len(X)


class Text(Program):
    """The transformer of ``language_model.py`` on the characters of Python's standard library."""

    steps, unit = 1200, "nats a character"

    def __init__(self):
        train, test = source([file for i, file in enumerate(STDLIB) if i % 10]), source(STDLIB[::10])
        self.train = (train.unfold(0, LENGTH + 1, 1),)
        self.test = (test.unfold(0, LENGTH + 1, 4 * LENGTH),)

    def network(self):
        return Transformer()

    def optimiser(self, parameters):
        return torch.optim.AdamW(parameters, lr=3e-3)

    def loss(self, model, pieces):
        return F.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())


def train(program, contestant, steps, seed):
    """Rank 0's score of the network that all ranks have in common, and the bytes that a rank moved."""
    method, local, outer = contestant
    torch.manual_seed(seed)
    model = program.network()
    inner = program.optimiser(model.parameters())
    if outer is not None:
        outer = torch.optim.SGD(model.parameters(), **outer)
    opt = mpicomp.torch.Compressed(inner, method, module=model, outer=outer, **local)
    schedule = StepLR(inner, *program.schedule)
    samples = [x[comm.rank :: comm.size] for x in program.train]
    torch.manual_seed(1000 * seed + comm.rank)  # each rank's own batches and dropout
    for _ in range(steps):
        chosen = torch.randint(len(samples[0]), (program.batch,))
        opt.zero_grad()
        program.loss(model, *(x[chosen] for x in samples)).backward()
        opt.step()
        schedule.step()
    score = None
    with torch.no_grad(), opt.common():
        model.eval()
        if comm.rank == 0:
            score = float(program.score(model, *program.test))
    return score, (opt.ledger.up_bytes + opt.ledger.down_bytes) / comm.size


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="mnist", help="the images")
    parser.add_argument("--steps", type=int, help="fewer steps than a program has")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only the rows with this text in them")
    asked = parser.parse_args()
    makers = {
        "words": Words,
        "CNN": lambda: Cnn(asked.data),
        "LSTM": lambda: Rnn(asked.data),
        "VAE": lambda: Vae(asked.data),
        "text": Text,
    }
    for name, make in makers.items():
        chosen = [label for label in CONTESTANTS if asked.only in f"{name}: {label}"]
        program = make() if chosen else None
        for label in chosen:
            steps = min(program.steps, asked.steps or program.steps)
            score, moved = train(program, CONTESTANTS[label], steps, asked.seed)
            if comm.rank == 0:
                print(
                    f"{name}: {label}: {score:.4g} {program.unit}, {moved / 1e6:.3g} MB that a rank sends "
                    "and gets",
                    flush=True,
                )
