"""Squared errors of quantisers, as a share of |x|², beside the bits that they send for a coordinate.

    python examples/quantiser_errors.py

The vectors are drawn, and two are gradients of the transformer of language_model.py, early and late in its
training.
"""

import argparse
import sysconfig
from pathlib import Path

import numpy as np
import torch
from language_model import LENGTH, Transformer, cross_entropy, source

from mpicomp.compressors import (
    EDEN,
    BlockDithering,
    BlockFloat,
    Dithering,
    Natural,
    RotatedSign,
    Sign,
    Ternary,
    TwoMeans,
)
from mpicomp.keys import Key
from mpicomp.text.config import to_text

QUANTISERS = (
    *(Sign(), RotatedSign(1), EDEN(1, "inner_product")),
    *(Ternary(), TwoMeans(), Dithering(1, p="inf"), RotatedSign(2), EDEN(2), EDEN(2, "inner_product")),
    *(Dithering(3, p="inf"), RotatedSign(3), EDEN(3), EDEN(3, "inner_product")),
    *(Dithering(7, p="inf"), BlockDithering(4), BlockFloat(4)),
    *(RotatedSign(4), EDEN(4), EDEN(4, "inner_product")),
    *(RotatedSign(8), BlockFloat(8), Natural()),
)


def drawn(kind, d, rng):
    """A vector of d independent entries."""
    match kind:
        case "Gaussian":
            return rng.normal(size=d)
        case "Laplace":
            return rng.laplace(size=d)
        case "Student-3":
            return rng.standard_t(3, size=d)
        case "1 % sparse":
            return np.where(rng.random(d) < 0.01, rng.normal(size=d), 0.0)


def gradients(moments, batch=16):
    """The gradients of a larger batch after these numbers of steps of AdamW."""
    torch.manual_seed(0)
    model, draws = Transformer(), torch.Generator().manual_seed(0)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = source(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))
    for step in range(max(moments) + 1):
        taken = step in moments
        starts = torch.randint(len(text) - LENGTH - 1, (8 * batch if taken else batch,), generator=draws)
        adam.zero_grad()
        loss = cross_entropy(model, text, starts)
        loss.backward()
        if taken:
            print(f"The network after {step} steps: {loss:.2f} nats a character.")
            yield torch.cat([p.grad.flatten() for p in model.parameters()]).numpy()
        adam.step()


def error(C, x, t):
    """(bits a coordinate, |C(x) - x|²/|x|²) under the key of round t."""
    key = Key(0, t, 0, 1)
    message = C.compress(x, key)
    left = C.decompress(message, x.size, key) - x
    return 8 * len(message) / x.size, np.sum(left**2) / np.sum(np.square(x, dtype=float))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--early", type=int, default=20)
    parser.add_argument("--late", type=int, default=1200)
    parser.add_argument("--d", type=int, default=2**17, help="entries of the vectors that are drawn")
    parser.add_argument(
        "--draws", type=int, default=10, help="of vectors and of keys; a gradient stays the same"
    )
    asked = parser.parse_args()
    kinds = ("Gaussian", "Laplace", "Student-3", "1 % sparse")
    columns = {
        kind: [drawn(kind, asked.d, np.random.default_rng(t)) for t in range(asked.draws)] for kind in kinds
    }
    for when, x in zip(("early", "late"), gradients((asked.early, asked.late)), strict=True):
        columns[f"gradient, {when}"] = [x] * asked.draws
    print(f"| quantiser | bits | {' | '.join(columns)} |")
    print(f"|:---|{' ---: |' * (1 + len(columns))}")
    for C in QUANTISERS:
        found = [np.mean([error(C, x, t) for t, x in enumerate(xs)], axis=0) for xs in columns.values()]
        print(
            f"| `{to_text(C)}` | {found[0][0]:.2f} | {' | '.join(f'{e:.3g}' for _, e in found)} |", flush=True
        )
