"""The gloo group on which all transports over process groups of the same ranks meet."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed as dist

from mpicomp.torch.gloo import Gloo, Gone
from mpicomp.torch.group_arrivals import Channel
from mpicomp.transports.meeting import Features, Meeting, begin

_TOLD, _LOST = 0, 1  # statuses of rank 0's answer


class GroupMeeting(Meeting):
    """The meeting of the ranks of ``group``; collective.

    Each rank sends its number to rank 0, which answers all.  So a rank that is gone is named to all ranks.
    """

    def __init__(self, group: dist.ProcessGroup, timeout: timedelta) -> None:
        super().__init__()
        self.gloo = Gloo(group, timeout)
        self.world = dist.group.WORLD
        self._numbers, self._answers = Channel(self.gloo, 0), Channel(self.gloo, 2)

    def tell_all(self, number: int) -> list[int]:
        if self.gloo.lost:
            raise Gone(self.gloo.lost)
        return super().tell_all(number)

    def _allgather(self, number: int) -> list[int]:
        own = np.array([number], np.uint64)
        if self.gloo.rank:
            # Kept, for gloo may still read there if this is interrupted.
            self._sent = self._numbers.send(own.view(np.uint8), _TOLD, 0)
            answer, status = self._answers.receive(0)
            if status == _LOST:
                self.gloo.lost = answer.tobytes().decode()
                raise Gone(self.gloo.lost)
            return answer.view(np.uint64).tolist()
        told = [own]
        try:
            for rank in range(1, self.gloo.ranks):
                told.append(self._numbers.receive(rank)[0].view(np.uint64))
        except Gone as gone:
            for sent in self._answer(np.frombuffer(str(gone).encode(), np.uint8), _LOST):
                with suppress(Gone):
                    self.gloo.wait(sent)
            raise
        for sent in self._answer(np.concatenate(told).view(np.uint8), _TOLD):
            self.gloo.wait(sent)
        return np.concatenate(told).tolist()

    def _answer(self, answer: Any, status: int) -> list[Any]:
        return [self._answers.send(answer, status, rank) for rank in range(1, self.gloo.ranks)]


_MEETINGS: dict[tuple[int, ...], GroupMeeting] = {}  # by the ranks of the program, in their order


def meeting_of(group: dist.ProcessGroup, timeout: timedelta) -> GroupMeeting:
    """The meeting of the ranks of ``group``, made once and kept as long as the program; collective.

    Raises ``MpicompError`` on all ranks if they share one already and a rank makes another call meanwhile.
    """
    ranks = tuple(dist.get_process_group_ranks(group))
    found = _MEETINGS.get(ranks)
    if found is not None and found.world is dist.group.WORLD:  # else torch.distributed was initialised anew
        found.gloo.limit(timeout)
        begin(found.tell_all, found.names, Features())  # a process group has none of them
        return found
    _MEETINGS[ranks] = GroupMeeting(group, timeout)
    return _MEETINGS[ranks]
