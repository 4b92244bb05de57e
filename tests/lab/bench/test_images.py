"""The bench of image codecs: what it counts is what the codecs give."""

from __future__ import annotations

import bz2
import json
import sys

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError, MessageError
from mpicomp.images import ImageModel, Stack, coder, compress, decompress
from mpicomp.images.grey import load_grey
from mpicomp.images.local_images import LocalImages
from mpicomp.lab.bench.images import image_costs, mosaic_of
from tests.support.launching import mpicomp

PIXELS = load_grey("digits").pixels[:50]
MODEL = ImageModel.of(LocalImages("digits", hidden=3), LocalImages("digits", hidden=3).x0())


def test_the_rows_are_the_sizes():
    pytest.importorskip("imagecodecs", reason="no imagecodecs: pip install -e '.[peers]'")
    first, *others = image_costs(PIXELS, MODEL)
    network, bits = MODEL.integers(), 8 / PIXELS.size
    assert first["together"] == bits * len(compress([Stack(PIXELS)], network)[0])
    assert first["each"] == bits * sum(coder.encode(image[None], network).size for image in PIXELS)
    assert first["model_bytes"] == len(network.encoded())
    assert first["entropy"] == pytest.approx(first["images_only"], rel=0.01)
    rows = {row["codec"]: row for row in others}
    assert list(rows) == ["PNG", "WebP", "JPEG-LS", "JPEG-XL", "zlib", "bz2", "xz", "zstd", "brotli"]
    assert rows["bz2"]["together"] == bits * len(bz2.compress(PIXELS.tobytes(), 9))
    assert all(row["together"] > 0 and (row["each"] or 9) > row["together"] for row in others)
    assert all(
        (row["each"] is None) == (name not in ("PNG", "WebP", "JPEG-LS", "JPEG-XL"))
        for name, row in rows.items()
    )


def test_images_that_cost_more_to_decode_than_an_archive_of_others_may_are_counted():
    """The limit is for archives of others, and the command has no option to raise it."""
    pytest.importorskip("imagecodecs", reason="no imagecodecs: pip install -e '.[peers]'")
    blank = np.zeros((1, 1200, 1), dtype=np.uint8)
    with pytest.raises(MessageError, match="allow more by --max-pixels"):
        decompress(compress([Stack(blank)], MODEL.integers())[0])
    assert next(image_costs(blank, MODEL))["together"] > 0


def test_other_codecs_are_lossless():
    """As they are called here."""
    codecs = pytest.importorskip("imagecodecs", reason="no imagecodecs: pip install -e '.[peers]'")
    image = mosaic_of(PIXELS)
    grey = np.repeat(image[..., None], 3, axis=2)
    assert np.array_equal(
        codecs.webp_decode(codecs.webp_encode(grey, lossless=True, level=100, method=6))[..., :3], grey
    )
    assert np.array_equal(codecs.jpegxl_decode(codecs.jpegxl_encode(image, lossless=True, effort=10)), image)
    assert np.array_equal(codecs.jpegls_decode(codecs.jpegls_encode(image)), image)


@pytest.mark.parametrize(("m", "columns"), [(1, 1), (2, 2), (4, 2), (5, 3), (50, 8)])
def test_a_mosaic_has_every_image_in_its_place(m, columns):
    mosaic = mosaic_of(PIXELS[:m])
    assert mosaic.shape == (8 * -(-m // columns), 8 * columns)
    for i, image in enumerate(PIXELS[:m]):
        row, column = 8 * (i // columns), 8 * (i % columns)
        assert np.array_equal(mosaic[row : row + 8, column : column + 8], image)
    assert mosaic.sum() == PIXELS[:m].sum()


def test_without_the_other_codecs_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    with pytest.raises(ConfigError, match=r"pip install 'mpicomp\[peers\]'"):
        next(image_costs(PIXELS, MODEL))


def test_the_command(tmp_path):
    pytest.importorskip("imagecodecs", reason="no imagecodecs: pip install -e '.[peers]'")
    MODEL.save(tmp_path / "model.npz")
    shown = mpicomp("bench", "images", "digits", "--model", str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    assert "model" in shown.stdout and "bits a pixel each" in shown.stdout
    rows = mpicomp("bench", "images", "digits", "--model", str(tmp_path), "--json").stdout.splitlines()
    assert json.loads(rows[0])["codec"] == "model" and len(rows) == 10
