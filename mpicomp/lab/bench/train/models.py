"""Models to train and their data: a network for images of 28 x 28 pixels, and a transformer on characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mpicomp.base.errors import ConfigError
from mpicomp.data import load_images

BATCH = {"cnn": 32, "transformer": 16}  # samples a rank and step
CONTEXT = 64  # characters of a sequence
_WIDTH, _LAYERS, _HEADS = 64, 4, 4  # of the transformer: d is some 2e5
_FIXED, _PER_UNIT = 4810, 1579  # parameters of the CNN: outside its hidden layer, and for a hidden unit
_MOST = 10**10  # parameters, 40 GB
_HELD_OUT = 0.1  # of the text, for the test


class CNN(nn.Sequential):
    """Two convolutions with pooling, and a hidden layer so wide that there are about d parameters.

    The activations are leaky: with nn.ReLU a third of a gradient's entries are exactly zero, and not sending
    those would flatter the methods that are meant to send dense vectors.
    """

    def __init__(self, d: int) -> None:
        if not _FIXED + _PER_UNIT <= d <= _MOST:
            raise ConfigError(f"d = {d:.15g}; allowed for the CNN: {_FIXED + _PER_UNIT} to {_MOST}.")
        hidden = round((d - _FIXED) / _PER_UNIT)
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.LeakyReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.LeakyReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, 10),
        )


class Transformer(nn.Module):
    """The logits of each next character, shape (batch, symbols, length)."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.symbol = nn.Embedding(symbols, _WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(CONTEXT, _WIDTH))
        layer = nn.TransformerEncoderLayer(
            _WIDTH, _HEADS, 4 * _WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(_WIDTH, symbols)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False
        )

    def forward(self, x: Tensor) -> Any:
        hidden = self.layers(self.symbol(x) + self.place, mask=self.mask, is_causal=True)
        return self.out(hidden).transpose(1, 2)


@dataclass(frozen=True)
class Task:
    """A model, and the samples to train and test it on; the loss is the cross-entropy.

    x, y  the inputs and labels; for text x is the symbols, shape (length,), and y is None
    seed  of the model's start and of the batches
    """

    kind: str
    d: int
    symbols: int
    x: Tensor
    y: Tensor | None
    test_x: Tensor
    test_y: Tensor
    seed: int = 0

    def model(self) -> nn.Module:
        """A new model, the same on all ranks."""
        torch.manual_seed(self.seed)
        return CNN(self.d) if self.kind == "cnn" else Transformer(self.symbols)

    def batch(self, step: int, rank: int, ranks: int) -> tuple[Tensor, Tensor]:
        """The samples of a rank in a step, drawn with replacement."""
        draw = np.random.default_rng((step, rank, ranks, self.seed))
        if self.y is None:
            starts = draw.integers(len(self.x) - CONTEXT - 1, size=BATCH[self.kind])
            return _sequences(self.x, torch.from_numpy(starts))
        rows = torch.from_numpy(draw.integers(len(self.x), size=BATCH[self.kind]))
        return self.x[rows].float().div_(255), self.y[rows]

    @torch.no_grad()
    def score(self, model: nn.Module, rank: int = 0, ranks: int = 1) -> float:
        """On the test samples: the CNN's accuracy, or the transformer's loss in nats a character.

        A rank's part of it, from its share of the samples; the score is the sum over ranks.
        """
        model.eval()
        total = 0.0
        own = self.test_x[rank::ranks].split(500), self.test_y[rank::ranks].split(500)
        for x, y in zip(*own, strict=True):
            if self.y is None:
                total += float(F.cross_entropy(model(x), y, reduction="sum")) / CONTEXT
            else:
                total += int((model(x.float() / 255).argmax(1) == y).sum())
        model.train()
        return total / len(self.test_x)

    def reached(self, score: float, target: float) -> bool:
        """Whether ``score`` is as good as ``target``."""
        return score <= target if self.y is None else score >= target


def task(kind: str, d: int, images: str | None) -> Task:
    """The task of that kind: "cnn" with about ``d`` parameters, or "transformer".

    images  of the CNN: "fashion_mnist", "digits", or None for random images, which suffice to time a step
    Raises ``DataError`` if Fashion-MNIST is asked for and is not in the cache.
    """
    if kind == "transformer":
        return _text()
    if images is None:
        x, y = _synthetic()
        return Task(kind, d, 0, x, y, x[:500], y[:500])
    if images == "digits":
        return Task(kind, d, 0, *_digits(load_images("digits")))
    (x, y), (test_x, test_y) = (_tensors(load_images(name)) for name in ("fashion_mnist", "fashion_mnist.t"))
    return Task(kind, d, 0, x, y, test_x, test_y)


def _digits(images: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bundled digits, each pixel as 3 x 3 of them, with a margin; a tenth is for the test."""
    brightness = torch.tensor(images.pixels).view(-1, 1, 8, 8) * 15  # they are from 0 to 16
    wide = brightness.repeat_interleave(3, 2).repeat_interleave(3, 3)
    x, y = F.pad(wide, (2, 2, 2, 2)), torch.tensor(images.labels).long()
    held_out = torch.arange(len(x)) % 10 == 0
    return x[~held_out], y[~held_out], x[held_out], y[held_out]


def _tensors(images: Any) -> tuple[Tensor, Tensor]:
    return torch.tensor(images.pixels).view(-1, 1, 28, 28), torch.tensor(images.labels).long()


def _synthetic() -> tuple[Tensor, Tensor]:
    """1000 images of 16 random squares each, and random labels."""
    draw = np.random.default_rng(0)
    coarse = draw.integers(256, size=(1000, 1, 4, 4), dtype=np.uint8)
    labels = draw.integers(10, size=1000)
    return torch.from_numpy(coarse.repeat(7, axis=2).repeat(7, axis=3)), torch.from_numpy(labels)


def _text() -> Task:
    """The characters of the help texts that come with Python: about 700 000, most of them English."""
    from pydoc_data.topics import topics

    text = "".join(topics[name] for name in sorted(topics))
    found = sorted(set(text))
    number = {c: i for i, c in enumerate(found)}
    symbols = torch.tensor([number[c] for c in text])
    cut = int(len(symbols) * (1 - _HELD_OUT))
    starts = torch.arange(cut, len(symbols) - CONTEXT - 1, CONTEXT)[:500]
    x, y = _sequences(symbols, starts)
    return Task("transformer", 0, len(found), symbols[:cut], None, x, y)


def _sequences(symbols: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """The sequences from ``starts``, and for each of their characters the next one."""
    where = starts[:, None] + torch.arange(CONTEXT)
    return symbols[where], symbols[where + 1]
