"""PNG files: each kind of the format is read sample for sample, or refused by its name."""

from __future__ import annotations

import base64
import hashlib
import itertools
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from mpicomp.base.errors import DataError
from mpicomp.images import read_images
from mpicomp.images.grey import load_grey
from mpicomp.images.png import read_png, write_png
from tests.support.png_files import BITS, CHANNELS, SIGNATURE, chunk, header, png

NAMES = {0: "grey", 2: "RGB", 3: "palette", 4: "grey with alpha", 6: "RGB with alpha"}
PALETTE = chunk(b"PLTE", bytes(range(256)) * 3)
# Chunks that change no sample.  A text and a profile of 4 MB each are more than Pillow agrees to read.
LARGE = zlib.compress(bytes(2**22))
BESIDE = b"".join(
    [
        chunk(b"gAMA", struct.pack(">I", 35000)),
        chunk(b"cHRM", struct.pack(">8I", *range(1, 9))),
        chunk(b"iCCP", b"name\0\0" + LARGE),
        chunk(b"sBIT", b"\5\5\5"),
        chunk(b"bKGD", bytes(6)),
        chunk(b"pHYs", struct.pack(">2IB", 3, 4, 0)),
        chunk(b"zTXt", b"Comment\0\0" + LARGE),
        chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"),  # turned by 90 degrees
        chunk(b"tIME", struct.pack(">H5B", 2026, 1, 2, 3, 4, 5)),
        chunk(b"prVt", b"private"),
    ]
)


def draw(height: int, width: int, colour: int = 0, bits: int = 8) -> np.ndarray:
    draws = np.random.default_rng(height * 100 + width)
    return draws.integers(0, 2**bits, (height, width, CHANNELS[colour]))


def transparent(colour: int, bits: int) -> bytes:
    return chunk(b"tRNS", bytes(3) if colour == 3 else struct.pack(">H", 1) * CHANNELS[colour])


def read(tmp_path, content: bytes) -> np.ndarray:
    path = tmp_path / "some.png"
    path.write_bytes(content)
    return read_png(path)


def refusal(tmp_path, content: bytes) -> str:
    """The text of the error, without the file's name, with which it starts."""
    with pytest.raises(DataError) as error:
        read(tmp_path, content)
    before, _, text = str(error.value).partition("some.png ")
    assert before == f"{tmp_path}/" and "\n" not in text
    return text


def test_each_kind_of_png_is_read_sample_for_sample_or_refused_by_name(tmp_path):
    """Colour type x bits x interlaced x transparency x other chunks x size: PngSuite's kinds, and more."""
    sizes = [(1, 1), (3, 2), (5, 9), (9, 5), (17, 16)]
    wrong = []
    for colour, interlaced, (height, width) in itertools.product(BITS, (False, True), sizes):
        for bits, with_key, beside in itertools.product(BITS[colour], (False, True), (b"", BESIDE)):
            if with_key and colour in (4, 6):
                continue  # the format has no such files
            samples = draw(height, width, colour, bits)
            before = beside + (PALETTE if colour == 3 else b"")
            before += transparent(colour, bits) if with_key else b""
            content = png(samples, colour, bits, interlaced, before)
            kind = f"is a PNG file of {bits}-bit {NAMES[colour]}"
            if with_key:
                kind += " with transparent pixels (tRNS)"
            if (colour, bits, with_key) in [(0, 8, False), (2, 8, False)]:
                found = read(tmp_path, content)
                expected = samples[..., 0] if colour == 0 else samples
                right = found.dtype == np.uint8 and np.array_equal(found, expected)
            else:
                right = refusal(tmp_path, content).startswith(kind + "; allowed: one image of 8-bit grey or ")
            if not right:
                wrong.append((colour, bits, interlaced, with_key, bool(beside), height, width))
    assert not wrong


def test_each_filter_and_each_small_interlaced_size_is_read(tmp_path):
    for filters in [(0,), (1,), (2,), (3,), (4,), (4, 3, 2, 1, 0)]:
        for colour in (0, 2):
            samples = draw(7, 6, colour)
            assert np.array_equal(
                np.atleast_3d(read(tmp_path, png(samples, colour, filters=filters))), samples
            )
    for height, width in itertools.product(range(1, 10), repeat=2):
        samples = draw(height, width)
        assert np.array_equal(read(tmp_path, png(samples, 0, interlaced=True)), samples[..., 0])


# Willem van Schaik's PngSuite, basi0g08 and basi2c08: free to use, copy, modify and distribute.
SUITE = {
    "basi0g08": (
        "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAAEhFhW+AAAABGdBTUEAAYagMeiWXwAAALVJREFUeJy1kF0KwjAQhJ26yBxC"
        "xHv4Q88lPoh4sKoXEQ8hS9ymviQPXSGllM7T5JvNMiwWJBFVFRVJmKpCSCKoKlYkoaqKiyTFj5mZmQgTCYmgSgDXbCwJ52zy"
        "GtyyCTk6ZVNXfaFxQKLFnnDsv6OI3/HwO4L7gr0H8F98sT+AuwetL9YMARw8WI7v8fTgO77HzoMtypJ66gBeQxtiV5Y0Uwew"
        "GchF5r/Du5h2nYT577AupsAPm7n/RegfnygAAAAASUVORK5CYII=",
        (32, 32),
        "3f79224ccb00156a58645afcd6521d0facbf9cdec212b03935eb25e59e9dc532",
    ),
    "basi2c08": (
        "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAGLH901AAAABGdBTUEAAYagMeiWXwAAAPJJREFUeJzVk0GqBCEMRKvAe3gT"
        "PVnTczO9iddoaLVm0Qz0Z1r4WWQxoRZifFaIkZKA4xIlfdagpM8aAQCO4xKl88acN+b8w/R+Z3agf4va9bQP7tLTPgJeL/T+"
        "LUpj4aFtkRgLc22LxFhUxW2VGGP0p+C2bc8JqQDz/6KUjUCR5TyobASKZDkPZitQSpmWYM7ZBhgrmgGovgClZASm7eGCsSI7"
        "QCXjLE3jQwRjRXaAyTqtpsmbc4Zaqy/AlJINkBogP13f4ZcNKEVngybP+6/v/NMGVPRtEZvkeT+Cc4f8DRidW8TWmjwj1Fp/"
        "24AxRleDN99NCjEh/D0zAAAAAElFTkSuQmCC",
        (32, 32, 3),
        "3ff78c7d0ac9033c81fbcc389478d7a594ef5508979e1b6a63cfd5b7f1949beb",
    ),
}


def test_files_of_pngsuite(tmp_path):
    """The sums of the samples are those of pypng's reading."""
    for name, (content, shape, sha256) in SUITE.items():
        found = read(tmp_path, base64.b64decode(content))
        assert (name, found.shape, hashlib.sha256(found.tobytes()).hexdigest()) == (name, shape, sha256)


def test_animations_are_refused(tmp_path):
    """Their default image is one frame of many, or of none."""
    animated = chunk(b"acTL", struct.pack(">2I", 2, 0))
    for before, after in ((animated, b""), (b"", animated)):
        text = refusal(tmp_path, png(draw(3, 4), 0, before=before, after=after))
        assert text.startswith("is a PNG file of 8-bit grey with the frames of an animation (acTL); allowed")
    text = refusal(tmp_path, png(draw(3, 4), 0, after=transparent(0, 8)))  # where Pillow does not look
    assert text.startswith("is a PNG file of 8-bit grey with transparent pixels (tRNS)")


def test_every_byte_counts(tmp_path):
    """A file with any byte changed, cut anywhere, or longer is refused: PngSuite's broken files, and more."""
    content = png(draw(4, 5), 0, before=chunk(b"tEXt", b"Title\0some"))
    read(tmp_path, content)
    for at in range(len(content)):
        refusal(tmp_path, content[:at])
        refusal(tmp_path, content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
    assert refusal(tmp_path, content + b"\n") == "holds 1 bytes after the image's end. Save the image anew."
    assert "holds" in refusal(tmp_path, content * 2)


def image(data: bytes, width: int = 10, height: int = 10, before: bytes = b"") -> bytes:
    return SIGNATURE + header(width, height) + before + chunk(b"IDAT", data) + chunk(b"IEND")


def test_a_second_header_is_refused(tmp_path):
    """The first one's size was taken; other programs take the last one's, or refuse."""
    rows = zlib.compress(bytes(110))
    assert read(tmp_path, image(rows)).shape == (10, 10)
    text = refusal(tmp_path, image(rows, before=header(21, 5)))
    assert text == "is damaged: it has more than one header (IHDR)."


def test_data_of_another_size_are_refused(tmp_path):
    """Pillow makes the missing rows black."""
    rows = bytes(110)
    assert not read(tmp_path, image(zlib.compress(rows))).any()
    for data in (rows[:55], rows[:-1], rows + b"\0", b""):
        assert "not those of 10 x 10 pixels" in refusal(tmp_path, image(zlib.compress(data)))
    for cut in (1, 4):  # of the sum of the data
        assert "not those of" in refusal(tmp_path, image(zlib.compress(rows)[:-cut]))
    wrong = zlib.compress(rows)
    assert "incorrect data check" in refusal(tmp_path, image(wrong[:-1] + bytes([wrong[-1] ^ 1])))
    assert "is damaged: Error" in refusal(tmp_path, image(b"no data"))
    assert "a filter that PNG does not have" in refusal(tmp_path, image(zlib.compress(b"\5" + rows[1:])))


@pytest.mark.parametrize("more", [b"\0", b"text", zlib.compress(bytes(110))], ids=["zero", "text", "twice"])
def test_bytes_after_the_data_are_refused(more, tmp_path):
    """IDAT holds one stream of zlib, by the specification; libpng warns of more, and Pillow drops it."""
    text = refusal(tmp_path, image(zlib.compress(bytes(110)) + more))
    assert text == f"holds {len(more)} bytes after its compressed pixels, in IDAT. Save the image anew."


def test_sizes_that_the_data_cannot_have_take_no_memory(tmp_path, monkeypatch):
    """No byte of deflate makes more than 1032; within that, 1 MB of rows at most for each KB."""
    inflated = []

    class Counting:
        def __init__(self):
            self.inflate = original()

        def decompress(self, data, limit):
            found = self.inflate.decompress(data, limit)
            inflated.append(len(found))
            return found

        @property
        def eof(self):
            return self.inflate.eof

    original = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    bomb = zlib.compress(bytes(2**24))
    for width, height in [(2**31 - 1, 2**31 - 1), (30000, 30000), (17000, 1000), (2**14 - 1, 1)]:
        assert f"not those of {width} x {height}" in refusal(tmp_path, image(bomb, width, height))
    assert sorted(inflated) == [2**14 + 1]
    for width, height in [(0, 3), (3, 0)]:
        assert "has a damaged header" in refusal(tmp_path, image(bomb, width, height))


def test_a_large_image_is_read_without_a_warning(tmp_path, monkeypatch):
    """Pillow takes more pixels than its limit for an attack; here they are what the data hold."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 7)
    samples = draw(9, 8)
    assert np.array_equal(read(tmp_path, png(samples, 0)), samples[..., 0])


def test_other_files_are_named_by_how_they_start(tmp_path):
    for content in (b"", b"\xff\xd8\xff\xe0", b"version https://git-lfs.github.com/spec/v1\n"):
        assert refusal(tmp_path, content) == f"is no PNG file: it starts with {content[:8]!r}."
    apple = chunk(b"CgBI", bytes(4)) + header(1, 1) + chunk(b"IDAT", b"") + chunk(b"IEND")
    assert "begins with the chunk CgBI" in refusal(tmp_path, SIGNATURE + apple)
    assert "the chunk ABCD, which changes" in refusal(tmp_path, image(b"", before=chunk(b"ABCD")))
    for at in (8, 9, 10, 11, 12):  # bits, colour type, methods, interlaced
        body = bytearray(header(2, 2)[8:-4])
        body[at] = 7
        assert refusal(tmp_path, SIGNATURE + chunk(b"IHDR", bytes(body)) + chunk(b"IEND"))
    body[12] = 2  # where 0 is not interlaced, and 1 is
    data = chunk(b"IDAT", zlib.compress(bytes(2 * 3))) + chunk(b"IEND")
    assert "has a damaged header" in refusal(tmp_path, SIGNATURE + chunk(b"IHDR", bytes(body)) + data)
    for other in (body[:12], body + b"\0"):
        text = refusal(tmp_path, SIGNATURE + chunk(b"IHDR", bytes(other)) + data)
        assert text == "is no PNG file: it begins with the chunk IHDR."


def test_one_png_file_is_data_as_well(tmp_path):
    for name, shape, images in (("grey.png", (5, 4), 1), ("colour.PNG", (5, 4, 3), 3)):
        pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
        write_png(tmp_path / name, pixels)
        (stack,) = read_images(str(tmp_path / name))
        assert stack.names == (name,) and np.array_equal(stack.pixels[0], pixels)
        assert load_grey(str(tmp_path / name)).pixels.shape == (images, 5, 4)


def test_a_pipe_or_a_device_in_a_folder_is_refused(tmp_path):
    """Reading would never end."""
    write_png(tmp_path / "a.png", np.zeros((2, 2), np.uint8))
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    assert len(load_grey(str(tmp_path)).pixels) == 2
    (tmp_path / "c.png").symlink_to("/dev/null")
    for read in (read_images, load_grey):
        with pytest.raises(DataError, match=r"c\.png is a folder, a pipe or a device"):
            read(str(tmp_path))
        with pytest.raises(DataError, match=r"c\.png is a folder, a pipe or a device"):
            read(str(tmp_path / "c.png"))
    (tmp_path / "c.png").rename(tmp_path / "c.idx")
    with pytest.raises(DataError, match=r"c\.idx is a folder, a pipe or a device"):
        load_grey(str(tmp_path / "c.idx"))
    (tmp_path / "c.png").symlink_to(300 * "a")
    with pytest.raises(DataError, match=r"cannot read .*c\.png: File name too long"):
        read_images(str(tmp_path))
