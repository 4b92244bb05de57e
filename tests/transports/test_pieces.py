"""Messages in pieces: the pieces are the message, and the tag of any of them says how many there are."""

from __future__ import annotations

import numpy as np
import pytest

from mpicomp.transports import pieces


@pytest.mark.parametrize("length", [1, 7, 60_000])
@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 14, 57_336, 57_337, 57_338, 10**6])
def test_pieces_are_the_message_and_say_how_many_they_are(size, length):
    message = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    for tag in range(pieces.TAGS):
        parts, tags = zip(*pieces.cut(message, tag, length), strict=True)
        assert np.concatenate(parts).tobytes() == message.tobytes()
        assert {pieces.read(t) for t in tags} == {(tag, len(parts))}
        assert max(tags) <= 32767  # MPI's own least upper bound of tags
        assert {len(part) for part in parts[:-1]} <= {len(parts[0])} and len(parts[-1]) <= len(parts[0])
        assert len(parts[-1]) > 0 or size == 0
        if size <= pieces.MOST * length:
            assert len(parts[0]) <= length and len(parts) == max(1, -(-size // length))


def test_a_piece_is_a_view():
    message = np.arange(100, dtype=np.uint8)
    assert all(np.shares_memory(part, message) for part, _ in pieces.cut(message, 1, 30))
