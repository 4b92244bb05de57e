"""A method and a problem given as texts are the objects that the texts describe, wherever they are taken."""

from __future__ import annotations

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, GD, Aggregator, Descent, Quadratics, TopK
from mpicomp.base.errors import ConfigError
from tests.support import own_file

METHOD, PROBLEM = EF21(TopK(k=2), gamma=0.1), Quadratics(d=6)
TEXT, OF = "ef21(topk(k=2), gamma=0.1)", "quadratics(d=6)"
SETTINGS = {"workers": 2, "rounds": 6}


@pytest.mark.parametrize(("method", "problem"), [(TEXT, OF), (TEXT, PROBLEM), (METHOD, OF)])
def test_a_run(method, problem):
    run, same = mpicomp.run(method, problem, **SETTINGS), mpicomp.run(METHOD, PROBLEM, **SETTINGS)
    assert (run.iterates_sha256, run.ledger.up_bytes) == (same.iterates_sha256, same.ledger.up_bytes)
    assert run.problem == PROBLEM and run.summary()["method"] == repr(same.method)


def test_a_class_of_one_s_own():
    """The text is the user's own, so it imports."""
    own = "tests.support.own_file"
    run = mpicomp.run(f"{own}:Plain(C={own}:First(k=4))", f"{own}:Centre(d=4)", workers=3, rounds=2)
    same = mpicomp.run(own_file.Plain(own_file.First(4)), own_file.Centre(4), workers=3, rounds=2)
    assert run.iterates_sha256 == same.iterates_sha256


def test_a_comparison_and_a_tuning():
    objects = mpicomp.compare({"a": METHOD, "b": GD(gamma=0.1)}, PROBLEM, **SETTINGS)
    texts = mpicomp.compare({"a": TEXT, "b": GD(gamma=0.1)}, OF, **SETTINGS)
    assert texts.suite == objects.suite
    listed = mpicomp.compare([TEXT, "gd(0.1)"], OF, **SETTINGS)
    assert [o.label for o in listed.outcomes] == ["ef21(C=topk(k=2), gamma=0.1)", "gd(gamma=0.1)"]
    with pytest.raises(ConfigError, match="two of the methods are the same"):
        mpicomp.compare([TEXT, METHOD], OF, **SETTINGS)
    tuned = [mpicomp.tune(m, p, exponents=(0, 1), **SETTINGS) for m, p in ((METHOD, PROBLEM), (TEXT, OF))]
    assert tuned[0] == tuned[1]


def test_an_aggregator_and_a_descent():
    g, x0 = np.arange(6.0), np.ones(6)
    assert (Aggregator(TEXT, like=x0)(g) == Aggregator(METHOD, like=x0)(g)).all()
    steps = [Descent(m, x0) for m in (METHOD, TEXT)]
    assert all(descent.step(g) for descent in steps) and (steps[0].x == steps[1].x).all()
    assert (steps[0].x != x0).any()


def test_torch():
    torch = pytest.importorskip("torch")
    from mpicomp.torch import Compressed, Hook

    after = []
    for method in (METHOD, TEXT):
        x = torch.nn.Parameter(torch.ones(6))
        opt = Compressed(torch.optim.SGD([x], lr=0.1), method)
        (x @ torch.arange(6.0)).backward()
        opt.step()
        after.append(x.detach())
    assert torch.equal(*after) and not torch.equal(after[0], torch.ones(6))
    Compressed(torch.optim.SGD([x], lr=0.1), TEXT, sync_every=2)
    Hook(TEXT)
    with pytest.raises(ConfigError, match="'topk' is a compressor; a method is expected"):
        Hook("topk(k=2)")


def test_what_describes_none_is_refused():
    with pytest.raises(ConfigError, match=r"unknown method 'ef22'\. Did you mean 'ef21"):
        mpicomp.run("ef22", OF, **SETTINGS)
    with pytest.raises(ConfigError, match="'gd' is a method; a problem is expected"):
        mpicomp.run(TEXT, "gd", **SETTINGS)
    with pytest.raises(ConfigError, match="run takes a Method and a Problem"):
        mpicomp.run(5, OF, **SETTINGS)
    with pytest.raises(ConfigError, match=r"was given <class '.*GD'> and .*\. Give an object, GD\(\.\.\)\."):
        mpicomp.run(mpicomp.GD, OF, **SETTINGS)
