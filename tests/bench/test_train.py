"""Training beside torch: every contestant trains, bytes are counted, ranks agree; no times."""

from __future__ import annotations

import json

import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.bench import hosts
from mpicomp.bench.train.compare import Ask, compare
from mpicomp.bench.train.report import publish, tables
from tests.support.launching import mpicomp

SMALL = 10_000  # parameters
OURS = {"dense", "Natural", "EF14, TopK 1 %", "EF21-SGDM, TopK 1 %", "DoubleSqueeze, TopK 1 %"}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="no torch: pip install -e '.[peers]'")


@pytest.fixture(scope="module")
def timed(torch):
    """The figures of all contestants, on two ranks."""
    return {row["label"]: row for row in compare(Ask([("cnn", SMALL)], [None], steps=40), ranks=2)}


def test_every_contestant_takes_its_steps(timed):
    assert OURS < set(timed)
    assert {row["side"] for row in timed.values()} == {"torch", "ours", "floor"}
    assert all(row["steps"] == 40 for row in timed.values())
    assert all(0 < row["low"] <= row["seconds"] <= row["high"] for row in timed.values())


def test_ranks_agree_if_they_communicate(timed):
    assert {label for label, row in timed.items() if not row["ranks_agree"]} == {"no communication"}


def test_bytes_are_counted(timed):
    d = timed["dense"]["d"]
    for direction in ("up_bytes", "down_bytes"):
        dense = timed["dense"][direction]
        assert 4 * d * 2 <= dense <= 1.01 * 4 * d * 2  # two workers
        assert timed["dense, every 8 steps"][direction] == pytest.approx(dense / 8, rel=0.01)
        assert timed["DoubleSqueeze, TopK 1 %"][direction] < dense / 50
    assert timed["Natural"]["up_bytes"] < 0.3 * timed["dense"]["up_bytes"]
    assert timed["EF14, TopK 1 %"]["up_bytes"] < timed["dense"]["up_bytes"] / 50
    assert timed["DDP"]["up_bytes"] == 0  # not known


def test_phases_are_those_of_a_round(timed):
    assert set(timed["EF14, TopK 1 %"]["phases"]) >= {"compress", "wait"}
    assert timed["DDP"]["phases"] == {}


def test_the_tables_and_files(timed, tmp_path):
    text = tables(list(timed.values()))
    assert "2 ranks on one host; cnn, d = 9" in text.splitlines()[0]
    assert all(label in text for label in timed)
    publish(list(timed.values()), tmp_path)
    assert (tmp_path / "train.md").read_text() == text
    assert len((tmp_path / "train.jsonl").read_text().splitlines()) == len(timed)


def test_our_dense_mean_trains_as_torch_s_does(torch):
    """The same batches, and the mean of the same gradients: after 40 steps scores differ by rounding."""
    ask = Ask([("transformer", 0)], [None], loss=100.0, labels=["DDP", "dense"])
    theirs, ours = (row["curve"][0][2] for row in compare(ask, ranks=2))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_training_to_a_target(torch, tmp_path):
    """Contestants that communicate learn: from 4.6 nats, with equal chances, to less than 4."""
    rows = list(compare(Ask([("transformer", 0)], [None], loss=4.0, limit=60.0), ranks=2))
    assert len(rows) >= 10
    assert [row["label"] for row in rows if not row["reached"]] == []
    assert all(row["curve"][-1][2] <= 4.0 and row["seconds"] > 0 for row in rows)
    publish(rows, tmp_path)
    assert "Target: 4." in (tmp_path / "train.md").read_text()
    assert (tmp_path / "train.png").stat().st_size > 10_000


def test_across_hosts_torch_s_bytes_cross_the_link(torch):
    if (reason := hosts.why_not()) is not None:
        pytest.skip(reason)
    ask = Ask([("cnn", SMALL)], [1e9], labels=["no communication", "DDP", "dense"])
    floor, ddp, dense = compare(ask, ranks=2)
    for row in (ddp, dense):  # each rank sends and receives d values at least
        assert row["link_bytes"] > 4 * row["d"]
    assert floor["link_bytes"] < 1000


@pytest.mark.parametrize("d", ["many", "10"])
def test_the_command_refuses(torch, d):
    done = mpicomp("bench", "train", "--links", "", "--no-transformer", "--d", d)
    assert done.returncode != 0 and "allowed" in done.stderr


def test_without_torch_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="torch"):
        next(compare(Ask([("cnn", SMALL)], [None])))


def test_the_command_prints_json(torch):
    done = mpicomp(
        "bench", "train", "--links", "", "--no-transformer", "--d", "1e4", "--steps", "30", "--json"
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["label"] for row in rows} > OURS and {row["ranks"] for row in rows} == {4}
