"""What holds of each method there is: a transcription, the hash over its iterates, what it refuses."""

from __future__ import annotations

import ast
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from mpicomp import compressors
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import (
    EDEN,
    Bernoulli,
    Compressor,
    HardThreshold,
    Natural,
    PermK,
    RandK,
    Shrunk,
    Sign,
    TopK,
)
from mpicomp.methods import (
    AGD,
    DCGD,
    DIANA,
    EF14,
    EF21,
    GD,
    MARINA,
    METHODS,
)
from mpicomp.methods.parameters import checks_of
from mpicomp.problems import Quadratics
from mpicomp.text.config import parse_method
from tests.support.method_cases import METHOD_CASES
from tests.support.trajectories import Entropy, start, trajectory

REFERENCES = Path(__file__).parents[1] / "reference"


# --- the transcriptions ---


@pytest.mark.parametrize("path", sorted(REFERENCES.glob("*.py")), ids=lambda path: path.stem)
def test_transcriptions_import_numpy_only(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add("." * node.level + (node.module or ""))
    assert imported <= {"numpy"}


def test_every_method_has_a_transcription():
    problems = {"networks"}
    assert set(METHODS) == {path.stem for path in REFERENCES.glob("*.py")} - {"__init__"} - problems


# --- the hash over the iterates ---

ONE_OF_EACH = [case.other for case in METHOD_CASES]
DRAWING = [case.other for case in METHOD_CASES if case.draws]


def test_the_list_has_every_method_of_the_table_once():
    """And what is given of a method, as an object or as text, is that method."""
    assert sorted(case.name for case in METHOD_CASES) == sorted(METHODS)
    for case in METHOD_CASES:
        for method in (case.method, case.other, parse_method(case.text)):
            assert type(method) is METHODS[case.name]
        assert bool(case.start) == ("start" in checks_of(type(case.method)))


@pytest.mark.parametrize("method", ONE_OF_EACH, ids=repr)
def test_the_hash_is_a_chain_over_the_iterates(method):
    """h_0 = SHA-256(x^0), h_k = SHA-256(h_{k-1}, x^k); a second run gives the same one."""
    loops = [start(method, Entropy(), 4, seed=1) for _ in range(2)]
    iterates = trajectory(loops[0], 20)
    trajectory(loops[1], 20)
    assert loops[0].digest.value == loops[1].digest.value == chained(iterates)


def chained(iterates: list) -> bytes:
    digest = sha256(iterates[0].tobytes()).digest()
    for x in iterates[1:]:
        digest = sha256(digest + x.tobytes()).digest()
    return digest


def test_the_hash_of_long_iterates_is_the_same_chain():
    """A long iterate is hashed while the next round runs, which changes it in place."""
    loop = start(GD(), Quadratics(d=30_000), 2)
    assert loop.digest.value == chained([loop.replica.x])
    iterates = trajectory(loop, 5)
    assert loop.digest.value == chained(iterates)


@pytest.mark.parametrize("method", ONE_OF_EACH, ids=repr)
def test_the_hash_changes_with_the_seed_where_there_are_draws(method):
    loops = [start(method, Entropy(), 4, seed=seed) for seed in (1, 2)]
    for loop in loops:
        trajectory(loop, 5)
    assert (loops[0].digest.value != loops[1].digest.value) == (method in DRAWING)


def test_a_deterministic_compressor_needs_no_seed():
    """docs/methods.md, EF21: EF21 and EF14 with TopK are reproducible whatever the seed."""
    for method in (EF21(TopK(2)), EF14(Sign())):
        first, second = (start(method, Entropy(), 4, seed=seed) for seed in (1, 2))
        assert np.array_equal(trajectory(first, 20), trajectory(second, 20))


# --- what is refused ---


WRONG = [
    *[
        (m, "Q", C)
        for m in (DCGD, DIANA, MARINA)
        for C in (TopK(2), Sign(), Shrunk(RandK(2)), HardThreshold(0.1))
    ],
    *[(m, "C", C) for m in (EF14, EF21) for C in (RandK(2), PermK(), Natural(), Bernoulli(0.5))],
    (EF21, "C", HardThreshold(0.1)),
]


@pytest.mark.parametrize(("method", "name", "C"), WRONG, ids=lambda v: getattr(v, "__name__", repr(v)))
def test_a_compressor_of_the_wrong_kind_is_refused(method, name, C):
    """The message says what came and which kind is wanted, and names a compressor that would do."""
    with pytest.raises(ConfigError) as caught:
        method(**{name: C})
    message = str(caught.value)
    assert method.__name__ in message and name in message and repr(C) in message
    assert ("unbiased" if name == "Q" else "contractive") in message
    table = vars(compressors)
    candidates = [f"Shrunk({C!r})", "RandK(k=0.01)", "Natural()", "TopK(k=0.01)", "Sign()", "Identity()"]
    remedies = [eval(text, dict(table)) for text in candidates if text in message]
    assert remedies
    for remedy in remedies:
        method(**{name: remedy})


@pytest.mark.parametrize(("method", "name"), [(DIANA, "Q"), (EF14, "C"), (EF21, "C")])
def test_eden_as_in_its_papers_is_refused_with_the_contractive_one(method, name):
    """No kind is proved for it; the remedy has the same bits and blocks."""
    contractive = "EDEN(bits=3, scale='least_error', block=128)"
    with pytest.raises(ConfigError) as error:
        method(**{name: EDEN(3, scale="inner_product", block=128)})
    message = str(error.value)
    assert "which is neither unbiased nor contractive" in message and "\n" not in message
    assert f"{contractive} and TopK(k=0.01) would do" in message or f"EF21 takes {contractive}" in message
    assert EF21(eval(contractive)).C == EDEN(3, block=128)


@dataclass(frozen=True)
class OfNoKind(Compressor):
    """A compressor of a user's own, contractive with another parameter only."""

    damped: bool = False

    def contractive_variant(self):
        return OfNoKind(damped=True)

    def compress(self, x, key):
        raise NotImplementedError

    def decompress_add(self, buf, out, key, scale=1.0):
        raise NotImplementedError

    def nbytes(self, d):
        return None

    def paper_bits(self, buf, d, key):
        return 0


@pytest.mark.parametrize(("method", "name"), [(DIANA, "Q"), (EF14, "C"), (EF21, "C")])
def test_any_compressor_may_name_its_contractive_variant(method, name):
    with pytest.raises(ConfigError, match=r"OfNoKind\(damped=True\)( and TopK\(k=0\.01\) would do)?\.$"):
        method(**{name: OfNoKind()})


def test_an_absolute_compressor_is_sent_to_ef14():
    with pytest.raises(ConfigError, match=r"which is absolute.*EF14 takes absolute compressors"):
        DCGD(HardThreshold(0.1))
    assert EF14(HardThreshold(0.1), gamma=0.1).C == HardThreshold(0.1)


@pytest.mark.parametrize("C", ["randk", 3, RandK, None], ids=repr)
@pytest.mark.parametrize(
    ("method", "name"), [(DCGD, "Q"), (DIANA, "Q"), (MARINA, "Q"), (EF14, "C"), (EF21, "C")]
)
def test_what_is_no_compressor_is_refused(method, name, C):
    kind, remedy = ("unbiased", "RandK") if name == "Q" else ("contractive", "TopK")
    with pytest.raises(
        ConfigError, match=rf"{method.__name__} needs {name} .*{kind}.*given .*{remedy}\(k=0\.01\)"
    ):
        method(**{name: C})


@pytest.mark.parametrize("method", [DCGD, DIANA, MARINA, EF14, EF21])
def test_the_broadcast_is_lossless_or_rounded_never_compressed(method):
    C = {"Q": RandK(2)} if method in (DCGD, DIANA, MARINA) else {"C": TopK(2)}
    for wrong in (RandK(2), TopK(2), PermK()):
        with pytest.raises(ConfigError, match=r"down.*lossless"):
            method(**C, down=wrong)
    with pytest.raises(ConfigError, match=r"sync.*identity"):
        MARINA(RandK(2), sync=RandK(2))


BAD_STEPS = [0, -1.0, float("nan"), True, "theroy", "theory*", "theory*0", "theory*-1", "theory*x", "", None]


@pytest.mark.parametrize("gamma", BAD_STEPS, ids=repr)
def test_a_step_that_is_none_is_refused(subtests, gamma):
    for method in ONE_OF_EACH:
        step = method.step_name
        with subtests.test(type(method).__name__), pytest.raises(ConfigError, match=rf"{step}.*theory"):
            replace(method, **{step: gamma})


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        (MARINA(PermK()), "p", 0.0),
        (MARINA(PermK()), "p", 1.5),
        (MARINA(PermK()), "p", float("nan")),
        (MARINA(PermK()), "p", "theory"),
        (DIANA(RandK(2)), "alpha", 0.0),
        (DIANA(RandK(2)), "alpha", -0.5),
        (DIANA(RandK(2)), "alpha", float("nan")),
        (DIANA(RandK(2)), "alpha", "theory"),
        (AGD(), "mu", -1.0),
        (AGD(), "mu", "theory*x"),
        (GD(), "values", "f5"),
        (AGD(), "values", "f5"),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "paper") else repr(v),
)
def test_other_parameters_are_checked_too(method, name, value):
    """At once, by a message that names the parameter, and not in the middle of a run."""
    with pytest.raises(ConfigError, match=name if name != "values" else "value format"):
        replace(method, **{name: value})


@pytest.mark.parametrize("method", ONE_OF_EACH, ids=repr)
def test_a_method_is_its_repr(method):
    """eval(repr(m)) == m, and records on the state side hold arrays and numbers only."""
    names = {name: getattr(compressors, name) for name in compressors.__all__}  # imports them
    assert eval(repr(method), names | {type(method).__name__: type(method)}) == method
    loop = start(method, Entropy(), 4)
    loop.step(0)
    for state in (loop.replica, loop.server, *loop.workers.values()):
        assert all(isinstance(getattr(state, f.name), np.ndarray | float | int) for f in fields(state))
