"""The examples run, at small sizes, on real ranks, and print what the documentation shows."""

from __future__ import annotations

import re
from math import log
from pathlib import Path

import pytest

from tests.support.launching import mpirun

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(ranks, name, *options):
    done = mpirun(ranks, str(EXAMPLES / name), *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_numpy_loop(tmp_path):
    figure = tmp_path / "loop.png"
    text = ran(3, "numpy_loop.py", "--steps", "60", "--figure", str(figure))
    dense, compressed = (float(loss) for loss in re.findall(r"loss (\d\.\d+)", text))
    assert figure.stat().st_size > 5000
    assert abs(dense - compressed) < 0.05 * dense
    sent, got = (int(n) for n in re.search(r"sends (\d+) a step and gets (\d+)", text).groups())
    assert sent < got < 2560


def test_fashion_mnist(tmp_path):
    pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")
    figure = tmp_path / "accuracy.png"
    text = ran(2, "fashion_mnist.py", "--data", "digits", "--steps", "100", "--figure", str(figure))
    found = {line.partition(":")[0]: line for line in text.splitlines()}
    assert len(found) == 3 and figure.stat().st_size > 5000
    accuracy = {label: float(re.search(r"accuracy (\d\.\d+)", line)[1]) for label, line in found.items()}
    moved = {label: float(re.search(r"([\d.e-]+) MB", line)[1]) for label, line in found.items()}
    assert accuracy["dense"] > 0.8
    assert moved["DoubleSqueeze, TopK 1 %"] < moved["EF-SGD, TopK 1 %"] < 0.05 * moved["dense"]


def test_language_model(tmp_path):
    pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")
    figure = tmp_path / "loss.png"
    text = ran(2, "language_model.py", "--steps", "40", "--figure", str(figure))
    losses = [float(loss) for loss in re.findall(r"(\d\.\d+) nats", text)]
    assert len(losses) == 10 and figure.stat().st_size > 5000
    assert losses[0] < 3.5 < 4.85  # log 128, that of a model that knows nothing


def test_five_programs():
    """Each program learns; gradients of 8 and of 4 bits take it where whole ones do, with fewer bytes."""
    pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")
    text = ran(2, "five_programs.py", "--data", "digits", "--steps", "24")
    lines = [
        re.fullmatch(r"(\w+): (.+): (\S+) (.+), (\S+) MB that a rank sends and gets", line)
        for line in text.splitlines()
    ]
    rows = {(row[1], row[2]): (float(row[3]), float(row[5])) for row in lines}
    ignorant = {"words": log(27), "VAE": 64 * log(2), "text": log(128)}  # each outcome equally likely
    assert len(rows) == 5 * 9 and {program for program, _ in rows} == {"CNN", "LSTM"} | set(ignorant)
    for program in ("words", "CNN", "LSTM", "VAE", "text"):
        moved = [rows[program, label][1] for label in ("dense", "8 bits both ways", "4 bits both ways")]
        assert moved[0] > 3.5 * moved[1] > 1.8 * 3.5 * moved[2]
    for program, worst in ignorant.items():
        dense = rows[program, "dense"][0]
        assert dense < worst
        assert abs(rows[program, "8 bits both ways"][0] - dense) < 0.01 * dense
        assert abs(rows[program, "4 bits both ways"][0] - dense) < 0.02 * dense


def test_quantiser_errors():
    pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")
    sizes = ("--early", "2", "--late", "4", "--d", "8192", "--draws", "2")
    text = ran(1, "quantiser_errors.py", *sizes)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    errors = {name.strip("`"): [float(e) for e in found] for name, _, *found in rows}
    assert len(errors) == 22 and all(len(found) == 6 for found in errors.values())
    for rotated, plain in (
        ("rotated_sign", "sign"),
        ("eden", "two_means"),
        ("eden(bits=4)", "block_float(bits=4)"),
    ):
        assert errors[rotated][2] < errors[plain][2]  # with heavy tails
    assert max(errors["rotated_sign(b=2)"]) < 1 / 4


def test_threshold_network(tmp_path):
    figure = tmp_path / "threshold.png"
    sizes = "--data digits --each 20 --hidden 8 --k 0.02 --rounds 20 --batch 10 --seeds 4 --steps 0.4 0.8"
    text = ran(1, "threshold_network.py", *sizes.split(), "--figure", str(figure))
    top, hard = text.partition("hard threshold at its best step")[::2]
    sent = [float(re.search(r"bytes up: (\S+)", part)[1]) for part in (top, hard)]
    errors = [float(re.search(r"    total error: (\S+)", part)[1]) for part in (top, hard)]
    assert figure.stat().st_size > 5000
    assert abs(sent[1] / sent[0] - 1) < 0.1
    assert errors[1] < errors[0]


def test_marina_network(tmp_path):
    pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")
    figure = tmp_path / "marina.png"
    sizes = "--data digits --each 4 --dense-rounds 3 --workers 2 --seeds 2"
    text = ran(1, "marina_network.py", *sizes.split(), "--figure", str(figure))
    for label in ("GD", "L-BFGS", "MARINA RandK", "VR-MARINA RandK", "DIANA RandK", "EF21 TopK"):
        assert f"| {label} |" in text
    assert figure.stat().st_size > 5000
