"""The local and the full image model: their experts, gradients, samples, and images."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21SGDM, Identity, TopK, kernels
from mpicomp.base.errors import ConfigError, DataError
from mpicomp.data import load_images, rows_of
from mpicomp.images.experts import CENTRED, CENTRES, EXPERTS, RATIOS, TOTAL, about_a_prediction, fixed
from mpicomp.images.full_images import FullImages
from mpicomp.images.grey import GreyImages, load_grey
from mpicomp.images.local_images import LocalImages
from mpicomp.keys import Key
from mpicomp.text.config import parse_problem, to_text
from tests.data.test_images import idx
from tests.problems.test_problems import assert_gradient, rng
from tests.reference.networks import pixel_loss, position_inputs


def drawn(m: int = 6, height: int = 5, width: int = 7, seed: int = 0) -> np.ndarray:
    """Smooth images with black and white parts, so that all kinds of experts matter."""
    steps = rng(seed).normal(size=(m, height, width)).cumsum(axis=1).cumsum(axis=2)
    return np.clip(128 + 60 * steps, 0, 255).astype(np.uint8)


IMAGES = drawn()
ALL = [
    LocalImages(IMAGES, hidden=4),
    LocalImages(IMAGES, hidden=3, blocks=0, horizon=2),
    LocalImages(IMAGES, hidden=5, blocks=2, horizon=5, split="contiguous"),
    FullImages(IMAGES, hidden=4),
    FullImages(IMAGES, hidden=3, blocks=2, horizon=4, split="contiguous"),
]
N = 2


def a_point(problem, seed: int = 0) -> np.ndarray:
    return problem.x0() + 0.2 * rng(seed).normal(size=problem.dimension())


def at(image: np.ndarray, row: int, column: int) -> int:
    """The value there, 0 outside the image."""
    height, width = image.shape
    return int(image[row, column]) if 0 <= row < height and 0 <= column < width else 0


def median(*values: int) -> int:
    return sorted(values)[1]


def likelihoods(image: np.ndarray, r: int, c: int) -> np.ndarray:
    """What each expert gives to the pixel, by the definition; about 1/65536 from what is rounded."""
    W, N, NW, NE = at(image, r, c - 1), at(image, r - 1, c), at(image, r - 1, c - 1), at(image, r - 1, c + 1)
    WW, NN = at(image, r, c - 2), at(image, r - 2, c)
    guesses = [W, N, NW, NE, (W + N) // 2, median(W, N, W + N - NW)]
    guesses += [min(max(g, 0), 255) for g in (W + N - NW, 2 * W - WW, 2 * N - NN, W + NE - N)]
    value = int(image[r, c])
    found = [about_a_prediction()[g, value, s] for g in guesses for s in range(len(RATIOS))]
    return np.array([*found, *fixed()[value]]) / TOTAL


def transcribed(problem, x: np.ndarray, images: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """Loss and gradient of each pixel by ``tests.reference``."""
    views = [x[where].reshape(part.shape) for part, where in problem.parts()]
    layers, h = list(zip(views[::2], views[1::2], strict=True)), problem.horizon
    found = []
    for image in images:
        for r, c in np.ndindex(image.shape):
            above = [at(image, r - i, c + j) for i in range(h, 0, -1) for j in range(-h, h + 1)]
            a = np.array(above + [at(image, r, c - j) for j in range(h, 0, -1)]) / 255
            if problem.positions:
                a = np.concatenate([a, position_inputs(r, c, *image.shape)])
            loss, gradients = pixel_loss(layers, a, likelihoods(image, r, c))
            found.append((loss, np.concatenate([g.ravel() for pair in gradients for g in pair])))
    return found


def shard(problem, i: int) -> np.ndarray:
    return IMAGES[rows_of(i, N, np.zeros(len(IMAGES)), problem.split)]


def means(found) -> tuple[float, np.ndarray]:
    return np.mean([f for f, _ in found]), np.mean([g for _, g in found], axis=0)


# The experts


def test_every_expert_is_a_distribution():
    assert (about_a_prediction().sum(axis=1) == TOTAL).all()
    assert (fixed().sum(axis=0) == TOTAL).all()
    assert about_a_prediction().min() >= 1
    assert EXPERTS == 79 == 10 * about_a_prediction().shape[2] + fixed().shape[1]
    assert (fixed()[:, 16] == 256).all()  # uniform: so no value is impossible
    assert fixed()[0, 17] == fixed()[255, 18] == TOTAL


def test_the_experts_are_geometric_on_both_sides():
    """Within the rounding of the shares to 1/65536, and of each power to 2^-24."""
    away = np.abs(np.arange(256)[:, None] - np.arange(256))
    for s, ratio in enumerate(RATIOS):
        exact = (ratio / 256.0) ** away
        exact /= exact.sum(axis=1, keepdims=True)
        assert np.abs(about_a_prediction()[:, :, s] / TOTAL - exact).max() < 257 / TOTAL
    exact = (CENTRED / 256.0) ** away[list(CENTRES)]
    exact /= exact.sum(axis=1, keepdims=True)
    assert np.abs(fixed()[:, :16].T / TOTAL - exact).max() < 257 / TOTAL


# Values and gradients


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_value_and_gradient_equal_the_transcription(problem):
    x = a_point(problem)
    for i in range(N):
        f = problem.objective(i, N)
        value, grad = means(transcribed(problem, x, shard(problem, i)))
        assert f.value(x) == pytest.approx(value, rel=1e-12)
        assert f.grad(x) == pytest.approx(grad, rel=1e-10, abs=1e-13 * np.abs(grad).max())
        assert f.samples == shard(problem, i).size == problem.shard_sizes(N)[i]


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_gradients_are_slopes(problem):
    assert_gradient(problem.objective(1, N), a_point(problem, seed=1))


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_a_gradient_is_fresh_and_leaves_x_alone(problem):
    f, x = problem.objective(0, N), a_point(problem)
    x.flags.writeable = False
    first = f.grad(x)
    bits = first.tobytes()
    first[:] = np.nan
    assert f.grad(x).tobytes() == bits


def test_a_shard_of_many_pieces_is_their_sum(monkeypatch):
    problem = ALL[0]
    f, x = problem.objective(0, 1), a_point(problem)
    value, grad = f.value(x), f.grad(x)
    monkeypatch.setattr("mpicomp.images.pixels.AT_ONCE", 17)
    assert f.value(x) == pytest.approx(value, rel=1e-14)
    assert f.grad(x) == pytest.approx(grad, rel=1e-10, abs=1e-14)


def test_an_expert_that_excludes_the_value_does_no_harm():
    """Weights so large that all is on the point mass at 0, and the value is another: finite, and a slope."""
    problem = LocalImages(IMAGES, hidden=4)
    x = problem.x0()
    for part, where in problem.parts():
        if part.name == "b_4":
            x[where][EXPERTS - 2] = 500
    f = problem.objective(0, 1)
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(f.value(x))
        assert np.isfinite(f.grad(x)).all()


def test_the_probabilities_of_all_values_of_a_pixel_sum_to_one():
    """The model of the last pixel does not see it: over its 256 values the likelihood is a distribution."""
    image, total = IMAGES[0].copy(), 0.0
    x = a_point(ALL[0])
    for value in range(256):
        image[-1, -1] = value
        problem = LocalImages(image[None], hidden=4)
        f = problem.objective(0, 1)
        total += np.exp(-f.part(np.array([image.size - 1])).value(x))
    assert total == pytest.approx(1, rel=1e-12)


def test_a_diverged_network_has_the_loss_of_the_expert_that_it_chose():
    """Logits far beyond the experts' logarithms: in single precision the loss is not 0 by cancellation."""
    problem = LocalImages(IMAGES, hidden=4)
    f, x = problem.objective(0, 1), problem.x0()
    chosen = f.value(1e3 * x.astype(np.float64))
    assert chosen > f.value(x)
    assert f.value(np.float32(1e5) * x) == pytest.approx(chosen, rel=1e-3)
    assert np.isfinite(f.grad(np.float32(1e5) * x)).all()


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_log_likelihoods_are_sums_over_the_pixels_of_an_image(problem, monkeypatch):
    """In the order of the data, whatever the split; and in all they are -value * samples."""
    x, f = a_point(problem), problem.objective(0, 1)
    losses = [loss for loss, _ in transcribed(problem, x, IMAGES)]
    by_hand = -np.reshape(losses, (len(IMAGES), -1)).sum(axis=1)
    found = problem.log_likelihoods(x)
    assert found.dtype == np.float64
    assert found == pytest.approx(by_hand, rel=1e-12)
    assert found.sum() == pytest.approx(-f.value(x) * f.samples, rel=1e-13)
    rows = rows_of(0, 1, np.zeros(len(IMAGES)), problem.split)
    assert np.array_equal(f.image_values(x), -found[rows])
    monkeypatch.setattr("mpicomp.images.pixels.AT_ONCE", 17)
    assert problem.log_likelihoods(x) == pytest.approx(found, rel=1e-13)


def test_log_likelihoods_need_a_whole_image_and_an_x_of_the_problem():
    f, x = ALL[0].objective(0, 1), a_point(ALL[0])
    with pytest.raises(TypeError, match="the whole f_i"):
        f.part(np.arange(35)).image_values(x)
    with pytest.raises(ConfigError, match=r"x has shape \(3,\); expected"):
        ALL[0].log_likelihoods(x[:3])


def test_the_position_is_all_that_tells_the_pixels_of_a_black_image_apart():
    """Far from the edges the local model has one loss for all pixels, the full model one a pixel."""
    black = np.zeros((1, 12, 30), np.uint8)
    rows = np.arange(360).reshape(12, 30)[8:, 8:-8].ravel()
    for problem, different in ((LocalImages(black, hidden=4), 1), (FullImages(black, hidden=4), rows.size)):
        f, x = problem.objective(0, 1), a_point(problem)
        assert len({f.part(rows[k : k + 1]).value(x) for k in range(len(rows))}) == different


# Samples


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_a_batch_is_the_mean_over_the_pixels_that_the_stream_names(problem):
    f, x = problem.objective(1, N), a_point(problem)
    single = transcribed(problem, x, shard(problem, 1))
    for b in (1, 10):
        stream = Key(seed=5, round=b, worker=0, n=N).private("test/batch")
        rows = np.sort(stream.permutation(f.samples, 0, b))
        _, grad = means([single[j] for j in rows])
        assert f.batch_grad(x, b, stream) == pytest.approx(grad, rel=1e-10, abs=1e-13 * np.abs(grad).max())
    g = f.grad(x)
    assert f.batch_grad(x, f.samples, stream).tobytes() == g.tobytes()
    with pytest.raises(ConfigError, match="allowed: 1 to"):
        f.batch_grad(x, f.samples + 1, stream)


def test_a_part_of_a_part_counts_in_the_part():
    f, x = ALL[0].objective(0, 1), a_point(ALL[0])
    rows = np.array([3, 40, 77, 150])
    assert f.part(rows).part(np.array([1, 3])).value(x) == f.part(rows[[1, 3]]).value(x)


# The problem


def test_the_dimensions_are_those_of_the_layers():
    assert LocalImages(IMAGES).dimension() == 5519
    assert LocalImages(IMAGES, hidden=48).dimension() == 9775
    assert LocalImages(IMAGES, hidden=10, blocks=0).dimension() == 1119
    inputs = 112 + 5 + 7  # neighbours, rows, columns
    assert FullImages(IMAGES).dimension() == 128 * inputs + 2 * 128 * 129 + 128 + 79 * 129
    assert (
        str(LocalImages(IMAGES, hidden=4, blocks=0).parts())
        == "W_1 (4, 24), b_1 (4,), W_2 (79, 4), b_2 (79,)"
    )


def test_the_network_starts_as_stated():
    problem = LocalImages(IMAGES, hidden=200, blocks=2)
    x, factors = problem.x0(), dict(zip(range(1, 7), (1, 1, 0.3, 1, 0.3, 0.1), strict=True))
    assert x.dtype == np.float32
    for part, where in problem.parts():
        if part.name.startswith("b"):
            assert not x[where].any()
            continue
        draws = x[where].astype(float) * np.sqrt(part.shape[1] / 2) / factors[int(part.name[2:])]
        assert abs(draws.mean()) < 5 / np.sqrt(draws.size)  # 5 standard errors
        assert abs(np.mean(draws**2) - 1) < 5 * np.sqrt(2 / draws.size)
    assert np.array_equal(x, problem.x0())
    assert not np.array_equal(x, LocalImages(IMAGES, hidden=200, blocks=2, seed=1).x0())


def test_it_computes_in_the_precision_of_its_start_and_learns():
    problem = LocalImages(drawn(40, seed=3), hidden=8)
    f, x = problem.objective(0, 4), problem.x0()
    assert f.grad(x).dtype == np.float32
    double = f.grad(x.astype(np.float64))
    assert np.abs(f.grad(x) - double).max() < 1e-5 * np.abs(double).max()
    method = EF21SGDM(C=TopK(0.1), eta=0.1, gamma=1.0, batch=64)
    run = mpicomp.run(method, problem, workers=4, rounds=150, every=150)
    assert run.x.dtype == np.float32
    assert run.rows[-1].f < run.rows[0].f - 0.5


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(tmp_path):
    def run(rounds, folder, **options):
        method = EF21SGDM(C=TopK(0.05), eta=0.1, gamma=1.0, batch=16)
        out = tmp_path / folder
        return mpicomp.run(method, ALL[0], workers=3, rounds=rounds, every=5, out=out, **options)

    whole = run(20, "whole")
    run(10, "parts")
    assert run(20, "parts", resume=True).iterates_sha256 == whole.iterates_sha256


def test_a_problem_is_its_text_and_names_its_data():
    problem = LocalImages("digits", hidden=4, split="sorted")
    assert eval(repr(problem)) == problem == parse_problem(to_text(problem))
    assert problem.fingerprint() == load_grey("digits").sha256
    assert LocalImages(IMAGES) == LocalImages(IMAGES.astype(np.int64)) != LocalImages(IMAGES[:-1])


def test_it_runs_dense_from_its_text():
    text = "local_images(data=digits, hidden=4)"
    run = mpicomp.run(EF21SGDM(C=Identity(), gamma=0.1, batch=8), parse_problem(text), workers=2, rounds=2)
    assert run.x.shape == (parse_problem(text).dimension(),)


def test_impossible_parameters_are_refused():
    for wrong in ({"horizon": 1}, {"hidden": 0}, {"blocks": -1}, {"seed": -1}, {"split": "sort"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            LocalImages("digits", **wrong)
    with pytest.raises(ConfigError, match="gives no constants"):
        LocalImages("digits").constants(2)


# The images


@pytest.mark.parametrize("name", ["t-images-idx3-ubyte", "t.idx", "t.idx.gz"])
def test_an_idx_file_is_the_array_it_holds(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(idx(IMAGES)) if name.endswith("gz") else idx(IMAGES))
    assert load_grey(str(path)) == GreyImages.of(IMAGES)
    assert np.array_equal(load_grey(str(path)).pixels, IMAGES)
    path.write_bytes(b"\0\0\x08\3 short")
    with pytest.raises(DataError, match="t"):
        load_grey(str(path))


def test_a_bundled_set_keeps_its_labels_and_becomes_square():
    images, flat = load_grey("digits"), load_images("digits")
    assert images.pixels.shape == (1797, 8, 8)
    assert np.array_equal(images.pixels.reshape(1797, 64), flat.pixels)
    assert np.array_equal(images.labels, flat.labels)
    assert images.shape == (1797, 64)


def test_images_that_cannot_be_used_are_refused(tmp_path):
    for wrong in (IMAGES[0], IMAGES / 255, IMAGES[:0], IMAGES.astype(int) + 1, IMAGES.astype(int) - 1):
        with pytest.raises(DataError, match="allowed"):
            LocalImages(wrong)
    with pytest.raises(DataError, match=r"data has a mask.*\.filled\(0\)"):
        LocalImages(np.ma.masked_equal(IMAGES, 7))
    for name in ("none-ubyte", "none.idx.xz", "none.npy"):
        with pytest.raises(DataError, match="no such file"):
            load_grey(str(tmp_path / name))
    with pytest.raises(DataError, match=r"cannot read .*none\.png: No such file"):
        load_grey(str(tmp_path / "none.png"))
    flat = tmp_path / "labels-idx1-ubyte"
    flat.write_bytes(idx(np.zeros(4, np.uint8)))
    with pytest.raises(DataError, match="allowed: integers of shape"):
        load_grey(str(flat))
    rows = tmp_path / "rows.npz"
    np.savez(rows, X=np.ones((3, 4)))
    with pytest.raises(DataError, match="without height and width"):
        load_grey(str(rows))
    with pytest.raises(
        ConfigError, match=r"unknown set of images.* by its path: IDX, \.npy, \.png, or a fold"
    ):
        load_grey("nmist")


def test_nothing_is_on_a_device_unasked():
    f = ALL[0].objective(0, 1)
    assert f.on_device() is f
    assert kernels.device() is None
