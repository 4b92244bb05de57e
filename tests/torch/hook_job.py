"""One rank of a training with DDP and a hook; the first argument is the folder where the ranks meet.

Rank r uses the experts r and r + 1, r + 2, .. in turn; once, none uses the last two.
"""

from __future__ import annotations

import sys

import torch
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

from mpicomp import DCGD, EFSGD, ConfigError, DivergedError, DoubleSqueeze, Identity, TopK
from mpicomp.torch import Hook, hook
from tests.torch.experts import EXPERTS, SIZE, Experts, factors
from tests.torch.models import loss, network, values

torch.set_num_threads(1)
WORLD = MPI.COMM_WORLD
METHODS = EFSGD(TopK(k=0.05)), DoubleSqueeze(TopK(k=0.05), TopK(k=0.05))


def hooked(model, state, **options):
    ddp = DistributedDataParallel(model, **options)
    ddp.register_comm_hook(state, hook)
    return ddp


def total(state):
    """The residuals of all workers, their mean, and those of the servers, in parts; shape (d,)."""
    play, d = state.aggregator._play, EXPERTS * SIZE
    (worker,) = play.workers.values()
    mean = torch.from_numpy(worker.e.copy()).double() / WORLD.size
    for name, server in play.averaging.states().items():
        if hasattr(server, "e"):
            block = slice(0, d) if name == "server" else play.averaging.slices(d)[int(name.split("-")[1])]
            mean[block] += torch.from_numpy(server.e.copy()).double()
    return sum(WORLD.allgather(mean))


def nothing_is_lost(method, **options):
    """On all ranks together, after every step: applied + remembered = the mean gradients, exactly."""
    model, state = Experts(), Hook(method, **options)
    ddp = hooked(model, state, find_unused_parameters=True)
    given, applied = (torch.zeros(EXPERTS, SIZE, dtype=torch.float64) for _ in range(2))
    for k in range(12):
        ddp.zero_grad()
        used = [0, 1] if k == 7 else [(WORLD.rank + k) % EXPERTS]
        ddp(used, factors(WORLD.rank, k)).backward()
        own = torch.zeros(EXPERTS, SIZE, dtype=torch.float64)
        own[used] = factors(WORLD.rank, k).double()
        given += sum(WORLD.allgather(own)) / WORLD.size
        estimate = [p.grad for p in model.weights]
        everywhere = sorted({j for theirs in WORLD.allgather(used) for j in theirs})
        assert [j for j, g in enumerate(estimate) if g is not None] == everywhere, k
        for j in everywhere:
            assert len({g.numpy().tobytes() for g in WORLD.allgather(estimate[j])}) == 1
            applied[j] += estimate[j]
        order = [next(i for i, q in enumerate(state.parameters) if q is p) for p in model.weights]
        assert torch.equal(applied + total(state).reshape(EXPERTS, SIZE)[order], given), (method, options, k)
    state.aggregator.close()


def a_bad_gradient_of_one_rank():
    """All ranks are told, have zeros, and go on."""
    model, state = network(), Hook(METHODS[0])
    ddp = hooked(model, state)
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for k in range(4):
        sgd.zero_grad()
        bad = k == 2 and WORLD.rank == 1
        try:
            (loss(ddp, WORLD.rank, k) * (float("nan") if bad else 1.0)).backward()
        except DivergedError as error:
            assert str(error) == "worker 1: the gradient is not finite." and k == 2
            assert not any(p.grad.any() for p in model.parameters())
            continue
        assert k != 2
        sgd.step()
        assert len(set(WORLD.allgather(values(model)))) == 1


class Recorded(Hook):
    """A hook that notes how many buckets have come when a block leaves, in the present step."""

    def _aggregate(self, buckets):
        super()._aggregate(buckets)
        if not hasattr(self, "came"):
            self.came, bring = [], self.aggregator.bring
            self.aggregator.bring = lambda *one: (self.came.append(len(self._buckets)), bring(*one))


def blocks_leave_before_the_last_bucket(folder):
    """The same parameters and bytes as without overlap; saved and loaded; an error is told to all."""
    options = {"server": "sharded", "blocks": 4}
    small = {"bucket_cap_mb": 0.0001}

    def trained(hooks, steps, model, begin=0):
        ddp = hooked(model, hooks, **small)
        sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for k in range(begin, steps):
            sgd.zero_grad()
            (loss(ddp, WORLD.rank, k) * (float("nan") if k == 9 and WORLD.rank == 1 else 1.0)).backward()
            sgd.step()
        return values(model)

    for number, method in enumerate(METHODS):
        plain, state = Hook(method, **options), Recorded(method, overlap=True, **options)
        expected = trained(plain, 6, network())
        assert trained(state, 6, network()) == expected
        plain.aggregator.settle(), state.aggregator.settle()
        assert plain.aggregator.ledger.up_bytes == state.aggregator.ledger.up_bytes
        last = max(state.came, default=0)  # buckets in a step
        assert last > 1 and min(state.came) < last and len(state.came) == 4 * 5
        model = network()
        half = Hook(method, overlap=True, **options)
        trained(half, 3, model)
        half.save(f"{folder}-{number}")
        went_on = Hook(method, overlap=True, **options)
        went_on.load(f"{folder}-{number}")
        assert trained(went_on, 6, model, 3) == expected
        try:
            trained(went_on, 12, model, 9)
        except DivergedError:
            assert not any(p.grad.any() for p in model.parameters())
        else:
            raise AssertionError("a bad gradient is taken")
        assert len(set(WORLD.allgather(values(model)))) == 1
        try:
            trained(went_on, 11, network(), 10)
        except ConfigError as error:
            assert "DDP gives it others" in str(error)
        else:
            raise AssertionError("other parameters are taken")


def a_part_of_the_ranks():
    """A group of two of the three: the hook has all ranks, unless it is given the group's communicator."""
    group = torch.distributed.new_group([0, 1])
    comm = WORLD.Split(0 if WORLD.rank < 2 else 1)
    if WORLD.rank < 2:
        model = network()
        ddp = hooked(model, Hook(DCGD(Identity()), comm=comm), process_group=group)
        plain = DistributedDataParallel(network(), process_group=group)
        for one in (ddp, plain):
            loss(one, WORLD.rank, 0).backward()
        pairs = zip(ddp.parameters(), plain.parameters(), strict=True)
        assert all(torch.allclose(p.grad, q.grad, atol=1e-6) for p, q in pairs)
    WORLD.Barrier()


def alone_in_a_group():
    """All ranks, each in a group of its own: refused on all."""
    groups = [torch.distributed.new_group([r]) for r in range(WORLD.size)]
    ddp = hooked(network(), Hook(DCGD(Identity())), process_group=groups[WORLD.rank])
    try:
        loss(ddp, WORLD.rank, 0).backward()
    except ConfigError as error:
        assert f"DDP's process group has 1 processes, and the hook {WORLD.size} ranks" in str(error)
    else:
        raise AssertionError("it is taken")


if __name__ == "__main__":
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{sys.argv[1]}/meet", rank=WORLD.rank, world_size=WORLD.size
    )
    for method in METHODS:
        nothing_is_lost(method)
        nothing_is_lost(method, server="sharded", blocks=4)
    a_bad_gradient_of_one_rank()
    blocks_leave_before_the_last_bucket(f"{sys.argv[1]}/state")
    a_part_of_the_ranks()
    alone_in_a_group()
    torch.distributed.destroy_process_group()
    if WORLD.rank == 0:
        print("all well")
