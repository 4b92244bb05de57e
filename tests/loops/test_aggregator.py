"""The aggregator in a loop of one's own is the run, bit for bit; so is a descent."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import mpicomp
from mpicomp import (
    DCGD,
    EF14,
    EF21,
    EF21SGDM,
    EFSGD,
    GD,
    MARINA,
    Aggregator,
    ARCTopK,
    CodedGaps,
    ConfigError,
    Descent,
    DivergedError,
    Identity,
    Importance,
    Layered,
    RandK,
    TopK,
)
from mpicomp.base.errors import RecordError
from mpicomp.methods import METHODS
from mpicomp.methods.support.estimating import EstimatingMethod
from tests.support import every_combination

PROBLEM, WORKERS = every_combination.PROBLEM, every_combination.WORKERS
METHODS_HERE = every_combination.methods()
TO_CUT, IN_BLOCKS = every_combination.TO_CUT, {type(m): m for m in every_combination.methods_in_blocks()}
ONE_OF_EACH = [*{type(m): m for m in METHODS_HERE if isinstance(m, EstimatingMethod)}.values()]


def tree(x, problem=PROBLEM):
    """x as arrays by the names of the problem's parts."""
    return {part.name: x[where].reshape(part.shape) for part, where in problem.parts()}


def flat(arrays):
    return np.concatenate([np.ravel(a) for a in arrays.values()])


def objectives(loop):
    return {i: PROBLEM.objective(i, loop.workers) for i in loop.hosted}


def gradients(loop, x):
    return {i: f.grad(x) for i, f in objectives(loop).items()}


def test_every_method_of_the_form_is_here():
    classes = {m for m in METHODS.values() if issubclass(m, EstimatingMethod)}
    assert {type(m) for m in ONE_OF_EACH} == classes
    others = {
        "AGD",
        "CG",
        "HeavyBall",
        "LBFGS",
        "ADEF",
        "ADIANA",
        "ADIANAPlus",
        "LoCoDL",
        "TwoDirection",
        "EF21P",
        "M3",
        "MARINAP",
        "MCM",
        "PerturbedSGD",
    }
    assert {m.__name__ for m in set(METHODS.values()) - classes} == others


@pytest.mark.parametrize("method", ONE_OF_EACH, ids=str)
def test_estimate_and_step_are_the_run(method):
    check_estimates(method)


def test_estimate_and_step_of_every_pair_are_the_run(subtests):
    of_the_form = [m for m in every_combination.every_pair() if isinstance(m, EstimatingMethod)]
    for method in [m for m in of_the_form if not m.elsewhere]:
        with subtests.test(str(method)):
            check_estimates(method)


def check_estimates(method):
    rounds = 11 if isinstance(method, ARCTopK) else 10  # a step ends with them
    run = mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=rounds, seed=5)
    x = PROBLEM.x0()
    with Aggregator(run.method, like=tree(x), workers=WORKERS, seed=5) as agg:
        fs = objectives(agg)
        while agg.rounds < rounds:
            x -= run.method.step * flat(agg(fs, at=tree(x)))
    assert x.tobytes() == run.x.tobytes()
    assert agg.ledger.up.tolist() == run.ledger.up.tolist()
    assert agg.ledger.down.tolist() == run.ledger.down.tolist()


@pytest.mark.parametrize("method", IN_BLOCKS.values(), ids=str)
def test_a_descent_of_ranks_that_all_serve_is_the_run(method):
    """An aggregator too, where the method has its form; the ledger once it is settled."""
    options = {"workers": WORKERS, "seed": 5, "server": "sharded", "blocks": 3}
    method = mpicomp.run(method, TO_CUT, rounds=1, **options).method  # step sizes are numbers
    x, fs = TO_CUT.x0(), {i: TO_CUT.objective(i, WORKERS) for i in range(WORKERS)}
    descent = Descent(method, tree(x, TO_CUT), **options)
    while descent.rounds < 12:
        descent.step(fs)
    descent.settle()
    run = mpicomp.run(method, TO_CUT, rounds=descent.rounds, **options)  # as many as the last step took
    assert flat(descent.model()).tobytes() == run.x.tobytes()
    assert descent.ledger.up.tolist() == run.ledger.up.tolist()
    assert descent.ledger.down.tolist() == run.ledger.down.tolist()
    assert descent.ledger.paper_bits_up == run.ledger.paper_bits_up
    if isinstance(method, EstimatingMethod):
        agg = Aggregator(method, like=tree(x, TO_CUT), **options)
        while agg.rounds < 12:
            x = x - method.step * flat(agg(fs, at=tree(x, TO_CUT)))
        assert x.tobytes() == run.x.tobytes()


@pytest.mark.parametrize("method", {type(m): m for m in METHODS_HERE}.values(), ids=str)
def test_a_descent_is_the_run(method):
    check_descent(method)


def test_a_descent_of_every_pair_is_the_run(subtests):
    for method in every_combination.every_pair():
        with subtests.test(str(method)):
            check_descent(method)


def check_descent(method):
    run = mpicomp.run(method, PROBLEM, workers=WORKERS, rounds=10, seed=5)
    with Descent(run.method, tree(PROBLEM.x0()), workers=WORKERS, seed=5) as descent:
        fs = objectives(descent)
        while descent.rounds < 10:
            assert descent.step(fs)
        if descent.rounds == 10:  # else the last step was longer
            assert flat(descent.model()).tobytes() == run.x.tobytes()
            assert descent.ledger.up.tolist() == run.ledger.up.tolist()


def test_one_worker_without_compression_returns_the_gradient():
    g = np.arange(6.0).reshape(2, 3) / 7
    assert np.array_equal(Aggregator(DCGD(Identity("f8")), like=g)(g), g)
    single = g.astype(np.float32)
    estimate = Aggregator(DCGD(Identity()), like=single)(single)
    assert estimate.dtype == np.float32 and np.array_equal(estimate, single)


def test_the_estimate_and_the_gradient_stay_the_callers():
    """A caller may write into what came back, and into what it gave, without touching the method's state."""
    rng = np.random.default_rng(1)
    one, two = (Aggregator(EF21SGDM(TopK(k=2), eta=0.3), like=np.zeros(7)) for _ in range(2))
    for _ in range(5):
        gradient = rng.normal(size=7)
        mine = gradient.copy()
        g, h = one(gradient), two(mine)
        assert g.tobytes() == h.tobytes()
        mine[:] = 9
        h[:] = 9


def test_parts_of_any_shape_and_kind_are_one_vector():
    rng = np.random.default_rng(2)
    arrays = {"W": rng.normal(size=(3, 4)), "b": rng.normal(size=4).astype(np.float32), "s": np.float64(2)}
    flat = np.concatenate([np.ravel(a) for a in arrays.values()])
    method = EF21(TopK(k=3))
    in_a_row = list(arrays.values())
    g, h = Aggregator(method, like=arrays)(arrays), Aggregator(method, like=in_a_row)(in_a_row)
    assert [a.dtype for a in g.values()] == [np.float64, np.float32, np.float64]
    assert [a.shape for a in h] == [(3, 4), (4,), ()]
    expected = Aggregator(method, like=flat)(flat)
    assert np.array_equal(np.concatenate([np.ravel(a) for a in g.values()]), np.float32(expected))
    assert all(np.array_equal(a, b) for a, b in zip(g.values(), h, strict=True))
    assert isinstance(Aggregator(method, like=(flat, flat))((flat, flat)), tuple)
    shuffled = Aggregator(method, like=arrays)(dict(reversed(arrays.items())))
    assert [*shuffled] == [*arrays] and all(np.array_equal(shuffled[name], g[name]) for name in g)


def test_big_endian_arrays_are_computed_in_double_precision():
    """As files in FITS and NetCDF hold them."""
    g = np.random.default_rng(0).normal(size=8)
    agg = Aggregator(DCGD(Identity("f8")), like=np.zeros(8, ">f8"))
    estimate = agg(g.astype(">f8"))
    assert estimate.dtype == np.dtype(">f8") and np.array_equal(estimate, g)


def test_float32_states_halve_the_bytes_down():
    """Lossless means are sent in the precision of the state, which is that of ``like``."""
    g = np.random.default_rng(3).normal(size=1000)
    down = {}
    for dtype in (np.float32, np.float64):
        agg = Aggregator(DCGD(Identity()), like=g.astype(dtype), workers=3)
        agg({i: (i + 1) * g.astype(dtype) / 7 for i in range(3)})
        down[dtype] = agg.ledger.down_bytes / 3
    assert down[np.float32] == pytest.approx(4000, abs=8)
    assert down[np.float64] == pytest.approx(8000, abs=8)


def test_a_gradient_that_is_not_finite_changes_nothing():
    rng = np.random.default_rng(4)
    plain = Aggregator(EF21SGDM(TopK(k=2), eta=0.3), like=np.zeros(5), workers=2)
    skipping = Aggregator(EF21SGDM(TopK(k=2), eta=0.3), like=np.zeros(5), workers=2, on_nonfinite="skip")
    for step in range(6):
        good = {i: rng.normal(size=5) for i in range(2)}
        bad = {0: good[0], 1: np.array([1, np.nan, 0, np.inf, 0])}
        if step % 2:
            with pytest.raises(DivergedError, match="worker 1: the gradient is not finite"):
                plain(bad)
            assert skipping(bad) is None
        assert plain(good).tobytes() == skipping(good).tobytes()
    assert (plain.skipped, skipping.skipped, skipping.steps) == (0, 3, 6)


def test_saved_and_loaded_is_uninterrupted(tmp_path):
    rng = np.random.default_rng(5)
    given = [{i: rng.normal(size=20) for i in range(3)} for _ in range(8)]
    method = EF21SGDM(TopK(k=2), eta=0.3)
    one = Aggregator(method, like=np.zeros(20), workers=3, seed=8)
    whole = [one(g) for g in given]
    two = Aggregator(method, like=np.zeros(20), workers=3, seed=8)
    for g in given[:4]:
        two(g)
    two.save(tmp_path / "agg")
    three = Aggregator(method, like=np.zeros(20), workers=3, seed=8)
    three.load(tmp_path / "agg")
    assert (three.steps, str(three.ledger)) == (4, str(two.ledger))
    for g, expected in zip(given[4:], whole[4:], strict=True):
        assert three(g).tobytes() == expected.tobytes()
    assert three.ledger.up.tolist() == one.ledger.up.tolist()
    other = Aggregator(EF21SGDM(TopK(k=3), eta=0.3), like=np.zeros(20), workers=3, seed=8)
    with pytest.raises(mpicomp.MpicompError, match=r"method\.C is TopK\(k=2.*and TopK\(k=3"):
        other.load(tmp_path / "agg")


def test_a_state_may_be_an_open_file_of_numpys(tmp_path):
    whole, agg = (Aggregator(EF21SGDM(TopK(k=1)), like=np.zeros(3)) for _ in range(2))
    for k in range(3):
        whole(np.arange(3.0) + k)
    np.savez(tmp_path / "state.npz", **whole.state())
    with np.load(tmp_path / "state.npz") as state:
        agg.restore(state)
    assert agg.steps == 3 and np.array_equal(agg(np.ones(3)), whole(np.ones(3)))


def test_a_damaged_file_of_numpys_is_no_state(tmp_path):
    agg = Aggregator(EF21SGDM(TopK(k=1)), like=np.zeros(3))
    agg(np.ones(3))
    path = tmp_path / "state.npz"
    np.savez(path, **agg.state())
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 255  # of an array, whose checksum no longer fits
    path.write_bytes(damaged)
    with np.load(path) as state, pytest.raises(RecordError, match="the state is invalid: "):
        agg.restore(state)
    assert agg.steps == 1 and agg(np.ones(3)).any()


def test_a_state_of_another_run_is_refused():
    """Another method with the same memories, or another number of workers."""
    like = np.zeros(8)
    state = Aggregator(EF14(TopK(k=2)), like, workers=3).state()
    Aggregator(EF14(TopK(k=2)), like, workers=3).restore(state)
    for method, workers, said in (
        (EFSGD(TopK(k=2)), 3, "method is EF14 there and EFSGD here"),
        (EF14(TopK(k=2)), 2, "workers is 3 there and 2 here"),
        (EF14(TopK(k=3)), 3, r"method\.C is TopK\(k=2, .* there and TopK\(k=3, .* here"),
    ):
        with pytest.raises(ConfigError, match=said):
            Aggregator(method, like, workers=workers).restore(state)


def test_a_state_in_blocks_is_refused_without_them():
    state = Aggregator(EF14(TopK(k=2)), np.zeros(8), server="sharded", blocks=2).state()
    with pytest.raises(ConfigError, match="blocks is 2 there and not given here"):
        Aggregator(EF14(TopK(k=2)), np.zeros(8)).restore(state)


def test_a_record_that_was_not_saved_is_missed(tmp_path):
    """And what there is is not taken either."""
    agg = Aggregator(EF14(TopK(k=2)), np.zeros(8))
    agg(np.ones(8))
    agg.save(tmp_path)
    other = Aggregator(EF14(TopK(k=2)), np.zeros(8))
    with pytest.raises(RecordError, match="was saved without sampler"):
        other.load(tmp_path, sampler=EF14.Worker(np.zeros(8)))
    assert other.steps == 0


def test_a_block_is_brought_after_overlap():
    agg = Aggregator(EF14(TopK(k=2)), np.zeros(8), server="sharded", blocks=2)
    with pytest.raises(ConfigError, match=r"call overlap\(\) first"):
        agg.bring(1, np.ones(4))


def test_torchrun_is_refused(monkeypatch):
    """Nothing has joined its processes: each would be alone."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match=r"torchrun started 4 processes.*init_process_group.*mpirun -n 4"):
        Aggregator(GD(), np.zeros(8))
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")  # srun -n 1 torchrun ..
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.raises(ConfigError, match=r"torchrun started 4 processes.*init_process_group.*mpirun -n 4"):
        Aggregator(GD(), np.zeros(8))
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv("SLURM_PROCID")
    Aggregator(GD(), np.zeros(8))


def test_what_a_rank_has_to_bring_is_said_in_one_short_line():
    """However many workers it hosts."""
    with Aggregator(GD(), like=np.zeros(3), workers=500) as agg:
        with pytest.raises(ConfigError, match=r"hosts, here 0, 1, \.\., 499; it was given list: "):
            agg([np.zeros(3)] * 500)
        with pytest.raises(ConfigError, match=r"given the keys 7: "):
            agg({7: np.zeros(3)})


@pytest.mark.parametrize(
    ("like", "given", "said"),
    [
        (np.zeros(3), np.zeros(4), r"shape \(4,\) in part 'x'; expected \(3,\)"),
        (np.zeros(3), np.zeros(3, int), "type int64"),
        (np.zeros(3), np.zeros(3, np.longdouble), "at most 64 bits"),
        (
            np.zeros(3),
            [1.0, 2.0, 3.0],
            r"parts 0, 1, 2; expected, as at the start: x\. .*: give numpy\.array",
        ),
        (np.zeros(3), [0.0] * 10**5, r"has the parts 0, 1, \.\., 99999; expected"),
        (np.zeros(3), pd.Series([1.0, 2.0, 3.0]), r"has a Series in part 'x': give its \.to_numpy\(\)"),
        (np.zeros(3), None, "None in part 'x'"),
        (np.zeros(3), np.ma.masked_array(np.ones(3), [0, 0, 1]), r"in part 'x' has a mask.*filled\(0\)"),
        ({"a": np.zeros(3)}, {"b": np.zeros(3)}, "the parts b; expected, as at the start: a"),
        ({"a": np.zeros(3)}, {"a": np.zeros((3, 1))}, r"shape \(3, 1\) in part 'a'"),
    ],
)
def test_what_is_no_gradient_is_refused_and_changes_nothing(like, given, said):
    agg = Aggregator(EF21(TopK(k=1)), like=like)
    with pytest.raises(ConfigError, match=said):
        agg(given)
    good = {"a": np.ones(3)} if isinstance(like, dict) else np.ones(3)
    assert agg(good) is not None and agg.steps == 1


@pytest.mark.parametrize(("like", "told"), [([1.0, 2.0], True), ({"a": 1.0}, False), (["x"], False)])
def test_only_numbers_in_a_list_are_to_be_made_an_array(like, told):
    with pytest.raises(ConfigError, match=r"in part '[0a]'; allowed: ") as refused:
        Aggregator(EF21(TopK(k=1)), like=like)
    assert ("Numbers in a list: give numpy.array(..) of it." in str(refused.value)) is told


@pytest.mark.filterwarnings("error")
def test_a_finite_gradient_beyond_the_precision_of_like_is_told_so():
    agg = Aggregator(EF21(TopK(k=1)), like=np.zeros(3, np.float32))
    with pytest.raises(DivergedError, match="worker 0: the gradient has magnitudes beyond float32"):
        agg(np.array([0.0, 1e300, 0.0]))
    with pytest.raises(DivergedError, match="worker 0: the gradient is not finite"):
        agg(np.array([0.0, np.nan, 1e300]))
    assert agg(np.ones(3)).dtype == np.float32


@pytest.mark.parametrize("worker", [2, -1, "0", None, 0.0, [0]])
def test_residuals_are_of_workers_that_are_hosted(worker):
    agg = Aggregator(mpicomp.EFSGD(TopK(k=1)), like=np.zeros(3), workers=2)
    with pytest.raises(ConfigError, match=r"worker=.*; allowed: one of 0, 1, which this rank hosts\."):
        agg.residual(worker)
    assert agg.residual(np.int64(1)).tolist() == [0.0] * 3


@pytest.mark.parametrize("number", [-1, 2**32, 1.0, "1", None])
def test_numbers_that_ranks_tell_each_other_are_of_32_bits(number):
    agg = Aggregator(EF21(TopK(k=1)), like=np.zeros(3))
    with pytest.raises(ConfigError, match=r"number=.*; allowed: an integer from 0 to 4294967295"):
        agg.tell_all(number)


class Model:
    """As a module of torch, as far as its parameters go."""

    def named_parameters(self):
        return iter([("a", np.zeros(3))])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Aggregator(mpicomp.AGD(gamma=1), like=np.zeros(3)), r"AGD chooses the points.*Descent\("),
        (lambda: Aggregator(5, like=np.zeros(3)), "5 is no method"),
        (lambda: Aggregator("topk(k=1)", like=np.zeros(3)), "'topk' is a compressor; a method is expected"),
        (lambda: Aggregator("agd(gamma=1)", like=np.zeros(3)), "AGD chooses the points where gradients are"),
        (lambda: Descent(GD(), np.zeros(3)), "there is none: give a number"),
        (lambda: Aggregator(GD(), like={}), "like is an empty dict"),
        (lambda: Aggregator(GD(), like={1: np.zeros(3)}), "names, texts"),
        (lambda: Aggregator(GD(), like="x"), "allowed: a numpy array"),
        (lambda: Aggregator(GD(), like={"a": np.zeros(3)}.values()), r"dict_values in .*give list\(..\)"),
        (lambda: Aggregator(GD(), like=iter([np.zeros(3)])), r"list_iterator in .*: give list\(..\) of it"),
        (lambda: Aggregator(GD(), like=Model()), r"a Model in .*: give dict\(it\.named_parameters\(\)\)"),
        (lambda: Aggregator(GD(), like=np.zeros(3), workers=0), "workers=0"),
        (lambda: Aggregator(GD(), like=np.zeros(3), on_nonfinite="no"), "on_nonfinite"),
        (lambda: Aggregator(GD(), like=np.zeros(3)).verify(), "verify_bytes=True"),
        (lambda: Aggregator(GD(), like=np.zeros(3), workers=2)(np.zeros(3)), "a dict of the gradients"),
        (lambda: Aggregator(GD(), like=np.zeros(3), workers=2)({0: np.zeros(3)}), "the keys 0: "),
        (lambda: Aggregator(EF21(TopK(k=1), batch=2), like=np.ones(3))(np.ones(3)), "leave batch out"),
    ],
)
def test_bad_input_is_refused_with_its_remedy(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize("loop", [Aggregator, Descent])
@pytest.mark.parametrize(
    "method",
    [
        EF21(TopK(9), gamma=0.1),
        EFSGD(CodedGaps(TopK(9)), gamma=0.1),
        EF21SGDM(Layered({}, TopK(9)), gamma=0.1),
        MARINA(RandK(9), gamma=0.1, p=0.5),
        DCGD(Importance(9), gamma=0.1),
    ],
    ids=repr,
)
def test_a_count_above_d_is_refused_before_the_first_step(loop, method):
    with pytest.raises(ConfigError, match="k=9 exceeds the dimension d=8; allowed: 1 to 8, or a fraction"):
        loop(method, np.zeros(8))


def test_a_result_beyond_the_users_type_is_refused():
    """RandK gives 64 times an entry: 64 * 1000 < 65504, float16's largest number, < 64 * 1024.  Exact."""
    like = {"a": np.zeros(64, np.float16), "b": np.zeros((), np.float32)}
    for value in (1000.0, 1024.0):
        agg = Aggregator(DCGD(Layered({"a": RandK(k=1)}, default=Identity())), like)
        gradient = {"a": np.full(64, value, np.float16), "b": np.float32(1e38)}
        if value == 1000.0:
            assert agg(gradient)["a"].max() == 64000 and agg.sound
            continue
        with pytest.raises(DivergedError, match=r"in part 'a' has a magnitude of 6.55e\+04, which float16"):
            agg(gradient)
        agg(gradient | {"a": np.zeros(64, np.float16)})
    descent = Descent(GD(gamma=1e4, values="f8"), [np.zeros(2, np.float32), np.zeros(2)])
    descent.step([np.zeros(2, np.float32), np.full(2, 1e38)])
    assert descent.x[1][0] == -1e4 * 1e38
    descent.step([np.full(2, 1e35, np.float32), np.zeros(2)])
    with pytest.raises(DivergedError, match=r"in part '0' has a magnitude of 1e\+39, which float32"):
        _ = descent.x  # of a vector in double precision


def test_a_sum_beyond_single_precision_is_no_matter():
    """numpy would warn of it: four times 3e38 is beyond float32."""
    g = np.full(4, 3e38, np.float32)
    assert Aggregator(DCGD(Identity()), like=g)(g).tolist() == g.tolist()


def test_a_smoothness_matrix_is_asked_of_an_objective_where_the_class_does_not_say_so():
    class Silent(mpicomp.DCGDPlus):
        needs_also = ""

    agg = mpicomp.Aggregator(Silent(mpicomp.RandK(k=1)), like=np.zeros(3))
    with pytest.raises(
        ConfigError, match=r"smoothness matrix, which gradients do not have: give an mpicomp\.Obj"
    ):
        agg(lambda x: x, at=np.zeros(3))
