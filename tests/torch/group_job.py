"""One rank of a job that torchrun, mpirun or nobody has started; the arguments say what it does.

An argument is a function's name, or "name=argument,argument".  Rank 0 prints what they return, as JSON.
Under torchrun, and in ``endings``, mpi4py is blocked: nothing here may need it.
"""

# ruff: noqa: E402

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import warnings
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

WITHOUT_MPI = "TORCHELASTIC_RUN_ID" in os.environ or "endings" in sys.argv[-1]
if WITHOUT_MPI:
    sys.modules["mpi4py"] = None

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

import mpicomp
from mpicomp import (
    DCGD,
    EF21SGDM,
    EFSGD,
    MARINA,
    MARINAP,
    Aggregator,
    Descent,
    DoubleSqueeze,
    Identity,
    MpicompError,
    PermK,
    PowerSGD,
    Quadratics,
    RandK,
    TopK,
)
from mpicomp.torch import Compressed, Hook, gloo, hook, load, save
from mpicomp.transports import connect
from mpicomp.transports.launcher import launched_rank, launched_ranks
from tests.torch.loops import train
from tests.torch.models import loss, network, values

torch.set_num_threads(1)
warnings.filterwarnings("error", message="The given NumPy array is not writable")
WORKERS, D = 4, 30
RANKS = int(os.environ.get("WORLD_SIZE", 1)) if WITHOUT_MPI else launched_ranks() or 1
RANK = launched_rank()
METHODS = {
    "EFSGD": EFSGD(TopK(k=3)),
    "EF21SGDM": EF21SGDM(TopK(k=3), eta=0.3),
    "MARINA": MARINA(PermK(), p=0.3),
    "PowerSGD": PowerSGD(2, rows=5),
    "DoubleSqueeze": DoubleSqueeze(TopK(k=3), TopK(k=5)),
}
PLACES = {
    "shared": {},
    "dedicated": {"server": "dedicated"},
    "sharded": {"server": "sharded", "blocks": 3},
    "one block": {"server": "sharded", "blocks": 1},
}


def gradient(i):
    """The gradient of worker i's quadratic, a function."""
    draw = np.random.default_rng(i)
    b, scale = draw.normal(size=D), draw.uniform(0.5, 2, size=D)
    return lambda x: scale * (x - b)


def trajectory(method, workers=WORKERS, **options):
    """The hash of five iterates, the ledger of rank 0, and what each rank has sent."""
    if RANKS == 1 and options.get("server") == "dedicated":
        options = {}  # the same iterates and bytes, with nobody else to serve
    x, digest = np.zeros(D), sha256()
    agg = Aggregator(method, like=x, workers=workers, seed=3, **options)
    functions = {i: gradient(i) for i in agg.hosted}
    for _ in range(5):
        x = x - 0.05 * agg(functions, at=x)
        digest.update(x.tobytes())
    agg.settle()
    ledger, told = agg.ledger, agg.transport.collect((digest.hexdigest(), agg.transport.sent))
    agg.close()
    if told is not None:
        (one,) = {theirs for theirs, _ in told}
        own = [one, ledger.up.tolist(), ledger.down.tolist(), ledger.paper_bits_up]
        return {"of all": own, "sent": [sent for _, sent in told]}


def summed():
    """Allreduce of dyadic numbers, whose sums are exact in any order."""
    agg = Aggregator(DCGD(Identity()), like=np.zeros(D), workers=WORKERS, server="allreduce")
    for k in range(3):
        found = agg({i: np.arange(D) / 8 + i + k for i in agg.hosted})
        assert found.tolist() == (np.arange(D) / 8 + 1.5 + k).tolist()
    up = agg.ledger.up.tolist()
    agg.close()
    return {"of all": up, "sent": None}


def bits():
    """What is the same, bit for bit, on any number of ranks that anybody has started."""
    told = {
        f"{name}, {place}": trajectory(method, **options)
        for name, method in METHODS.items()
        for place, options in PLACES.items()
        if "shard" not in place or name != "PowerSGD"
    }
    # Ranks without a worker, which may serve a block or not.
    told |= {f"two, {place}": trajectory(METHODS["EFSGD"], 2, **o) for place, o in PLACES.items()}
    told["allreduce"] = summed()
    run = mpicomp.run(MARINA(RandK(k=3), gamma=0.01), Quadratics(d=D), workers=WORKERS, rounds=5)
    told["run"] = {"of all": [run.iterates_sha256, run.ledger.up.tolist()], "sent": None}
    run = mpicomp.run(MARINAP(PermK(), gamma=0.01, p=0.3), Quadratics(d=D), workers=WORKERS, rounds=20)
    own = [run.iterates_sha256, run.ledger.down.tolist(), run.ledger.own.tolist()]
    told["own messages"] = {"of all": own, "sent": run.sent if RANKS > 1 else None}
    told["Compressed"] = {"of all": fixed_workers(), "sent": None}
    return told


def in_pieces():
    """Messages in pieces of at most 7 bytes, in both directions; what ``bits`` tells of two places."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gloo, "_CHUNK", 7)
        names = ["EFSGD, shared", "DoubleSqueeze, sharded"]
        pairs = (name.split(", ") for name in names)
        found = [trajectory(METHODS[method], **PLACES[place]) for method, place in pairs]
    return dict(zip(names, found, strict=True))


def digest_of(model):
    return sha256(values(model)).hexdigest()


def fixed_workers():
    """A network with buffers, four workers; rank 0's start counts."""
    model = network(normed=True, seed=1 + RANK)
    opt = Compressed(
        torch.optim.AdamW(model.parameters(), lr=1e-2), METHODS["EFSGD"], module=model, workers=4
    )
    train(opt, model, range(4))
    opt.check()
    up = opt.ledger.up.tolist()
    opt.aggregator.close()
    return [digest_of(model), up]


def local_steps(folder=None):
    """Four local steps, from what is in ``folder`` where it is given."""
    model = network(normed=True, seed=1 + RANK)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    opt = Compressed(sgd, METHODS["EF21SGDM"], module=model, sync_every=2)
    if folder is not None:
        load(folder, opt, model)
    for k in range(4):
        opt.zero_grad()
        loss(model, RANK, k).backward()
        opt.step()
    return opt, model


def delayed():
    """Local steps whose messages travel in a thread, in two fragments."""
    model = network(seed=5)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"sync_every": 4, "delay": 1, "keep": "delay", "ahead": 0.5, "fragments": 2}
    opt = Compressed(sgd, METHODS["EFSGD"], module=model, **options)
    for k in range(8):
        opt.zero_grad()
        loss(model, RANK, k).backward()
        opt.step()
    with opt.common():
        return digest_of(model)


def hooked():
    """The hook of DDP over gloo, and the hash of the parameters."""
    model = network(seed=5)
    ddp, state = DistributedDataParallel(model, bucket_cap_mb=0.0002), Hook(METHODS["EF21SGDM"])
    ddp.register_comm_hook(state, hook)
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for k in range(4):
        sgd.zero_grad()
        loss(ddp, RANK, k).backward()
        sgd.step()
    return [digest_of(model), state.aggregator.ledger.up.tolist(), type(state.aggregator.transport).__name__]


def around():
    """What each rank is warned of if DDP is put around the model once ``Compressed`` has been made."""
    found = []
    for options in ({}, {"gradient_as_bucket_view": True}):
        model = network()
        opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), EFSGD(TopK(k=0.2)), module=model)
        ddp = DistributedDataParallel(model, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for k in range(3):
                opt.zero_grad()
                loss(ddp, RANK, k).backward()
                opt.step()
        found.append([(str(one.message), one.filename == __file__) for one in caught])
        opt.aggregator.close()
    everybody = [None] * RANKS
    dist.all_gather_object(everybody, found)
    return everybody


def of_each_rank(folder, here, other):
    """What depends on the number of ranks.  It saves a state, and goes on from the other launcher's."""
    if not dist.is_initialized():  # for DDP alone
        meet = f"file://{folder}/meet-{here}"
        dist.init_process_group("gloo", init_method=meet, rank=RANK, world_size=RANKS)
    opt, model = local_steps()
    told = {"local steps": [digest_of(model), opt.ledger.up.tolist()]}
    save(f"{folder}/{here}", opt, model)
    told["delayed"] = delayed()
    told["hook"] = hooked()
    if Path(f"{folder}/{other}").exists():
        told["resumed"] = digest_of(local_steps(f"{folder}/{other}")[1])
    return told


def said(call):
    """The error that ``call`` raises on this rank."""
    try:
        call()
    except MpicompError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing is raised")


def refusals():
    """Errors of one rank, calls that differ, and options that need MPI: what each rank is told."""
    x = np.zeros(D)
    told = {}
    for name, options in {
        "verify_bytes": {"verify_bytes": True},
        "cuda_aware": {"cuda_aware": "yes"},
        "seeds": {"seed": RANK},
        "shape": {"like": np.zeros(D + RANK)},
    }.items():
        told[name] = said(lambda o=options: Aggregator(METHODS["EFSGD"], **({"like": x} | o)))
    one, two = (Aggregator(METHODS["EFSGD"], like=x, server=s) for s in ("shared", "sharded"))
    told["numbers"] = [agg._agreement.number for agg in (one, two)]
    bad = np.full(D, np.nan if RANK == 1 else 1.0)
    for agg in (one, two):
        told[f"not finite {agg is one}"] = said(lambda agg=agg: agg(bad))
        told[f"no array {agg is one}"] = said(lambda agg=agg: agg("x" if RANK == 1 else x))
        agg(x)
    told["other order"] = said(lambda: (one, two)[RANK % 2](x))
    told["other calls"] = said(lambda: one.settle() if RANK else one(x))
    told["begins"] = said(lambda: Descent(DCGD(Identity(), gamma=1.0), x) if RANK else one(x))
    one(x), two(x)  # all go on
    everybody = [None] * RANKS
    dist.all_gather_object(everybody, told)
    one.close()
    dist.destroy_process_group()  # before ``two`` is closed, at the end
    return everybody


def groups():
    """On four ranks: groups of two, of which some ranks have more than others; and DDP's own group."""
    pairs = [dist.new_group(pair) for pair in ([0, 3], [1, 2])]
    if RANK in (0, 1):
        dist.new_group([0, 1], use_local_synchronization=True)
    own = pairs[RANK in (1, 2)]
    number = [0, 3].index(RANK) if RANK in (0, 3) else [1, 2].index(RANK)
    agg = Aggregator(DCGD(Identity("f8")), like=np.zeros(2), comm=own)
    assert (agg.transport.rank, agg.transport.ranks) == (number, 2)
    (found, _) = agg(np.array([float(RANK), 0.0]))
    assert found == 1.5, f"rank {RANK} of the group {dist.get_process_group_ranks(own)}: {found}"
    agg.close()
    other = said(lambda: Aggregator(METHODS["EFSGD"], like=np.zeros(2), comm=pairs[RANK not in (1, 2)]))
    models = [network(seed=7) for _ in range(2)]
    ddps = [DistributedDataParallel(model, process_group=own) for model in models]
    ddps[0].register_comm_hook(Hook(DCGD(Identity("f8"))), hook)
    for ddp in ddps:
        loss(ddp, RANK, 0).backward()
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        assert torch.allclose(p.grad, q.grad, atol=1e-6)
    alone = dist.new_group([RANK], use_local_synchronization=True)
    single = Compressed(torch.optim.SGD(models[0].parameters(), lr=0.1), METHODS["EFSGD"], group=alone)
    assert single.aggregator.transport.ranks == 1
    hooked_by_all = DistributedDataParallel(network(), process_group=own)
    hooked_by_all.register_comm_hook(Hook(DCGD(Identity()), group=dist.group.WORLD), hook)
    return [other, said(lambda: loss(hooked_by_all, RANK, 0).backward())]


def crossed():
    """Ranks 0 and 1 have made a group more, so the pair of rank 0 and that of rank 2 have one name."""
    if RANK in (0, 1):
        distributed_c10d._world.group_count += 1
    pairs = [dist.new_group(pair) for pair in ([0, 3], [1, 2])]
    Aggregator(DCGD(Identity()), like=np.zeros(2), comm=pairs[RANK in (1, 2)])


def stops():
    """Two workers on four ranks: all are told when a rank is asked to stop, with a worker or without."""
    told = []
    for asked in (None, *range(RANKS)):
        for exchanges in (False, True):
            t, message = connect(2), np.zeros(3, np.uint8)
            t.stop = asked == RANK
            if exchanges:
                exchange = t.exchange(1)
                exchange.send({i: [message] for i in t.hosted})
                for b in exchange.served:
                    with exchange.receive(b, range(2)) as received:
                        assert [i for i, _ in received] == [0, 1]
                    exchange.publish(b, message)
                found = exchange.collect()[1]
            else:
                with t.gather(range(2), lambda i, message: None) as send:
                    for i in t.hosted:
                        send(i, message)
                found = t.broadcast(message if t.is_server else None)[1]
            everybody = [None] * RANKS
            dist.all_gather_object(everybody, found)
            told.append(everybody)
            t.close()
    return told


def scatters():
    """On four ranks: a message to each of six workers, and to each of two; one that cannot be made."""
    told = []
    for workers in (6, 2):
        t = connect(workers)

        def scattered(bad, t=t):
            taken = []

            def make(i):
                if i == bad:
                    raise MpicompError(f"for worker {i}")
                return np.full((0, 1, 70_000)[i % 3], i, np.uint8)

            def take(i, message):
                taken.append([i, len(message), int(message.astype(int).sum())])

            try:
                t.scatter(make, take)
            except MpicompError as error:
                t.fail(error)
                raise
            t.broadcast(np.zeros(1, np.uint8) if t.is_server else None)
            return taken

        found = [said(lambda bad=bad: scattered(bad)) for bad in (0, workers - 1)] + [scattered(None)]
        everybody = [None] * RANKS
        dist.all_gather_object(everybody, found)
        told.append(everybody)
        t.close()
    return told


def ending(how):
    """Rank 1 ends in or before its third step, or stops; the others go on.  ``how`` may name a server."""
    how, _, server = how.partition(" ")
    x, server = np.zeros(D), server or "shared"
    method = DCGD(Identity()) if server == "allreduce" else METHODS["EFSGD"]
    Aggregator(method, like=x)  # each one has a timeout of its own
    agg = Aggregator(method, like=x, server=server, stall_timeout=5.0 if how == "stop" else None)

    class KilledInside(mpicomp.Objective):
        """Rank 1 dies in the midst of the method's step, when all have agreed to make it."""

        def value(self, x):
            return 0.0

        def grad(self, x):
            if RANK == 1 and agg.steps == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return x + 1

    for k in range(4):
        if RANK == 1 and k == 2:
            match how:
                case "raise":
                    raise ZeroDivisionError("the user's own")
                case "leave":
                    return
                case "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
        if how == "inside":
            agg(KilledInside(), at=x)
        else:
            agg(x)


def raises_meanwhile(folder):
    """Rank 1 raises an error of its own while an exchange is under way, for which rank 0 takes its time."""
    agg = Aggregator(METHODS["EFSGD"], like=np.zeros(D))
    play = agg._play_step

    def play_and_tell():
        if RANK == 0:
            time.sleep(1.0)  # in which rank 1 meets its end
        play()
        Path(folder, f"exchanged-{RANK}").touch()

    agg._play_step = play_and_tell
    agg.begin(np.ones(D))
    if RANK == 1:
        raise ZeroDivisionError("the user's own")
    agg.finish()


def replaced(folder):
    """Rank 0's means in two jobs, one after the other, in each of which rank 1 is a new process."""
    global RANK
    for job in range(2):
        if os.fork() == 0:
            RANK = 1
            return mean_in(f"{folder}/meet-{job}")
    return [mean_in(f"{folder}/meet-{job}") for job in range(2)]


def mean_in(meet):
    """The mean over the ranks of their numbers, in a job of two processes that meet at this file."""
    wait = timedelta(seconds=20)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=RANK, world_size=2, timeout=wait)
    with Aggregator(DCGD(Identity()), like=np.zeros(1)) as agg:
        (mean,) = agg(np.array([float(RANK)]))
    dist.destroy_process_group()
    return mean


ENDINGS = ("kill", "inside shared", "inside sharded", "inside allreduce", "raise", "leave", "stop")


def endings(folder):
    """For each of ``ENDINGS`` the exit statuses of three processes, and what they say.

    They are forked here, so that what they import is imported once, and have the environment that srun gives.
    """
    global RANK, RANKS
    Aggregator(METHODS["EFSGD"], like=np.zeros(D))(np.zeros(D))  # loads what it needs
    gc.freeze()  # else each child's end would copy all of this process's memory
    children = {}
    for number, how in enumerate(ENDINGS):
        for rank in range(3):
            if (child := os.fork()) == 0:
                RANK, RANKS = rank, 3
                os.environ |= {"SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank)}
                os.environ |= {"SLURM_STEP_NUM_TASKS": "3", "PMI_SIZE": "3"}
                for stream, name in ((1, "out"), (2, "err")):
                    os.dup2(os.open(f"{folder}/{how}-{rank}.{name}", os.O_CREAT | os.O_WRONLY), stream)
                dist.init_process_group(
                    "gloo", init_method=f"file://{folder}/meet-{number}", rank=rank, world_size=3
                )
                return ending(how)
            children[how, rank] = child
    found = {how: [None] * 3 for how in ENDINGS}
    for (how, rank), child in sorted(children.items(), key=lambda one: one[0] == ("stop", 1)):
        if (how, rank) == ("stop", 1):
            os.kill(child, signal.SIGKILL)  # the others have ended
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found[how][rank] = status, Path(f"{folder}/{how}-{rank}.err").read_text()
    return found


if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        dist.init_process_group("gloo")
    found = {}
    for argument in sys.argv[1:]:
        name, _, rest = argument.partition("=")
        found[name] = globals()[name](*(rest.split(",") if rest else []))
    assert not WITHOUT_MPI or not any(name.startswith("mpi4py.") for name in sys.modules)
    if RANK == 0:
        print(json.dumps(found))
