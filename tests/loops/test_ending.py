"""Steps that end half-way, folders that hold another training, and the end of an aggregator."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import shutil
import weakref
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pytest

import mpicomp
from mpicomp import AGD, DIANA, EF21, EFSGD, VRMARINA, Aggregator, Descent, Identity, TopK
from mpicomp.base.errors import ConfigError, DivergedError, MpicompError, RecordError
from mpicomp.problems import LeastSquares, Quadratics
from mpicomp.runtime.generations import seal
from tests.loops.test_aggregator import ONE_OF_EACH, PROBLEM, WORKERS, flat, tree
from tests.support import mutated_states
from tests.support.method_cases import METHOD_CASES

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
    with pytest.raises(DivergedError, match="1e\\+39 does not fit the wire format 'f4'") as refusal:
        agg({0: np.ones(D), 1: np.full(D, 1e39)})
    # Not the method's gamma, which is not used.
    assert "The steps that your loop takes may be too large" in str(refusal.value)
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


def test_an_interrupt_after_the_round_ends_its_step_half_way(monkeypatch):
    """The next step drew with the key of the round that was over."""
    agg = Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(EF21, "ends_step", interrupt)
        agg(gradients(0))
    with pytest.raises(MpicompError, match=r"step 0 has ended half-way.*\(KeyboardInterrupt\)"):
        agg(gradients(0))


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
    second(gradients(4))
    second.save(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="holds the state of another training, after 5 rounds"):
        third.save(tmp_path / "elsewhere")  # since its own save it is a training of its own


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


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_mutated_states_are_loaded_or_refused_and_a_refusal_changes_nothing():
    """`python -m tests.support.mutated_states` tries as many as one likes."""
    seen, _, kilobytes = mutated_states.outcomes(150, seed=1)
    assert seen["refused"] > 100 and seen["taken"] > 1
    assert kilobytes < 50_000


def resealed(folder, change):
    """Change the manifest of the generation in ``folder``, and the arrays of its part, and seal it anew."""
    path = folder / "round-3" / "manifest.json"
    manifest = json.loads(path.read_bytes().splitlines()[0])
    part = manifest["parts"][0]
    with np.load(path.with_name(part[0])) as found:
        arrays = dict(found)
    change(manifest, arrays)
    np.savez(path.with_name(part[0]), **arrays)
    if part[0].startswith("part"):
        part[1] = sha256(path.with_name(part[0]).read_bytes()).hexdigest()
    path.write_bytes(seal(manifest))


def test_what_is_sealed_and_cannot_be_is_refused_by_name(tmp_path):
    """Nothing of it is taken."""
    sound = tmp_path / "sound"
    mutated_states.trained(sound)
    for number, (said, change) in enumerate(
        {
            "steps is 'x'": lambda m, a: m.update(steps="x"),
            "skipped is None": lambda m, a: m.pop("skipped"),
            "round is -1": lambda m, a: m.update(round=-1),
            "round is 4": lambda m, a: m.update(round=4),
            "training is 7": lambda m, a: m.update(training=7),
            "config is [1]": lambda m, a: m.update(config=[1]),
            "parts is 3": lambda m, a: m.update(parts=3),
            "it lacks worker-1": lambda m, a: m["parts"][0][2].remove("worker-1"),
            "parts is [['part": lambda m, a: m["parts"].append(["part-7.npz", "0", ["worker-1"]]),
            "worker-1.g is missing": lambda m, a: a.pop("worker-1.g"),
            "worker-0.g has shape (5,) and type int64": lambda m, a: a.update(
                {"worker-0.g": np.zeros(5, int)}
            ),
            "worker-0.g has shape (2,) and type float64": lambda m, a: a.update({"worker-0.g": np.zeros(2)}),
            "worker-0.g has shape () and type float64": lambda m, a: a.update({"worker-0.g": np.float64(1)}),
            "replica.g cannot be read (Object arrays": lambda m, a: a.update(
                {"replica.g": np.zeros(5, object)}
            ),
            "ledger.n has shape () and type float64": lambda m, a: a.update({"ledger.n": np.float64(1.5)}),
            "ledger.n has shape (1,)": lambda m, a: a.update({"ledger.n": np.ones(1, int)}),
        }.items()
    ):
        folder = tmp_path / str(number)
        shutil.copytree(sound, folder)
        resealed(folder, change)
        other = mutated_states.made()
        before = other.state()
        with pytest.raises(RecordError) as caught:
            other.load(folder)
        assert said in str(caught.value)
        assert mutated_states.same(before, other.state()), said


def test_a_manifest_does_not_lead_out_of_the_folder(tmp_path):
    """Not even to a part that is sound, with the right SHA-256."""
    mutated_states.trained(tmp_path / "a")
    (part,) = (tmp_path / "a" / "round-3").glob("part-0-*")
    part.rename(tmp_path / part.name)
    path = tmp_path / "a" / "round-3" / "manifest.json"
    manifest = json.loads(path.read_bytes().splitlines()[0])
    for name in (f"../../{part.name}", str(tmp_path / part.name)):
        manifest["parts"][0][0] = name
        path.write_bytes(seal(manifest))
        with pytest.raises(RecordError, match=r"manifest.json is invalid: parts is"):
            mutated_states.made().load(tmp_path / "a")


def test_a_state_that_numpy_has_saved_is_restored(tmp_path):
    """Its numbers and texts are arrays of no axes then."""
    agg = mutated_states.trained(tmp_path)
    np.savez(tmp_path / "state.npz", **agg.state())
    with np.load(tmp_path / "state.npz") as state:
        other = mutated_states.made()
        other.restore(dict(state))
    assert mutated_states.same(agg.state() | {"training": ""}, other.state() | {"training": ""})
    assert type(other.steps) is int


def test_a_state_that_does_not_say_what_is_pending_has_nothing_pending(tmp_path):
    """As older ones do not say it.  None is refused in a state, where it would stay."""
    agg = mutated_states.trained(tmp_path / "sound")
    for change in (lambda m, a: m.pop("pending"), lambda m, a: m.update(pending=None)):
        shutil.rmtree(tmp_path / "older", ignore_errors=True)
        shutil.copytree(tmp_path / "sound", tmp_path / "older")
        resealed(tmp_path / "older", change)
        other = mutated_states.made()
        other.load(tmp_path / "older")
        assert type(other.pending) is int and other.pending == 0
    state = agg.state()
    del state["pending"]
    other.restore(state)
    assert type(other.pending) is int and other.pending == 0
    with pytest.raises(RecordError, match=r"the state is invalid: pending is None\."):
        other.restore(agg.state() | {"pending": None})


@dataclass
class Odd:
    value: object


def test_records_that_could_not_be_loaded_are_not_saved(tmp_path):
    """Nor under a name of the method's own records, which they would replace."""
    agg = mutated_states.trained(tmp_path)
    before = files(tmp_path)
    for value in (None, {}, [1.0], 2**70, np.array([None]), np.ma.masked_array([1.0], [True])):
        with pytest.raises(ConfigError, match=r"mine\.value is .*; allowed: arrays, numbers and texts"):
            agg.save(tmp_path, mine=Odd(value))
    for value in (b"ab\0", "ab\0"):  # of which numpy's texts keep two characters
        with pytest.raises(ConfigError, match=r"mine\.value ends in a NUL, .*numpy\.frombuffer"):
            agg.save(tmp_path, mine=Odd(value))
    for name in ("replica", "ledger", "server", "worker-1"):
        with pytest.raises(ConfigError, match=f"'{name}' are names of the method's own records"):
            agg.save(tmp_path, **{name: Odd(1.0)})
    assert files(tmp_path) == before
    values = (1, 1.5, True, "text", b"\0a", np.float32(2), np.arange(3), np.zeros((2, 0)), float("inf"))
    agg.save(tmp_path, **{f"own{i}": Odd(value) for i, value in enumerate(values)})
    fresh = [Odd(np.zeros(1) if isinstance(v, np.ndarray) else type(v)()) for v in values]
    mutated_states.made().load(tmp_path, **{f"own{i}": record for i, record in enumerate(fresh)})
    for value, record in zip(values, fresh, strict=True):
        assert type(record.value) is type(value) and np.array_equal(record.value, value)


def test_every_method_in_both_precisions_goes_on_from_what_it_saved(tmp_path):
    """Whatever its records hold after a few steps: their shapes and types are those that are expected."""
    failed = []
    for number, asked in enumerate(ONE_OF_EACH):
        method = mpicomp.run(asked, PROBLEM, workers=WORKERS, rounds=1).method  # with numbers for "theory"
        for dtype in (np.float32, np.float64):
            at = tree(PROBLEM.x0().astype(dtype))
            one, two = (Aggregator(method, at, workers=WORKERS) for _ in range(2))
            fs = {i: PROBLEM.objective(i, WORKERS) for i in one.hosted}
            for _ in range(3):
                one(fs, at=at)
            folder = tmp_path / f"{number}-{dtype.__name__}"
            one.save(folder)
            two.load(folder)
            if flat(one(fs, at=at)).tobytes() != flat(two(fs, at=at)).tobytes():
                failed.append((type(method).__name__, dtype.__name__))
    assert not failed


def test_a_state_with_values_that_cannot_be_is_refused_and_changes_nothing(tmp_path):
    agg = mutated_states.trained(tmp_path)
    sound, wrong = agg.state(), []
    for name, value, said in (
        ("worker-0.g", np.ma.array(np.ones(5), mask=[1, 0, 0, 0, 0]), "worker-0.g has a mask"),
        ("replica.g", np.full(5, np.nan), "replica.g has entries that are NaN"),
        ("ledger.up", np.array([-5, 8]), "ledger.up has negative entries"),
        ("ledger.paper_bits_up", -1, "ledger.paper_bits_up has negative entries"),
        ("worker-0.g", np.zeros((2, 5)), r"worker-0.g has shape (2, 5) and type float64; expected (5,)"),
        ("worker-0.g", np.zeros((5, 5)), r"worker-0.g has shape (5, 5) and type float64; expected (5,)"),
    ):
        try:
            agg.restore(sound | {name: value})
            wrong.append(f"taken: {said}")
        except RecordError as error:
            if f"the state is invalid: {said}" not in str(error) or "\n" in str(error):
                wrong.append(f"{said}: {error}")
    assert not wrong
    assert mutated_states.same(sound, agg.state())


def test_every_method_is_restored_before_its_first_step_and_after_the_third():
    """Infinity is the open end of a line search's bracket; round 0 of the whitened methods makes matrices."""
    rng, failed = np.random.default_rng(0), []
    problem = LeastSquares(data=(rng.normal(size=(80, 24)), rng.normal(size=80)), lam=0.1)
    for case in METHOD_CASES:
        method = mpicomp.run(case.text, problem, workers=8, rounds=1).method  # with numbers for "theory"
        whole, other = (Descent(method, problem.x0(), workers=8) for _ in range(2))
        fs = {i: problem.objective(i, 8) for i in whole.hosted}
        for steps in (0, 3):
            for _ in range(steps):
                whole.step(fs)
            other.restore(whole.state())
            other.step(fs)
        whole.step(fs)
        if whole.x.tobytes() != other.x.tobytes():
            failed.append(case.name)
    assert not failed


def test_a_root_of_another_shape_is_refused():
    """d is 24; round 0 makes matrices of shape (24, 24), and n of them on the server."""
    problem = Quadratics(d=24)
    text = next(case.text for case in METHOD_CASES if case.name == "dcgd_plus")
    descent = Descent(text, problem.x0(), workers=2)
    fresh = descent.state()
    for name, shape in (
        ("worker-0.root", (3, 24)),
        ("worker-1.inverse", (2, 24, 24)),
        ("server.roots", (24, 24)),
    ):
        with pytest.raises(RecordError, match=name.replace(".", r"\.") + " has shape"):
            descent.restore(fresh | {name: np.zeros(shape)})


def test_a_descent_starts_at_numbers_alone():
    for bad, said in (
        ([1.0, np.nan, 3.0], r"x0 is not finite in 1 of its 3 coordinates\."),
        (np.array([np.inf, np.nan, 3.0]), r"x0 is not finite in 2 of its 3 coordinates\."),
    ):
        with pytest.raises(ConfigError, match=said):
            Descent(AGD(gamma=0.1, mu=0), np.array(bad))
    with pytest.raises(ConfigError, match=r"x0 in part 'x' has a mask"):
        Descent(AGD(gamma=0.1, mu=0), np.ma.array([1.0, 2.0], mask=[True, False]))


def test_what_is_no_array_is_shown_in_one_line():
    """A table or a sparse matrix, whose repr takes lines, with the way to an array; and no state."""
    pandas, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    agg = Aggregator(EF21(TopK(k=2)), np.zeros(D), workers=N)
    table = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    for given, way in ((table, "to_numpy"), (sparse.csr_matrix(np.eye(3)), "toarray")):
        with pytest.raises(
            ConfigError, match=rf"in part 'x': give its \.{way}\(\); allowed: a numpy"
        ) as caught:
            Aggregator(EF21(TopK(k=2)), given)
        assert "\n" not in str(caught.value)
    for state in (table, agg.state() | {"steps": table}):
        with pytest.raises(MpicompError) as caught:
            agg.restore(state)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [{}, {"step": 1}, {"worker-0.g": np.zeros(D)}, None, []])
def test_what_is_no_state_is_told_so(given):
    with pytest.raises(ConfigError, match=r"is no state; allowed: what state\(\) has returned"):
        Aggregator(EF21(TopK(k=2)), np.zeros(D)).restore(given)


def test_copies_are_refused():
    for made in (Aggregator(EF21(TopK(k=2)), np.zeros(D)), Descent(AGD(gamma=0.1, mu=0), np.zeros(D))):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(ConfigError, match=r"cannot be copied or pickled.*goes on in it\.$"):
                copied(made)
