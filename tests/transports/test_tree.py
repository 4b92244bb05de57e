"""The tree of a broadcast: it reaches each rank once, in few steps; trees of several roots share the work."""

from __future__ import annotations

import pytest

from mpicomp.transports.tree import children, depth, parent, pays, sends, steps

RANKS = [1, 2, 3, 5, 8, 13, 64, 100]


@pytest.mark.parametrize("ranks", RANKS)
def test_each_rank_gets_the_message_once_and_from_its_parent(ranks):
    for root in {0, ranks // 3, ranks - 1}:
        arcs = [(rank, child) for rank in range(ranks) for child in children(rank, root, ranks)]
        assert sorted(child for _, child in arcs) == [rank for rank in range(ranks) if rank != root]
        assert all(parent(child, root, ranks) == rank for rank, child in arcs)
        steps = {rank: depth(rank, root, ranks) for rank in range(ranks)}
        assert steps[root] == 0 and all(steps[child] == steps[rank] + 1 for rank, child in arcs)


@pytest.mark.parametrize("ranks", RANKS)
def test_the_ranks_that_have_it_double_with_each_step(ranks):
    """A rank sends one message a step, from the step after the one in which it got the message."""
    has, steps = {0: 0}, 0
    while len(has) < ranks:
        steps += 1
        for rank, since in list(has.items()):
            has |= dict.fromkeys(children(rank, 0, ranks)[steps - since - 1 : steps - since], steps)
        assert len(has) == min(ranks, 2**steps)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("blocks", [1, 3, 7, 32])
def test_trees_of_evenly_spaced_roots_share_the_work(ranks, blocks):
    """A rank sends at most as many messages as there are roots, and log2 of the ranks more."""
    blocks = min(blocks, ranks)
    roots = [b * ranks // blocks for b in range(blocks)]
    assert (blocks * (ranks - 1)) / ranks <= sends(roots, ranks) <= blocks + ranks.bit_length()


def test_where_each_rank_is_a_root_messages_go_directly():
    for ranks in RANKS[1:]:
        assert not pays(list(range(ranks)), ranks) and not pays([0, *range(ranks)], ranks)


def test_trees_pay_with_many_ranks_and_few_roots():
    """Six messages of the busiest rank and five steps before, in place of 63 messages."""
    assert sends([0, 32], 64) == 6 and steps(64) == 6 and pays([0, 32], 64)
    assert sends([0, 8], 16) == 4 and not pays([0, 8], 16)  # 4 + 3 messages in place of 15
