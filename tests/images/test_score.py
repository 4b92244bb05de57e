"""Scores of images, and how well they tell two sets apart."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.base.errors import DataError
from mpicomp.images import ImageModel, auroc, pooled_gaussian, scores
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from tests.images.test_archive import pictures


def test_the_scores_are_likelihoods_and_their_difference():
    inside, outside = pictures(4, 8, 9), np.random.default_rng(0).integers(0, 256, (6, 8, 9), np.uint8)
    local, full = LocalImages(inside, hidden=3), FullImages(inside, horizon=4, hidden=3)
    models = [ImageModel.of(p, p.x0()) for p in (local, full)]
    ratio, far, near, pooled = scores(*models, inside, outside, training=inside)
    assert np.array_equal(near.inside, local.log_likelihoods(local.x0()))
    assert np.array_equal(far.outside, models[1].log_likelihoods(outside))
    assert np.array_equal(ratio.outside, far.outside - near.outside)
    assert pooled.name == "pooled Gaussian" and pooled.auroc == auroc(pooled.inside, pooled.outside)
    assert len(scores(*models, inside, outside)) == 3


def test_the_pooled_gaussian_is_the_normal_density():
    """Against scipy's, up to the constant; blocks of 4 x 4, and of unequal sizes."""
    from scipy.stats import multivariate_normal

    draw = np.random.default_rng(0)
    for shape in ((28, 28), (8, 17)):
        training, some = (draw.integers(0, 256, (m, *shape), np.uint8) for m in (400, 5))

        def means(pixels, shape=shape):
            rows, columns = ([k * s // 7 for k in range(8)] for s in shape)
            return np.array(
                [
                    [
                        image[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].mean() / 255
                        for i in range(7)
                        for j in range(7)
                    ]
                    for image in pixels
                ]
            )

        blocks = means(training)
        normal = multivariate_normal(blocks.mean(axis=0), np.cov(blocks.T) + 1e-4 * np.eye(49))
        ours, theirs = pooled_gaussian(training)(some), normal.logpdf(means(some))
        assert ours - ours[0] == pytest.approx(theirs - theirs[0], rel=1e-8)
    with pytest.raises(DataError, match="7 x 7 or more"):
        pooled_gaussian(np.zeros((9, 6, 8), np.uint8))
    with pytest.raises(DataError, match="2 images or more"):
        pooled_gaussian(training[:1])


@pytest.mark.parametrize("wrong", [["a"], [1j], None, [[1.0]], [], [float("nan")]])
def test_scores_are_real_numbers(wrong):
    with pytest.raises(DataError, match=r"^the scores outside (are|have) .*; allowed: "):
        auroc([1.0], wrong)


def test_the_pooled_gaussian_takes_a_path(tmp_path):
    """It was taken for an array: "images of type object and shape ()"."""
    np.save(tmp_path / "some.npy", images := pictures(4, 8, 9))
    of_file, of_array = (pooled_gaussian(one)(images) for one in (tmp_path / "some.npy", images))
    assert np.array_equal(of_file, of_array)


def test_the_pooled_gaussian_takes_no_images_of_another_scale():
    """Floats from 0 to 1 were divided by 255 again: all scores were wrong, without a word."""
    images = pictures(4, 8, 9)
    with pytest.raises(DataError, match="images of type float64"):
        pooled_gaussian(images / 255)
    with pytest.raises(DataError, match="images of type float64"):
        pooled_gaussian(images)(images / 255)
