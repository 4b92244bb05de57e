"""`mpicomp list NAME`: each parameter of each class is explained."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
from click.testing import CliRunner

from mpicomp.base.docstrings import entries
from mpicomp.base.errors import ConfigError
from mpicomp.compressors import COMPRESSORS, Compressor
from mpicomp.lab.cli import root
from mpicomp.lab.cli.catalogue import NAMES, catalogue
from mpicomp.lab.cli.examples import example
from mpicomp.lab.cli.parameters import parameters
from mpicomp.methods import EF21, Method
from mpicomp.problems import PROBLEMS, Problem
from mpicomp.text.config import describe, parse_compressor, parse_problem


@pytest.mark.parametrize("name", NAMES)
def test_each_parameter_has_a_meaning_a_default_and_limits(name):
    cls, shown = NAMES[name], "\n".join(catalogue(name))
    found = list(parameters(cls))
    assert {p.name: p.default for p in found} == describe(cls).parameters
    for parameter in found:
        assert parameter.meaning and parameter.allowed, parameter.name
        assert f"\n    {parameter.name} " in shown


@pytest.mark.parametrize(
    ("name", "parameter", "allowed"),
    [
        ("marina", "Q", "an unbiased compressor"),
        ("marina", "mu", "a positive number, 'theory', or a multiple such as 'theory*8'; or 0"),
        (
            "marina",
            "gamma",
            "a positive number, 'theory', a multiple such as 'theory*8', 'auto', or 'auto_noisy'",
        ),
        ("agd", "gamma", "a positive number, 'theory', or a multiple such as 'theory*8'"),
        ("ef14", "C", "a contractive compressor or an absolute compressor"),
        ("artemis", "alpha", "a number from 0 to 1; or None for the default"),
        ("m3", "beta", "a number above 0 and at most 1; or None for the default"),
        ("dcgd", "batch", "a count, an integer above 0, or a fraction, a float between 0 and 1; or None"),
        ("adiana", "sends", "'means', 'gradient'"),
        ("gd", "values", "f8, f4, f2, bf16"),
        ("coded_gaps", "C", "topk or quantized_topk"),
        ("coded", "Q", "a quantizer"),
        ("ef21lmo", "eta", "a number above 0 and at most 1, or 'decreasing'"),
        ("rankr", "rows", "a positive integer or None"),
        ("randk", "k", "a count, an integer from 1 to d, or a fraction, a float between 0 and 1"),
        ("dithering", "s", "a number of levels, an integer from 1 to 32767"),
        ("block_float", "bits", "4, 8"),
        ("quadratics", "d", "an integer from 2 upwards"),
        ("quadratics", "lam", "a number above 0"),
        ("logistic", "lam", "a number from 0 on or None"),
        ("noisy", "problem", "a problem"),
        ("randk", "layout", "'uniform', 'block'"),
        ("logistic", "split", "contiguous, shuffled, sorted, dirichlet(ALPHA) or a tuple"),
        ("mlp", "activation", "tanh, relu"),
    ],
)
def test_what_is_allowed_is_what_the_class_checks(name, parameter, allowed):
    assert {p.name: p.allowed for p in parameters(NAMES[name])}[parameter] == allowed


@pytest.mark.parametrize("name", NAMES)
def test_help_explains_each_parameter_too(name):
    """``help`` shows the docstring of the class alone: what a base class explains is added to it, once."""
    said = list(entries(NAMES[name].__doc__))
    assert {p.name: p.meaning for p in parameters(NAMES[name])} == {
        p: text.replace("``", "") for p, text in said if p in describe(NAMES[name]).parameters
    }
    assert len(said) == len(dict(said))
    shared = [entry for base in (Method, Compressor, Problem) for entry in entries(base.__doc__)]
    assert {p for p, text in said if (p, text) in shared} <= describe(NAMES[name]).parameters.keys()


def test_a_class_of_a_users_own_is_explained_too():
    class Mine(EF21):
        """My method.

        gamma  a step of mine
        """

    assert Mine.__doc__.splitlines()[:4] == ["My method.", "", "gamma  a step of mine", ""]
    assert dict(entries(Mine.__doc__))["C"] == "the workers' compressor"

    class Silent(EF21):
        pass

    assert Silent.__doc__ is None


def test_a_probability_by_theory_names_both_limits():
    found = {p.name: p.allowed for p in parameters(NAMES["vrdiana"])}["p"]
    assert "'theory'" in found and found.endswith("a number has to be a probability above 0 and at most 1")


def test_the_command_takes_the_names_of_texts_and_of_python():
    said = [CliRunner().invoke(root.cli, ["list", name]) for name in ("quantized_topk", "QuantizedTopK")]
    assert said[0].exit_code == 0 and said[0].output == said[1].output
    assert "    k  the coordinates that are sent" in said[0].output
    wrong = CliRunner().invoke(root.cli, ["list", "marnia"])
    assert wrong.exit_code == 2 and "Did you mean 'marina'?" in wrong.output


TEXTS = [
    (name, p.name)
    for name in (*COMPRESSORS, *PROBLEMS)
    for p in parameters(NAMES[name])
    if str in (get_args(hint := get_type_hints(NAMES[name])[p.name]) or (hint,)) and p.name != "data"
]


@pytest.mark.parametrize(("name", "parameter"), TEXTS)
def test_each_text_that_is_named_is_accepted(name, parameter):
    """And what is called "?" is not."""
    made = {**dict.fromkeys(COMPRESSORS, parse_compressor), **dict.fromkeys(PROBLEMS, parse_problem)}
    whole = made[name](example(name))
    allowed = {p.name: p.allowed for p in parameters(NAMES[name])}[parameter]
    named = [word.strip("'") for word in allowed.partition(" or ")[0].split(", ")]
    assert len(named) > 1
    for text in named:
        replace(whole, **{parameter: text.replace("ALPHA", "0.5")})
    with pytest.raises(ConfigError):
        replace(whole, **{parameter: "?"})
