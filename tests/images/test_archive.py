"""Archives: the images come back, the bytes are near the entropy and fixed, and damage is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from contextlib import suppress
from hashlib import blake2b, sha256

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError, DataError, MessageError
from mpicomp.codecs.varint import varint
from mpicomp.images import ImageModel, IntegerNetwork, Stack, coder, compress, decompress
from mpicomp.images.archive import MAGIC, SUM
from mpicomp.images.colour import from_planes, to_planes
from mpicomp.images.local_images import LocalImages
from mpicomp.images.network import Layer
from mpicomp.kernels.definition.mixtures import SLOTS


def integers(rows: int, columns: int, largest: int, a: int) -> np.ndarray:
    """Some integers up to +-largest, by arithmetic."""
    i, j = np.ogrid[:rows, :columns]
    return ((a * i * i + 13 * i * j + 31 * j + a) % (2 * largest + 1) - largest).astype(np.float32)


def by_arithmetic(hidden: int = 6) -> IntegerNetwork:
    """A network that depends on no generator and no rounding."""
    sizes, shifts = [24, hidden, hidden, hidden, 79], [6, 8, 8, 5]
    layers = [
        Layer(integers(rows, columns, 200, k + 3), integers(rows, 1, 90, k + 5)[:, 0], shift)
        for k, (columns, rows, shift) in enumerate(zip(sizes, sizes[1:], shifts, strict=False))
    ]
    return IntegerNetwork(3, tuple(layers))


def pictures(m: int, height: int, width: int, colours: int = 0) -> np.ndarray:
    """Smooth images with some noise, by arithmetic; (m, height, width), and a last axis of ``colours``."""
    i, r, c, k = np.ogrid[:m, :height, :width, : max(colours, 1)]
    smooth = (r - 5) ** 2 + (c + 2 * i - 4) ** 2 + 40 * k + 3 * r * c
    noise = (7919 * i + 104729 * r * r + 1299709 * c + 15485863 * r * c * (k + 1)) % 11
    found = np.clip(smooth + noise - 20, 0, 255).astype(np.uint8)
    return found if colours else found[..., 0]


NETWORK = by_arithmetic()
GREY = Stack(pictures(3, 5, 7))
COLOUR = Stack(pictures(2, 6, 4, 3), ("b.png", "a.png"))
ARCHIVE = compress([GREY, COLOUR], NETWORK)[0]

SHAPES = [(1, 1, 1), (1, 1, 9), (1, 9, 1), (2, 2, 2), (5, 4, 3), (1, 40, 50), (257, 3, 4), (700, 8, 9)]


def same(ours: Stack, theirs: Stack) -> bool:
    return ours.names == theirs.names and np.array_equal(ours.pixels, theirs.pixels)


# Coding


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("of", [pictures, lambda *s: np.random.default_rng(0).integers(0, 256, s, np.uint8)])
def test_images_come_back(shape, of):
    pixels = of(*shape)
    message = coder.encode(pixels, NETWORK)
    assert np.array_equal(coder.decode(message, shape, NETWORK), pixels)


@pytest.mark.parametrize("horizon", [2, 3, 4, 6])
@pytest.mark.parametrize("blocks", [0, 2])
def test_any_local_model_codes(horizon, blocks):
    problem = LocalImages(GREY.pixels, horizon=horizon, hidden=5, blocks=blocks)
    network = ImageModel.of(problem, problem.x0()).integers()
    assert same(decompress(compress([GREY], network)[0])[0], GREY)


def test_a_front_sees_no_pixel_of_its_own_or_of_later_ones():
    """What is in the place of those does not matter: the images come back from zeros, and so from noise."""
    for front in coder.Canvas((2, 9, 8), 3).fronts():
        seen = front.at[:, None] + coder.Canvas((2, 9, 8), 3).seen
        assert not set(seen.ravel()) & set(front.at)
    orders = [f.at.tolist() for f in coder.Canvas((1, 9, 8), 3).fronts()]
    assert len({p for at in orders for p in at}) == sum(map(len, orders)) == 72


def test_coded_images_take_their_entropy():
    """-log2 of the likelihood of the network that was rounded: within 0.2 %, and 16 bytes a run."""
    pixels = pictures(520, 12, 12)
    problem = LocalImages(pixels, hidden=8)
    x = problem.x0() + 0.1 * np.random.default_rng(0).normal(size=problem.dimension()).astype(np.float32)
    entropy = -problem.log_likelihoods(x).sum() / np.log(2)
    coded = 8 * coder.encode(pixels, IntegerNetwork.of(problem, x)).size
    assert 0.998 * entropy <= coded <= 1.002 * entropy + 3 * 8 * 16


def test_a_pixel_that_no_expert_expects_costs_at_most_22_bits():
    pixels = np.random.default_rng(1).integers(0, 256, (4, 20, 20), np.uint8)
    certain = by_arithmetic()
    certain.layers[-1].b[:] = 0
    certain.layers[-1].b[77] = 2**22  # all weight on the point mass at 0
    assert coder.encode(pixels, certain).size <= np.log2(SLOTS) * pixels.size / 8 + 12
    assert np.array_equal(coder.decode(coder.encode(pixels, certain), pixels.shape, certain), pixels)


def test_the_bytes_do_not_depend_on_threads_or_on_how_products_are_summed(monkeypatch):
    pixels = pictures(1500, 6, 5)
    message = coder.encode(pixels, NETWORK)
    code = f"""
import numpy as np
from tests.images.test_archive import NETWORK, pictures
from mpicomp.images import coder
pixels = pictures(1500, 6, 5)
message = coder.encode(pixels, NETWORK)
assert np.array_equal(coder.decode(message, pixels.shape, NETWORK), pixels)
assert message.size == {message.size}
import hashlib
print(hashlib.sha256(message.tobytes()).hexdigest())
"""
    ways = [
        {"MPICOMP_NUM_THREADS": "3"},
        {"OPENBLAS_CORETYPE": "Prescott"},  # kernels of a processor without AVX
        {"NPY_DISABLE_CPU_FEATURES": "AVX512_SKX AVX2 FMA3", "OPENBLAS_CORETYPE": "Nehalem"},
    ]
    for way in ways:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], env=os.environ | way, capture_output=True, text=True
        )
        assert done.stdout.strip() == sha256(message.tobytes()).hexdigest(), done.stderr
    products = Layer.__call__

    def backwards(layer: Layer, a: np.ndarray) -> np.ndarray:
        """The inputs in the opposite order, in double precision."""
        return products(Layer(layer.W[:, ::-1].astype(float), layer.b.astype(float), layer.shift), a[:, ::-1])

    monkeypatch.setattr(Layer, "__call__", backwards)
    assert np.array_equal(coder.encode(pixels, NETWORK), message)


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_bytes_do_not_depend_on_how_many_runs_are_coded_together(monkeypatch, at_once):
    pixels = pictures(513, 2, 2)
    together = coder.encode(pixels, NETWORK)
    monkeypatch.setattr(coder, "FRONT", 1)  # each of the three runs is a batch
    monkeypatch.setattr(coder, "threads", lambda: at_once)
    assert np.array_equal(coder.encode(pixels, NETWORK), together)
    assert np.array_equal(coder.decode(together, pixels.shape, NETWORK), pixels)


def test_numpys_kernels_write_the_same_archive(monkeypatch):
    from mpicomp import kernels
    from mpicomp.kernels import definition

    long = Stack(pictures(60, 16, 18))  # long enough for the compiled kernels
    theirs = compress([long], NETWORK)[0]
    monkeypatch.setattr(kernels, "pieces_on_host", lambda length: definition)
    assert compress([long], NETWORK)[0] == theirs
    assert same(decompress(theirs)[0], long)


# The archive


def test_an_archive_is_the_stacks_it_was_made_of():
    assert all(map(same, decompress(ARCHIVE), [GREY, COLOUR]))
    content, sizes = compress([COLOUR], NETWORK)
    assert sizes.model == len(NETWORK.encoded())
    assert sizes.model + sizes.images + sizes.rest == len(content)
    assert all(map(same, decompress(content), [COLOUR]))


def test_golden_bytes():
    assert ARCHIVE.startswith(b"mpicomp images 1\n")
    assert len(ARCHIVE) == 1215
    assert sha256(ARCHIVE).hexdigest() == "06797c2994510c0f73ab0e04505fb346c5c23fd112944f7b6c4231928ae4d0a9"


def test_planes_are_reversible():
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (3, 4, 5, 3), np.uint8)
    assert np.array_equal(from_planes(to_planes(pixels)), pixels)
    grey = np.repeat(pixels[..., :1], 3, axis=3)
    assert (to_planes(grey)[3:] == 128).all()  # no difference between the colours


def test_an_archive_with_a_byte_changed_is_refused(subtests):
    for at in range(0, len(ARCHIVE), 7):
        wrong = bytearray(ARCHIVE)
        wrong[at] ^= 1 + at % 255
        with subtests.test(at=at), pytest.raises(MessageError):
            decompress(bytes(wrong))


def test_an_archive_cut_or_added_to_is_refused():
    for cut in range(0, len(ARCHIVE), 5):
        with pytest.raises(MessageError):
            decompress(ARCHIVE[:cut])
    with pytest.raises(MessageError):
        decompress(ARCHIVE + b"\0")
    with pytest.raises(MessageError, match="starts with"):
        decompress(b"")


def sealed(content: bytes) -> bytes:
    """An archive whose last sum is right, whatever is in it."""
    return content + blake2b(content, digest_size=SUM).digest()


@pytest.mark.parametrize("first", range(4))
def test_a_damaged_archive_with_a_right_sum_gives_no_other_images(first, subtests):
    for at in range(len(MAGIC) + 3 * first, len(ARCHIVE) - 2 * SUM, 12):
        wrong = bytearray(ARCHIVE[:-SUM])
        wrong[at] ^= 1 + at % 255
        with subtests.test(at=at), suppress(MessageError, DataError):
            found = decompress(sealed(bytes(wrong)))
            assert all(map(same, found, [GREY, COLOUR]))  # a weight that mattered nowhere


def test_other_images_with_a_right_sum_of_all_bytes_are_refused():
    wrong = bytearray(ARCHIVE[:-SUM])
    wrong[-1] ^= 1  # of the sum of the images
    with pytest.raises(MessageError, match="whose images are not those that were compressed"):
        decompress(sealed(bytes(wrong)))


def test_names_that_cannot_be_read_or_are_not_one_for_each_image_are_refused():
    def with_names(packed: bytes) -> bytes:
        right = zlib.compress(b"b.png\0a.png\0", 9)
        before, after = ARCHIVE[:-SUM].split(varint(len(right)) + right)
        return sealed(before + varint(len(packed)) + packed + after)

    names = zlib.compress(b"b.png\0a.png\0")
    assert same(decompress(with_names(names))[1], COLOUR)
    for packed in (names[:-1], names + b"x", *map(zlib.compress, (b"b.png\0", b"b.png\0a.png", b""))):
        with pytest.raises(MessageError, match="without a name for each of 2 images"):
            decompress(with_names(packed))
    for packed in (b"nothing", zlib.compress(b"\xff\0a.png\0")):
        with pytest.raises(MessageError, match="whose names cannot be read"):
            decompress(with_names(packed))


def test_an_archive_that_announces_too_much_is_refused_before_memory_is_taken():
    model = NETWORK.encoded()
    head = MAGIC + varint(len(model)) + model + varint(1)
    for shape in [(2**40, 2**10, 2**10, 1), (2**62, 2**62, 2**62, 3), (1, 1, 1, 2), (0, 5, 5, 1)]:
        content = head + b"".join(map(varint, shape)) + varint(0) + varint(8) + bytes(8) + bytes(SUM)
        with pytest.raises(MessageError, match="pixels and"):
            decompress(sealed(content))
    with pytest.raises(MessageError):
        decompress(sealed(MAGIC + varint(2**50) + bytes(40)))


def test_names_are_those_of_files_in_one_folder():
    for names in [
        ("../a", "b"),
        ("a/b", "c"),
        ("", "b"),
        ("..", "b"),
        ("a\0", "b"),
        ("a", "a"),
        ("é" * 128, "b"),
    ]:
        with pytest.raises(DataError, match="allowed"):
            compress([Stack(COLOUR.pixels, names)], NETWORK)
    with pytest.raises(DataError, match="2 images"):
        compress([Stack(COLOUR.pixels, ("a",))], NETWORK)
    long = Stack(COLOUR.pixels, ("é" * 127, "ß"))
    assert same(decompress(compress([long], NETWORK)[0])[0], long)


def test_what_is_no_stack_is_refused():
    for wrong in (
        GREY.pixels[0],
        GREY.pixels.astype(float),
        GREY.pixels[:0],
        np.zeros((2, 3, 4, 2), np.uint8),
    ):
        with pytest.raises(DataError, match="allowed: uint8"):
            compress([Stack(wrong)], NETWORK)


def test_what_is_no_archive_no_stack_and_no_limit_is_named():
    assert same(decompress(memoryview(ARCHIVE))[0], GREY)
    for asked, said in (
        (lambda: decompress("images.mpi"), r"archive is of type str; allowed: bytes.*read_bytes"),
        (lambda: decompress(ARCHIVE, max_pixels=float("nan")), "max_pixels=nan; allowed: an integer"),
        (lambda: compress(GREY, NETWORK), r"no list of stacks; allowed: such as \[Stack\(pixels\)\]"),
        (lambda: compress([GREY.pixels], NETWORK), "no list of stacks"),
    ):
        with pytest.raises(ConfigError, match=said):
            asked()
    with pytest.raises(DataError, match="pixels is of type list; allowed: an array"):
        Stack(GREY.pixels.tolist())


def test_a_masked_stack_is_refused():
    """Its mask would be gone after ``decompress``, and the masked values back."""
    with pytest.raises(DataError, match="pixels has a mask"):
        Stack(np.ma.masked_equal(GREY, 7))
