"""A small transformer on the characters of Python's own standard library, with AdamW and local steps.

The learning rate rises in the first steps and decays to 0.

    mpirun -n 4 python examples/language_model.py --figure language_model.png

Every rank has a share of the source files.
"""

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from drawing import draw
from mpi4py import MPI
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

import mpicomp.torch
from mpicomp import DCGD, EFSGD, BlockFloat, DoubleSqueeze, Identity, Lossless, QuantizedTopK, TopK, TwoMeans

comm = MPI.COMM_WORLD
torch.set_num_threads(1)

LENGTH, WIDTH, CHARACTERS = 64, 64, 128  # ASCII; what is not is read as 0
RATE = 0.012  # the highest learning rate, the same for all contestants

# Contestants: a method, the settings of local steps, and those of the outer SGD after them; None: it adds
# the mean change.  The outer rates are the best of those in docs/results/local-steps.md.
NESTEROV = {"lr": 0.3, "momentum": 0.9, "nesterov": True}
PLAIN = {"lr": 0.7}
TWO_BITS = QuantizedTopK(k=0.03, Q=TwoMeans())  # signs with two magnitudes, 1.72 bits a value
# Error feedback in the place of outer momentum: the memory decays, and means are over the senders.
SPARSE_LOCO = EFSGD(TWO_BITS, decay=0.95, average="senders", down=Lossless(forward=True))


def sparse_both_ways(up, down):
    """SparseLoCo whose broadcasts are sparse too: the shares of the change that go up and down."""
    C, D = (QuantizedTopK(k=k, Q=TwoMeans()) for k in (up, down))
    return DoubleSqueeze(C, D, decay=0.95, average="senders")


BOTH_WAYS, FEWER = sparse_both_ways(0.05, 0.2), sparse_both_ways(0.02, 0.06)
FOUR_BITS = DoubleSqueeze(BlockFloat(bits=4), BlockFloat(bits=4))
EIGHT = {"sync_every": 8}
# Half of what a rank has not sent yet stays in its own parameters.
HALF_AHEAD = {"ahead": 0.5}
DELAYED = {"delay": 2, "keep": "delay"}  # an exchange travels during two steps, and what these change is kept
CONTESTANTS = {
    "dense": (DCGD(Identity()), {}, None),
    "EF-SGD, TopK 1 %": (EFSGD(TopK(k=0.01)), {}, None),
    "8 local steps, dense": (DCGD(Identity()), EIGHT, None),
    "8 local steps, 4 bits both ways": (FOUR_BITS, EIGHT, None),
    "8 local steps, EF-SGD of 2 bits, outer momentum": (EFSGD(TWO_BITS), EIGHT, NESTEROV),
    "8 local steps, SparseLoCo": (SPARSE_LOCO, EIGHT, PLAIN),
    "8 local steps, SparseLoCo both ways": (BOTH_WAYS, EIGHT, PLAIN),
    "8 local steps, SparseLoCo both ways, half ahead": (BOTH_WAYS, EIGHT | HALF_AHEAD, PLAIN),
    "the same, delayed": (BOTH_WAYS, EIGHT | HALF_AHEAD | DELAYED, PLAIN),
    "8 local steps, 2 % up, 6 % down, half ahead": (FEWER, EIGHT | HALF_AHEAD, PLAIN),
}


class Transformer(nn.Module):
    """Two layers that see the characters before, and predict the next."""

    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.next = nn.Linear(WIDTH, CHARACTERS)
        self.mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def forward(self, text):
        seen = self.characters(text) + self.places
        return self.next(self.layers(seen, mask=self.mask, is_causal=True))


def source(files):
    """The characters of Python files, as numbers below 128."""
    text = b"".join(file.read_bytes() for file in files)
    codes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    return torch.where(codes < CHARACTERS, codes, 0)


def cross_entropy(model, text, starts):
    """The mean loss in nats a character, over pieces of ``text``."""
    pieces = torch.stack([text[s : s + LENGTH + 1] for s in starts.tolist()])
    logits = model(pieces[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())


def train(contestant, text, held_out, steps, seed, batch=16, every=40):
    method, local, outer = contestant
    torch.manual_seed(seed)
    model = Transformer()
    adam = torch.optim.AdamW(model.parameters())
    schedule = OneCycleLR(adam, RATE, total_steps=steps, pct_start=0.05, cycle_momentum=False)
    if outer is not None:
        outer = torch.optim.SGD(model.parameters(), **outer)
    opt = mpicomp.torch.Compressed(adam, method, module=model, outer=outer, **local)
    draws = torch.Generator().manual_seed(1000 * seed + comm.rank)
    tested = torch.randint(len(held_out) - LENGTH - 1, (256,), generator=torch.Generator().manual_seed(0))
    rows, seconds = [], 0.0
    for step in range(1, steps + 1):
        began = time.perf_counter()
        starts = torch.randint(len(text) - LENGTH - 1, (batch,), generator=draws)
        opt.zero_grad()
        cross_entropy(model, text, starts).backward()
        opt.step()
        schedule.step()
        seconds += time.perf_counter() - began
        if step % every == 0:
            with torch.no_grad(), opt.common():  # the model that all ranks have in common
                loss = float(cross_entropy(model, held_out, tested))
            moved = (opt.ledger.up_bytes + opt.ledger.down_bytes) / comm.size
            rows.append({"steps": step, "bytes": moved, "seconds": seconds, "nats a character": loss})
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", help="a file to draw the loss into")
    asked = parser.parse_args()
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    held_out, files = source(files[::10]), [file for i, file in enumerate(files) if i % 10]
    text = source(files[comm.rank :: comm.size])
    histories = {}
    for label, contestant in CONTESTANTS.items():
        histories[label] = train(contestant, text, held_out, asked.steps, asked.seed)
        if comm.rank == 0:
            last = histories[label][-1]
            print(
                f"{label}: {last['nats a character']:.3f} nats a character, {last['bytes'] / 1e6:.3g} MB "
                f"that a rank sends and gets, {1000 * last['seconds'] / asked.steps:.1f} ms a step"
            )
    if asked.figure and comm.rank == 0:
        draw(asked.figure, histories, "nats a character")
