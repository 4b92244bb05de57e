"""The blocks of docs/torch.md, on a small model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launching import LIMIT, torchrun

torch = pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

PAGE = Path(__file__).parents[2] / "docs" / "torch.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)

# What the text around the blocks stands for: a model, its loss, a rank's own batches.
AROUND = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(20, 5)
X, y = torch.randn(64, 20), torch.randint(5, (64,))
data = list(zip(X, y))
batches_of_this_rank = [(X, y)] * 20
def loss(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
first = loss(model, (X, y)).item()
"""
NAMES = """
import mpicomp.torch
from mpicomp import EFSGD, TopK
"""
# The hook aggregates in a step of DDP as it is: the same training, by hand.
STEPS = """
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in batches_of_this_rank:
    opt.zero_grad()
    loss(ddp, batch).backward()
    opt.step()
torch.distributed.destroy_process_group()
"""
LOWER = "\nassert loss(model, (X, y)).item() < first\n"


def done(code: str, folder: Path | None = None) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, cwd=folder
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_there_are_six_blocks():
    assert len(BLOCKS) == PAGE.read_text().count("```python") == 6


def test_the_training_loop_trains_and_counts():
    """20 steps of one worker, with two exchanges."""
    assert "1 worker: " in done(AROUND + BLOCKS[0] + LOWER)


def test_each_rank_has_batches_of_its_own():
    """All 64 samples in one process; rank 1 of 2 would have half of them."""
    told = done(AROUND + BLOCKS[1] + "print([len(batch) for batch, _ in batches_of_this_rank])")
    assert told == "[16, 16, 16, 16]\n"


def test_a_loop_that_saves_goes_on_when_it_is_started_again(tmp_path):
    """Ended after 50 of 100 steps and begun again, it has the parameters of 100 steps in a row."""
    tell = """
import hashlib
x = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(opt.steps, hashlib.sha256(x).hexdigest())
"""
    begin = BLOCKS[0][: BLOCKS[0].index("for batch in")]
    whole = AROUND + begin + BLOCKS[3].replace("100", "10") + tell  # 100 steps, a state every 10
    once, twice = tmp_path / "once", tmp_path / "twice"
    once.mkdir(), twice.mkdir()
    assert done(whole.replace(", 100)", ", 50)"), twice).startswith("50 ")
    told = done(whole, once)
    assert told.startswith("100 ") and done(whole, twice) == told


def test_the_hook_of_ddp_trains(tmp_path):
    done(AROUND + NAMES + BLOCKS[4] + STEPS + LOWER, tmp_path)


def test_muon_trains_and_compresses_both_ways():
    """20 steps of one worker: the first gradient whole, then a tenth of it, with positions."""
    loop = """
for batch in batches_of_this_rank:
    opt.zero_grad()
    loss(model, batch).backward()
    opt.step()
whole, ledger = 4 * sum(p.numel() for p in model.parameters()), opt.ledger
assert ledger.up_bytes < whole + 20 * whole / 4 and ledger.down_bytes < 20 * whole / 4
"""
    done(AROUND + NAMES + BLOCKS[5] + loop + LOWER)


def test_the_program_under_torchrun_prints_what_is_shown(tmp_path):
    (tmp_path / "train.py").write_text(BLOCKS[2])
    ((options, shown),) = re.findall(r"\$ torchrun (.*) train.py\n    (.*)\n", PAGE.read_text())
    assert options == "--standalone --nproc-per-node=2"
    ended = torchrun(2, str(tmp_path / "train.py"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{shown}\n"
