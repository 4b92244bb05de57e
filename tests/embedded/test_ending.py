"""Steps that end half-way, folders that hold another training, and the end of an aggregator."""

from __future__ import annotations

import gc
import json
import weakref
from hashlib import sha256

import numpy as np
import pytest

import mpicomp
from mpicomp import DIANA, EF21, EFSGD, VRMARINA, Aggregator, Identity, TopK
from mpicomp.base.errors import DivergedError, MpicompError, RecordError
from mpicomp.problems import Quadratics

N, D = 2, 4
HALF_WAY = r"step 3 has ended half-way.*1e\+39.*Load a saved state, or make a new Aggregator"


def gradients(step):
    return {i: np.full(D, i + 1.0) + step % 3 for i in range(N)}


@pytest.mark.parametrize("method", [EF21(TopK(k=2)), EFSGD(TopK(k=2)), DIANA(Identity("f4"))], ids=repr)
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_after_a_step_that_ended_half_way_only_a_saved_state_goes_on(method, policy, tmp_path):
    """Worker 1's gradient is finite, and too large for f4: worker 0's memory moves, the server's does not."""
    whole, agg = (Aggregator(method, np.zeros(D), workers=N, on_nonfinite=policy) for _ in range(2))
    for step in range(3):
        assert np.array_equal(whole(gradients(step)), agg(gradients(step)))
    agg.save(tmp_path)
    kept = agg.state()
    with pytest.raises(DivergedError, match="1e\\+39 does not fit the wire format 'f4'"):
        agg({0: np.ones(D), 1: np.full(D, 1e39)})
    assert whole.sound and not agg.sound
    for refused in (lambda: agg(gradients(3)), lambda: agg.save(tmp_path), agg.settle, agg.state):
        with pytest.raises(MpicompError, match=HALF_WAY):
            refused()
    agg.load(tmp_path)
    expected = whole(gradients(3))
    assert np.array_equal(agg(gradients(3)), expected)
    agg.restore(kept)
    assert np.array_equal(agg(gradients(3)), expected) and agg.ledger.up.tolist() == whole.ledger.up.tolist()


def test_a_function_that_raises_in_mid_round_ends_its_step_half_way():
    """VR-MARINA asks worker 1 for a second gradient after worker 0 has moved."""
    agg = Aggregator(VRMARINA(Identity("f8"), batch=None, p=0.5), np.zeros(D), workers=N)

    def gradient(i, x, step):
        if i == 1 and x[0] < step:
            raise ValueError("the user's own")
        return x + 1

    def go(step):
        return agg({i: lambda x, i=i: gradient(i, x, step) for i in range(N)}, at=np.full(D, float(step)))

    with pytest.raises(ValueError, match="the user's own"):
        for step in range(9):
            go(step)
    with pytest.raises(MpicompError, match=r"has ended half-way.*the user's own"):
        go(0)


def test_a_state_of_another_training_is_not_replaced(tmp_path):
    def make():
        return Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N)

    first, second = make(), make()
    for step in range(3):
        first(gradients(step))
        first.save(tmp_path)
    second(gradients(0))
    with pytest.raises(RecordError, match=r"holds the state of another training, after 3 rounds\. Load it"):
        second.save(tmp_path)
    assert sorted(place.name for place in tmp_path.iterdir()) == ["round-2", "round-3"]
    second.load(tmp_path)
    second(gradients(3))
    second.save(tmp_path)
    assert sorted(place.name for place in tmp_path.iterdir()) == ["round-3", "round-4"]
    first(gradients(3))
    with pytest.raises(RecordError, match="holds the state of another training, after 4 rounds"):
        first.save(tmp_path)  # the second one has taken the folder over
    third = make()
    third.restore(second.state())
    third(gradients(4))
    third.save(tmp_path)


def test_the_checkpoint_of_a_run_is_not_replaced(tmp_path):
    """It does not say which training it is of."""
    mpicomp.run(
        EF21(TopK(k=2), gamma=0.1), Quadratics(d=D), workers=N, rounds=2, out=tmp_path, checkpoint_every=1
    )
    agg = Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N)
    agg(gradients(0))
    with pytest.raises(RecordError, match="holds the state of another training, after 2 rounds"):
        agg.save(tmp_path / "checkpoint")


def test_a_load_that_fails_changes_nothing(tmp_path):
    """Part 0 is sound, and part 1 is not; there is no generation before."""
    agg, other = (Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N) for _ in range(2))
    agg(gradients(0))
    agg.save(tmp_path)
    place = tmp_path / "round-1"
    manifest = json.loads((place / "manifest.json").read_bytes().splitlines()[0])
    manifest["parts"][0][2].remove("worker-1")
    manifest["parts"].append(["part-1.npz", "0" * 64, ["worker-1"]])
    written = json.dumps(manifest)
    (place / "part-1.npz").write_bytes(b"damaged")
    (place / "manifest.json").write_text(f"{written}\n{sha256(written.encode()).hexdigest()}\n")
    before = other.state()
    with pytest.raises(RecordError, match=r"part-1\.npz is damaged"):
        other.load(tmp_path)
    after = other.state()
    assert all(np.array_equal(value, after[name]) for name, value in before.items())


def test_a_damaged_state_is_no_obstacle(tmp_path):
    first = Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N)
    first(gradients(0))
    first.save(tmp_path)
    (tmp_path / "round-1" / "manifest.json").write_bytes(b"{}\n")
    other = Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N)
    other(gradients(0))
    other.save(tmp_path)
    other.load(tmp_path)
    assert other.steps == 1


def test_a_closed_one_says_so(tmp_path):
    agg = Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N)
    agg(gradients(0))
    agg.close()
    agg.close()
    for call in (lambda: agg(gradients(1)), lambda: agg.save(tmp_path), agg.settle, agg.state, agg.overlap):
        with pytest.raises(MpicompError, match="this Aggregator is closed: make a new one"):
            call()


def test_in_one_process_memory_is_free_with_the_last_name():
    agg = Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N)
    agg(gradients(0))
    gone = weakref.ref(agg)
    del agg
    gc.collect()
    assert gone() is None
