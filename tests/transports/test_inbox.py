"""The pool of buffers that messages arrive in: two messages in use share no memory, which is used again."""

from __future__ import annotations

import numpy as np

from mpicomp.transports.inbox import Inbox


def test_the_shortest_buffer_that_is_long_enough_is_used_again():
    inbox = Inbox()
    long, short = inbox.take(800, None), inbox.take(80, None)
    assert (long.size, short.size) == (900, 90) and long.dtype == np.uint8  # an eighth more
    for buffer in (long, short):
        inbox.give_back(buffer, None)
    assert inbox.take(90, None) is short
    assert inbox.take(90, None) is long
    assert not any(np.shares_memory(inbox.take(1, None), used) for used in (long, short))


def test_the_eight_longest_are_kept():
    inbox = Inbox()
    for buffer in [inbox.take(8 * size, None) for size in range(1, 11)]:
        inbox.give_back(buffer, None)
    assert [inbox.take(1, None).size for _ in range(9)] == [9 * size for size in range(3, 11)] + [1]


def test_a_renewed_message_takes_the_place_of_the_last_and_of_no_other():
    inbox = Inbox()
    first, other = inbox.renew(80, None), inbox.take(80, None)
    again = inbox.renew(85, None)
    assert (first.size, again.size) == (80, 85)
    assert np.shares_memory(first, again) and not np.shares_memory(again, other)
    assert not np.shares_memory(again, inbox.take(1, None))
