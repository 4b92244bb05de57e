"""The types of a method's fields: what each allows, and what a declaration without one meets."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf, nan
from typing import Annotated

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Part, Parts
from mpicomp.compressors import Absolute, Contractive, Natural, TopK
from mpicomp.methods import METHODS, Method, PerturbedSGD, TwoDirection
from mpicomp.methods import parameters as types
from mpicomp.methods.parameters import StepSize, checks_of
from mpicomp.methods.support.lmo_method import Norm, RateOrDecreasing
from mpicomp.methods.support.starts import EstimateStart, Start
from mpicomp.problems import Constants

POSITIVE = "a positive number, 'theory', or a multiple"
IN_0_1 = "a probability above 0 and at most 1"
RATE = "a number above 0 and at most 1"
COUNT = "a count, an integer from 1 to d, or a fraction"

# Of each type: what it allows; what it refuses, with what the refusal says.
TYPES = {
    "StepSize": (
        [1e-300, 5, "theory", "theory*8"],
        {POSITIVE: [0, -1.0, inf, nan, 10**400, True, None, "theory*0", "theory*inf", "x"]},
    ),
    "Curvature": ([0.5, 7, "theory", "theory*0.5"], {POSITIVE: [0, 0.0, -1.0, True, None, "theory+1"]}),
    "CurvatureOrZero": ([0, 0.0, 7, "theory"], {POSITIVE: [-1.0, inf, 10**400, True, False, None, ""]}),
    "Probability": ([1, 1.0, 1e-9], {IN_0_1: [0, 0.0, 1.5, nan, True, None, "theory"]}),
    "ProbabilityOrDefault": ([None, 1, 0.5], {IN_0_1: [0, 0.0, 2, nan, True, "theory"]}),
    "ProbabilityOrTheory": (["theory", "theory*2", 1, 0.5], {POSITIVE: [0, -1, None, "p"], IN_0_1: [1.5, 2]}),
    "Rate": ([1, 0.5], {RATE: [0, 1.5, True, None, "theory"]}),
    "Decay": ([0, 1, 0.5, 1.0], {r"allowed: a number from 0 to 1": [-0.1, 1.1, inf, nan, True, None, "x"]}),
    "Switch": ([True, False], {r"allowed: True or False": [0, 1, None, "true"]}),
    "Momentum": ([0, 0.0, 0.9], {r"from 0 up to, but not, 1": [1, 1.5, -0.1, nan, True, None, "x"]}),
    "RateOrDefault": ([None, 1, 0.5], {RATE: [0, 1.5, True, "theory"]}),
    "RateOrTheory": (["theory", "theory*2", 1, 0.5], {POSITIVE: [0, None], RATE: [1.5]}),
    "RateOrZero": ([None, 0, 0.0, 1, 0.5], {"a number from 0 to 1": [-0.1, 1.5, True, False, "theory"]}),
    "Count": ([None, 1, 10**9, 0.5], {COUNT: [0, -1, 1.0, 0.0, 1.5, True, "all"]}),
    "BatchSize": ([None, 1, 10**9, 0.5], {COUNT: [0, -1, 1.0, 0.0, 1.5, True, "all"]}),
    "PositiveIntegerOrNone": ([None, 1], {"a positive integer": [0, 1.0, True, "1"]}),
    "PositiveInteger": ([1, 10**9], {"a positive integer": [0, -1, 1.0, True, None, "1"]}),
    "ValueFormat": (["f8", "f4", "bf16"], {"value format": ["f3", 4, None]}),
    "PartsOfX": ([None, Parts((Part("x", (3, 2)),))], {"allowed: Parts, or None": [(3, 2), "x"]}),
}
CASES = {name: getattr(types, name) for name in TYPES}


def checked(hint, value):
    """A method's field of the type ``hint``, given ``value``."""
    (check,) = hint.__metadata__
    check("EF21", "field", value)


@pytest.mark.parametrize("name", TYPES)
def test_what_a_type_allows_and_refuses(name):
    allowed, refused = TYPES[name]
    for value in allowed:
        checked(CASES[name], value)
    for said, values in refused.items():
        for value in values:
            with pytest.raises(ConfigError, match=said):
                checked(CASES[name], value)


@pytest.mark.parametrize("hint", [*CASES.values(), Start, EstimateStart, RateOrDecreasing, Norm])
def test_every_type_refuses_an_array(hint):
    with pytest.raises(ConfigError):
        checked(hint, np.array([1.0, 2.0]))


def test_every_type_is_here():
    public = {name for name, hint in vars(types).items() if hasattr(hint, "__metadata__")}
    assert public == set(TYPES)


def test_a_start_from_zero_is_refused_for_estimates_alone():
    for value in ("zero", "gradient", "compressed"):
        checked(Start, value)
    for value in ("gradient", "compressed"):
        checked(EstimateStart, value)
    with pytest.raises(ConfigError, match=r"field='zero': EF21 would stay at x0.*'gradient', 'compressed'\."):
        checked(EstimateStart, "zero")
    for hint in (Start, EstimateStart):
        with pytest.raises(ConfigError, match=r"field='one'; allowed: .*'gradient', 'compressed'\."):
            checked(hint, "one")


# --- every method's fields ---


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda m: m.__name__)
def test_every_field_of_every_method_is_checked(method):
    checks = checks_of(method)
    assert list(checks) == [f.name for f in fields(method)]
    assert not any(isinstance(check, types.Anything) for check in checks.values())


@pytest.mark.parametrize("field", ["r", "R"])
def test_a_switch_is_no_number(field):
    PerturbedSGD(TopK(k=2), 0.1, **{"r": 1, field: 1})
    with pytest.raises(ConfigError, match=f"{field}=True; allowed: "):
        PerturbedSGD(TopK(k=2), 0.1, **{"r": 1, field: True})
    with pytest.raises(ConfigError, match=r"r=True; allowed: the weight of the downlink"):
        TwoDirection(TopK(k=2), Natural(), r=True)


# --- declarations ---


def subclass(**declared):
    """A method with fields of these types."""
    base = {name: None for name in Method.__abstractmethods__}
    return dataclass(frozen=True)(type("Own", (Method,), {**base, "__annotations__": declared}))


def test_a_field_is_checked_as_its_type_says():
    Own = subclass(C=Contractive | Absolute, gamma=StepSize, p=types.Probability)
    method = Own(TopK(2), "theory*3", 0.5)
    assert (method.step_name, method.step, method.theory_parameters) == ("gamma", "theory*3", ("gamma",))
    assert method.with_step(0.25) == Own(TopK(2), 0.25, 0.5)
    with pytest.raises(ConfigError, match="Own needs C to be contractive or absolute"):
        Own(Natural(), 0.1, 0.5)
    with pytest.raises(ConfigError, match="gamma=-1"):
        Own(TopK(2), -1, 0.5)
    with pytest.raises(ConfigError, match="p=2"):
        Own(TopK(2), 0.1, 2)


@pytest.mark.parametrize(
    "hint", [float, float | None, str, np.ndarray, Contractive | None, Annotated[float, "in (0, 1]"]]
)
def test_a_field_of_a_users_own_method_may_be_of_any_type(hint):
    """Such a type carries no check; every field of ours has one (above)."""
    Own = subclass(gamma=StepSize, p=hint)
    assert Own(0.1, "whatever").p == "whatever"


@pytest.mark.parametrize("count, declared", [(0, {}), (2, {"gamma": StepSize, "eta": StepSize})])
def test_a_method_has_exactly_one_step_size(count, declared):
    Own = subclass(p=types.Probability, **declared)
    with pytest.raises(TypeError, match=f"Own: {count} fields are a StepSize; expected one"):
        Own(0.5, *[0.1 for _ in declared])


def test_a_default_of_none_is_filled_in_and_a_count_of_none_stays():
    Own = subclass(
        gamma=StepSize, p=types.ProbabilityOrDefault, alpha=types.RateOrZero, batch=types.BatchSize
    )
    Own.defaults = lambda self, d, n: {"p": 1 / d, "alpha": 1 / n}
    Own.theory = lambda self, c, d, n: {"gamma": self.p + c.L}
    assert Own(0.5, None, 0, None).resolve(None, 4, 8) == Own(0.5, 0.25, 0, None)
    assert Own("theory*8", None, None, 3).resolve(lambda: Constants(L=1.0), 4, 8) == Own(10.0, 0.25, 0.125, 3)
