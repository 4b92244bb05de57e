"""Archives that claim too much: their cost is bounded by their size, and counted before decoding."""

from __future__ import annotations

import random
import re
from itertools import islice

import numpy as np
import pytest
from click.testing import CliRunner

from mpicomp.base.errors import DataError, MessageError
from mpicomp.images import IntegerNetwork, Stack, coder, compress, decompress
from mpicomp.lab.cli.images import images
from tests.images.test_archive import COLOUR, GREY, NETWORK, pictures, same
from tests.support.hostile_archives import archives, claimed, counted, excess, message, network, outcome

CERTAIN = network(2, 1, certain=True)
BLANK = Stack(np.zeros((1, 1, 2500), np.uint8))


def words(count: int, runs: int = 1) -> bytes:
    return message(random.Random(0), runs, count)


def test_decoding_stops_at_the_pixel_at_which_the_words_are_used_up():
    """After the last pixel of the encoder the state is its first one; no further pixel leaves it there."""
    coded = coder.encode(pictures(1, 1, 300), NETWORK)
    with counted() as work, pytest.raises(MessageError, match="words end before their pixels do"):
        coder.decode(coded, (1, 1, 900), NETWORK)
    assert work.decoded == work.fronts == 301
    with counted() as work, pytest.raises(MessageError, match="do not end as they should"):
        coder.decode(coded, (1, 1, 299), NETWORK)
    assert work.decoded == 299
    noise = np.frombuffer(words(2), np.uint8)  # at most 64 bits, so at the uniform expert at most 64 pixels
    uniform = network(2, 1)
    uniform.layers[-1].b[76] = 2**22
    with counted() as work, pytest.raises(MessageError, match="words end before their pixels do"):
        coder.decode(noise, (1, 900, 1), uniform)
    assert work.decoded <= 8


def test_the_cost_is_refused_before_anything_is_decoded():
    """An archive of 4 KB whose row of 262,144 pixels took more than a minute, and others of the kind."""
    cases = {
        "a long row": claimed(NETWORK, ((1, 1, 2**18, 1), b"", words(700))),
        "a long column": claimed(NETWORK, ((1, 2**18, 1, 1), b"", words(700))),
        "a row that is certain": claimed(CERTAIN, ((1, 1, 2**18, 1), b"", words(700))),
        "many rows": claimed(CERTAIN, ((256, 1, 2**16, 1), b"", words(700))),
        "the zeros around": claimed(network(600, 1), ((2**12, 1, 1, 1), b"", words(9, 16))),
        "many neighbours": claimed(network(300, 1, certain=True), ((9, 100, 100, 3), b"", words(900))),
        "many weights": claimed(network(2, 9000, 0, True), ((99, 300, 300, 1), b"", words(900))),
        "many layers": claimed(network(2, 1, 999, True), ((1, 1, 3000, 1), b"", words(100))),
        "many stacks": claimed(CERTAIN, *[((1, 1, 99, 1), b"", words(1))] * 900),
    }
    for name, archive in cases.items():
        with counted() as work, pytest.raises(MessageError) as error:
            decompress(archive)
        found = re.fullmatch(
            r"an archive of (\d+) bytes whose images cost as much to decode as (\d+) pixels; "
            r"allowed: (\d+)\. If you trust it, allow more by --max-pixels \2, in Python max_pixels=\2\.",
            str(error.value),
        )
        assert found, (name, error.value)
        size, cost, allowed = map(int, found.groups())
        assert size == len(archive) and allowed == min(1024 * size, 2**28) < cost
        assert (work.decoded, work.padded, work.fronts) == (0, 0, 0), name


def test_the_limit_is_the_caller_s():
    """At its cost an archive is decoded, at one less it is not; blank rows need a word from the user."""
    archive, _ = compress([BLANK], CERTAIN)
    cost = coder.cost((1, 1, 2500), CERTAIN)
    # A row of 2500 + 4 pixels with zeros around in 3 rows; 12 + 1 inputs, 12 + 79 weights; 2500 fronts.
    assert cost == 3 * 2504 + 2500 * (64 * 13 + 91) // 2**14 + 32 * 6 * 2500 + 2048
    with pytest.raises(MessageError, match=f"as {cost} pixels; allowed: {1024 * len(archive)}"):
        decompress(archive)
    with pytest.raises(MessageError, match=f"allowed: {cost - 1}"):
        decompress(archive, max_pixels=cost - 1)
    assert same(decompress(archive, max_pixels=cost)[0], BLANK)


def test_usual_archives_cost_less_than_the_limit():
    """So no user meets it with images of some size and content."""
    for pixels in (pictures(20, 28, 28), pictures(100, 8, 8), pictures(1, 60, 80), pictures(2, 30, 30, 3)):
        archive, _ = compress([Stack(pixels)], NETWORK)
        planes = pixels.shape[:3] if pixels.ndim == 3 else (3 * len(pixels), *pixels.shape[1:3])
        assert coder.cost(planes, NETWORK) <= 32 * len(archive), pixels.shape


def test_a_wide_network_is_evaluated_in_pieces(monkeypatch):
    """The bytes are the same, and no array has more entries than allowed, but for a single pixel's."""
    wide = network(12, 3, 1)
    pixels = pictures(60, 3, 4)
    coded = coder.encode(pixels, wide)
    rows, logits = [], IntegerNetwork.logits
    monkeypatch.setattr(IntegerNetwork, "logits", lambda net, a: rows.append(len(a)) or logits(net, a))
    for entries, most in ((312 * 40, 40), (1, 1)):
        rows.clear()
        monkeypatch.setattr(coder, "ENTRIES", entries)
        assert np.array_equal(coder.encode(pixels, wide), coded)
        assert np.array_equal(coder.decode(coded, pixels.shape, wide), pixels)
        assert max(rows) == most


def test_a_view_beyond_the_image_codes():
    """Fronts without a pixel are left out: with a horizon of 30 that is all but 21 of 69."""
    pixels = pictures(2, 3, 7)
    far = network(30, 1)
    with counted() as work:
        assert np.array_equal(coder.decode(coder.encode(pixels, far), pixels.shape, far), pixels)
    assert work.fronts == 2 * 21


def test_hostile_archives_stay_within_the_bounds_of_their_size():
    """40 of those that `python -m tests.support.hostile_archives` makes, and it makes any number."""
    ends, broken = [], []
    for archive in islice(archives(random.Random(1)), 40):
        end, work = outcome(archive)
        ends.append(end)
        broken += [(archive.hex(), end, excess(archive, work))] if excess(archive, work) else []
    assert not broken
    assert {"MessageError"} <= set(ends) <= {"MessageError", "DataError", "images"}


def test_names_are_looked_at_before_images_are_coded(monkeypatch):
    monkeypatch.setattr(coder, "encode", lambda *_: pytest.fail("images were coded"))
    for names, text in [
        (("a", "b\udcff.png"), r"'b\\udcff.png', which is not UTF-8"),
        (("a", "a"), "two images"),
    ]:
        with pytest.raises(DataError, match=text):
            compress([Stack(COLOUR.pixels, names)], NETWORK)
    with pytest.raises(DataError, match=r"two images named 'b\.png'"):
        compress([COLOUR, Stack(GREY.pixels[:1], ("b.png",))], NETWORK)


def test_the_command_takes_the_limit(tmp_path):
    cost = coder.cost((1, 1, 2500), CERTAIN)
    (tmp_path / "x.mpi").write_bytes(compress([BLANK], CERTAIN)[0])

    def decompressed(*options: str) -> object:
        return CliRunner().invoke(
            images, ["decompress", str(tmp_path / "x.mpi"), str(tmp_path / "back.png"), *options]
        )

    for options in ((), ("--max-pixels", str(cost - 1))):
        done = decompressed(*options)
        assert isinstance(done.exception, MessageError) and f"--max-pixels {cost}," in str(done.exception)
    assert decompressed("--max-pixels", str(cost)).output == f"{tmp_path / 'back.png'}: 1 file\n"
    assert decompressed("--max-pixels", "0").exit_code == 2
