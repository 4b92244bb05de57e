"""Runs on ranks, run on every rank at once: `mpirun -n 4 python -m pytest --only-mpi tests/mpi`."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest

import mpicomp
from mpicomp import (
    ADEF,
    ADIANA,
    DASHA,
    DIANA,
    EF21,
    EF21LMO,
    EF21P,
    EF21SGDM,
    EFSGD,
    M3,
    MARINA,
    MARINAP,
    MCM,
    ARCTopK,
    Artemis,
    ByzVRMARINA,
    Dion,
    EF21Muon,
    EF21Plus,
    Identity,
    Layered,
    Lossless,
    Natural,
    OneBitAdam,
    PermK,
    PowerSGD,
    Quantized,
    RandK,
    RankR,
    Sign,
    TopK,
)
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from mpicomp.problems import MLP, Attacked, Noisy, Quadratics
from mpicomp.runtime.loop import Loop
from mpicomp.transports.local import Local
from tests.mpi.everywhere import everywhere
from tests.support.method_cases import METHOD_CASES

pytestmark = pytest.mark.mpi(min_size=2)

PROBLEM = Quadratics(d=30, noise=0.3, lam=0.1)


REPLICATED = [(m, case.replica) for case in METHOD_CASES for m in dict.fromkeys([case.method, case.other])]
REPLICATED += [  # by other ways through a round
    (ADIANA(PermK(), p=0.5, parameters="refined"), "x y z w h"),
    (ADIANA(RandK(k=3), p=0.5, sends="gradient"), "x y z w h"),
    (Artemis(RandK(k=3), RandK(k=9), p=0.1, alpha_down=None), "x g H"),
    (EF21Plus(Sign(), gamma="theory*16"), "x g"),
    (PowerSGD(2, rows=5, gamma=0.1), "x g P Q m"),
    (ARCTopK(0.3, r=2, width=5, gamma=0.01, eta=1.0), "x g rows"),
]


@pytest.mark.parametrize(("method", "names"), REPLICATED, ids=repr)
def test_replicas_are_bit_identical_on_all_ranks(transport, method, names):
    """Whatever a method keeps on every rank, its ``names``, has one hash after each round."""
    loop = Loop(method, PROBLEM, transport, seed=3)
    for k in range(10):
        loop.step(k)
        state = {name: np.asarray(v).tobytes() for name, v in vars(loop.replica).items()}
        assert list(state) == names.split()
        digests = everywhere({name: sha256(v).hexdigest() for name, v in state.items()})
        assert all(d == digests[0] for d in digests)


@pytest.mark.parametrize(
    "method",
    [
        MARINA(RandK(k=3)),
        MCM(RandK(k=3), RandK(k=9)),  # its model is the server's alone
        EF21P(TopK(k=3), RandK(k=3), start="gradient"),
        MARINAP(RandK(k=3), p=0.3),
        M3(RandK(k=3), PermK(), p=0.3, p_down=0.3),
        Artemis(RandK(k=3), RandK(k=9), p=0.4),
        DASHA(RandK(k=3), start="zero"),
        ADEF(TopK(k=3), gamma=0.1),
        EFSGD(
            TopK(k=2), gamma=0.1, decay=0.9, average="senders", clip_norm=True, down=Lossless(forward=True)
        ),
        OneBitAdam(7, gamma=0.01),
        PowerSGD(2, rows=5, gamma=0.1, momentum=0.5),
        Dion(2, rows=5, gamma=0.01),
        ARCTopK(2, r=2, width=5, gamma=0.01),
    ],
    ids=repr,
)
def test_a_run_is_the_same_here_and_in_one_process(transport, method):
    here = mpicomp.run(method, PROBLEM, workers=10, rounds=20, transport=transport)
    alone = mpicomp.run(method, PROBLEM, workers=10, rounds=20, transport=Local(10))
    assert here.iterates_sha256 == alone.iterates_sha256
    assert (here.ledger.up == alone.ledger.up).all() and (here.ledger.down == alone.ledger.down).all()
    assert [(r.f, r.grad_norm_sq) for r in here.rows] == [(r.f, r.grad_norm_sq) for r in alone.rows]
    assert here.x.tobytes() == alone.x.tobytes()


@pytest.mark.parametrize(
    "method",
    [
        EF21(Layered({"b_*": Lossless(), "W_1": TopK(0.1)}, default=RankR(2)), gamma=0.1),
        DIANA(Layered({"ndim<2": Identity()}, default=Quantized(PermK(), Natural())), gamma=0.1),
        EF21LMO(TopK(0.2), gamma=0.05, norm="spectral", eta="decreasing", batch=16),
        EF21LMO(TopK(0.2), gamma=0.05, norm="spectral", eta="decreasing", momentum="mvr", batch=16),
        EF21Muon(TopK(0.2), TopK(0.2), gamma=0.05, polar="newton-schulz", eta=0.2, batch=16),
        EF21Muon(TopK(0.2), TopK(0.2), gamma=0.05, eta=0.2, momentum="igt", batch=16),
        PowerSGD(2, gamma=0.1),
        Dion(0.25, gamma=0.01, columns="orthonormal"),
        ARCTopK(0.2, r=2, gamma=0.1),
    ],
    ids=repr,
)
def test_a_run_by_parts_is_the_same_here_and_in_one_process(transport, method):
    problem = MLP("digits", hidden=8)
    here = mpicomp.run(method, problem, workers=10, rounds=8, transport=transport)
    alone = mpicomp.run(method, problem, workers=10, rounds=8, transport=Local(10))
    assert here.iterates_sha256 == alone.iterates_sha256
    assert (here.ledger.up == alone.ledger.up).all() and (here.ledger.down == alone.ledger.down).all()


@pytest.mark.parametrize("attack", ["sign_flip", "ipm", "alie"])
@pytest.mark.parametrize("rule", ["trimmed", "geometric", "clipping"])
def test_lies_are_the_same_here_and_in_one_process(transport, rule, attack):
    """Liars 7 to 9 of 10 are on the last ranks; batches, buckets of 3 workers, and the truth in the rows."""
    method = ByzVRMARINA(RandK(k=3), gamma=0.05, p=0.3, rule=rule, liars=1, bucket=3, batch=2)
    problem = Attacked(Noisy(PROBLEM, 0.1), 3, attack, 1.5)
    here = mpicomp.run(method, problem, workers=10, rounds=12, transport=transport)
    alone = mpicomp.run(method, problem, workers=10, rounds=12, transport=Local(10))
    assert here.iterates_sha256 == alone.iterates_sha256
    assert (here.ledger.up == alone.ledger.up).all() and (here.ledger.down == alone.ledger.down).all()
    assert [(r.f, r.grad_norm_sq) for r in here.rows] == [(r.f, r.grad_norm_sq) for r in alone.rows]


@pytest.mark.parametrize("model", [LocalImages, FullImages])
def test_a_model_of_images_is_trained_alike_here_and_in_one_process(transport, model):
    method = EF21SGDM(TopK(0.05), gamma=1.0, batch=16)
    problem = model("digits", hidden=4)
    here = mpicomp.run(method, problem, workers=10, rounds=8, every=8, transport=transport)
    alone = mpicomp.run(method, problem, workers=10, rounds=8, every=8, transport=Local(10))
    assert here.iterates_sha256 == alone.iterates_sha256


@pytest.mark.parametrize("Q", [PermK(), RandK(k=3)], ids=repr)
def test_workers_have_on_ranks_the_models_that_they_have_in_one_process(transport, Q):
    """And a rank has in its ledger what its own workers received; the server's has all."""
    here, alone = (Loop(MARINAP(Q, p=0.3), PROBLEM, t, seed=3) for t in (transport, Local(10)))
    for k in range(12):
        here.step(k)
        alone.step(k)
        for i in transport.hosted:
            assert here.workers[i].w.tobytes() == alone.workers[i].w.tobytes()
    mine = slice(None) if transport.is_server else list(transport.hosted)
    assert (here.ledger.down[mine] == alone.ledger.down[mine]).all()
    assert alone.ledger.own.all() and (alone.ledger.own < alone.ledger.down).all()
    assert not transport.is_server or (here.ledger.own == alone.ledger.own).all()
