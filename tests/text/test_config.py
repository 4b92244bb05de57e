"""Text and JSON to objects and back, and what is said of text that names none."""

from __future__ import annotations

import re
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import COMPRESSORS, Dithering, Natural, PermK, QuantizedTopK, RandK, TopK
from mpicomp.methods import AGD, EF14, EF21, GD, MARINA, METHODS
from mpicomp.problems import Logistic, Quadratics
from mpicomp.text.config import (
    TABLES,
    describe,
    parse_compressor,
    parse_method,
    parse_problem,
    to_text,
)
from mpicomp.text.literals import read_parameter
from tests.support.conformance import CASES
from tests.support.method_cases import METHOD_CASES

COMPRESSOR_TEXTS = [
    "identity",
    "identity(values=f8)",
    "lossless",
    "randk(k=0.01)",
    "randk(k=3, layout=block, values=f2, mask=shared)",
    "permk(layout=block)",
    "bernoulli(q=0.5)",
    "lazy(q=0.25)",
    "dithering(s=7, p=inf)",
    "ternary",
    "natural",
    "natural_dithering(s=4)",
    "quantized(S=randk(k=0.1), Q=natural)",
    "topk(k=0.1)",
    "sign",
    "quantized_topk(k=0.1, Q=dithering(s=3))",
    "shrunk(U=quantized(S=permk, Q=ternary))",
    "hard_threshold(lam=0.001)",
    "coded(Q=dithering(s=3))",
    "coded_gaps(C=quantized_topk(k=0.1, Q=natural))",
    "coded(Q=ternary, model=(65534, 1, 1))",
    "rankr(r=2, rows=10)",
    "varying_steps(beta=20.0)",
    "varying_steps(beta=1.5, weights=(1.0, 0.25), values=f8)",
    "block_steps(beta=20.0, blocks=4, code=sparse)",
    "importance(k=0.1)",
    "importance(k=3, weights=(1.0, 2.0, 0.0, 0.5))",
]
METHOD_TEXTS = [
    "gd",
    "gd(gamma=0.5, values=f8)",
    "agd(mu=0)",
    "dcgd(Q=natural)",
    "diana(Q=randk(k=0.1), gamma=theory*8)",
    "marina(Q=permk, gamma=theory*0.5, p=0.1)",
    "ef14(C=topk(k=2), gamma=0.125)",
    "ef21(C=sign)",
    "ef14(C=sign, batch=0.01)",
    "efsgd(C=hard_threshold(lam=0.25), batch=1)",
    "ef21plus(C=topk(k=2), gamma=theory*8)",
    "ef21sgdm(C=topk(k=2), eta=0.05, batch=1)",
    "ef21sgd2m(C=sign, batch=4)",
    "econtrol(C=sign, eta=0)",
    "dasha(Q=permk, gamma=theory*4)",
    "adiana(Q=natural)",
    "locodl(Q=permk, mu=0.01, gamma=theory*0.5)",
    "adiana(Q=randk(k=3), eta=0.5, mu=0.01, parameters=refined)",
    "adiana(Q=permk, sends=gradient, down=lossless(values=f4))",
    "artemis(Q=randk(k=0.1), down=natural, alpha=0, alpha_down=None, p=0.5, batch=8)",
    "mcm(Q=randk(k=0.1), down=randk(k=0.5), batch=0.25)",
    "dore(Q=natural, down=ternary, beta=1, eta=0)",
    "doublesqueeze(C=topk(k=2), down=hard_threshold(lam=0.5), gamma=0.1)",
    "ef21p(C=topk(k=2))",
    "ef21p(C=topk(k=2), Q=randk(k=3), gamma=theory*16)",
    "twodirection(C=topk(k=2), Q=randk(k=3))",
    "vrmarina(Q=randk(k=2), batch=0.01, gamma=theory*2)",
    "vrmarina(Q=permk, batch=4, p=0.125, sync_batch=64)",
    "byzvrmarina(Q=permk, batch=4, rule=geometric, liars=3, bucket=2, estimates=common, nu=0.1)",
    "byzvrmarina(Q=natural, rule=clipping, radius=2.5)",
    "ppmarina(Q=randk(k=2), r=0.5)",
    "vrdiana(Q=natural, batch=None, p=theory*0.5)",
    "dashapage(Q=randk(k=2), batch=8)",
    "dashamvr(Q=randk(k=2), batch=1, b=0.125)",
    "dcgd(Q=natural, batch=32)",
    "dcgd_plus(Q=varying_steps(beta=20.0))",
    "diana_plus(Q=block_steps(beta=20.0, blocks=4), gamma=theory*8)",
    "adiana_plus(Q=importance(k=0.1), p=theory*0.5, alpha=0.25)",
    "twodirection(C=sign, Q=natural, Lbar=theory*0.001, mu=0, p=0.125, tau=0.5, r=0.25)",
    "perturbed_sgd(C=topk(k=2), eta=0.125, r=0.5)",
    "perturbed_sgd(C=shrunk(U=randk(k=2, mask=shared)), eta=0.125, r=0, I_reset=20, R=0.5, batch=0.1)",
    "powersgd(r=2, rows=10, gamma=0.125, batch=32)",
    "onebitadam(warmup=20, C=topk(k=2), gamma=0.125, beta2=0.99, sync=identity(values=f8))",
    "dion(r=0.5, rows=10, gamma=0.125, momentum=0.5, columns=orthonormal)",
    "ef21(C=layered(rules={'*.bias': identity, 'conv*': topk(k=0.05)}, default=rankr(r=4)))",
    "marina(Q=layered(rules={'ndim<2': lossless}, default=quantized(S=randk(k=0.1), Q=natural)))",
]
PROBLEM_TEXTS = [
    "quadratics",
    "quadratics(d=20, noise=0.0, seed=3)",
    "logistic(data=digits, lam=0.001)",
    "logistic(data='german.numer', split=sorted, cond=100.0)",
    "nonconvex_logistic(data='a folder/a file', lam=0.1)",
    "nonconvex_glm(data=digits)",
    "least_squares(data=digits, lam=0.5)",
    "least_squares(data=digits, split=sorted, cond=100.0)",
    "autoencoder",
    "autoencoder(data=digits, r=4, p_hat=0.75, lam=0.001, seed=2)",
    "softmax(data=digits)",
    "softmax(data=fashion_mnist, split=sorted, lam=0.1, penalty=bounded)",
    "mlp(data=digits)",
    "mlp(data=mnist, hidden=8, activation=relu, seed=1)",
    "local_images(data=digits)",
    "full_images(data=digits, hidden=16)",
    "local_images(data=fashion_mnist, split=sorted, horizon=2, hidden=8, blocks=0, seed=1)",
    "full_images(data=fashion_mnist, split=sorted, horizon=2, hidden=8, blocks=0, seed=1)",
    "saddle",
    "saddle(d=3, curvature=2.0, noise=0.5, seed=1)",
    "noisy(problem=quadratics(d=20), sigma=2.0)",
    "attacked(problem=logistic(data=digits, cond=10.0), liars=3, attack=ipm, scale=5.0)",
    "noisy(problem=noisy(problem=logistic(data=digits, cond=10.0), sigma=1.0), sigma=0.5)",
]
COMPRESSOR_TEXTS = [*dict.fromkeys([*COMPRESSOR_TEXTS, *(to_text(case.c) for case in CASES)])]
METHOD_TEXTS = [*dict.fromkeys([*METHOD_TEXTS, *(case.text for case in METHOD_CASES)])]
ALL = [("compressor", t) for t in COMPRESSOR_TEXTS]
ALL += [("method", t) for t in METHOD_TEXTS] + [("problem", t) for t in PROBLEM_TEXTS]
PARSE = {"compressor": parse_compressor, "method": parse_method, "problem": parse_problem}


def test_the_texts_above_cover_every_class():
    for kind, table in TABLES.items():
        tried = [PARSE[kind](text) for k, text in ALL if k == kind]
        assert all(isinstance(obj, tuple(table.values())) for obj in tried)
        assert all(any(isinstance(obj, cls) for obj in tried) for cls in table.values())


@pytest.mark.parametrize(("kind", "text"), ALL)
def test_text_and_repr_come_back(kind, text):
    obj = PARSE[kind](text)
    assert PARSE[kind](to_text(obj)) == obj
    assert to_text(PARSE[kind](to_text(obj))) == to_text(obj)
    assert PARSE[kind](repr(obj)) == obj


@pytest.mark.parametrize(
    ("kind", "text"), [(k, t) for k, t in ALL if t != "nonconvex_logistic(data='a folder/a file', lam=0.1)"]
)
def test_these_texts_are_canonical(kind, text):
    assert to_text(PARSE[kind](text)) == text


def test_what_the_text_means():
    assert parse_method("marina(Q=randk(k=0.01), gamma=theory)") == MARINA(Q=RandK(k=0.01))
    assert parse_method("  MARINA( RandK(0.01), theory*8 ) ") == MARINA(Q=RandK(k=0.01), gamma="theory*8")
    assert parse_method("gd()") == parse_method("gd") == GD()
    assert parse_method("agd(mu=0)") == AGD(mu=0)
    assert parse_method("EF21(C=QuantizedTopK(5, natural))") == EF21(C=QuantizedTopK(k=5, Q=Natural()))
    assert parse_method("ef14(C=topk(k=2))") == EF14(C=TopK(k=2))
    assert parse_compressor("dithering(7, p=inf)") == Dithering(s=7, p="inf")
    assert parse_compressor("dithering(7, p=2)") == Dithering(s=7, p="2")
    assert parse_compressor("permk") == PermK()
    assert parse_problem("logistic(data='digits', lam=1e-3)") == Logistic(data="digits", lam=1e-3)
    assert parse_problem("quadratics(lam=1)") == Quadratics(lam=1)


def test_what_is_in_no_table_gives_its_repr():
    assert to_text(3.5) == "3.5"


WRONG = [
    ("method", "maria(Q=natural)", "Did you mean 'marina'?"),
    ("method", "maria(Q=natural)", "Allowed: gd, agd"),
    ("method", "marina(q=natural)", "unknown parameter of marina 'q'. Did you mean 'Q'? Allowed: Q, gamma"),
    ("method", "marina(Q=natural, gama=3)", "Did you mean 'gamma'?"),
    ("method", "marina", "marina lacks Q"),
    ("method", "marina(gamma=1)", "marina(Q, gamma=theory"),
    ("compressor", "quantized", "lacks S and Q"),
    ("method", "randk(k=3)", "'randk' is a compressor; a method is expected"),
    ("method", "quadratics", "'quadratics' is a problem; a method is expected"),
    ("problem", "gd", "'gd' is a method; a problem is expected"),
    ("method", "marina(Q=gd)", "'gd' is a method; a compressor is expected"),
    ("method", "marina(Q=randkk(k=3))", "Did you mean 'randk'?"),
    ("method", "marina(Q=theory)", "unknown compressor 'theory'"),
    ("method", "marina(Q=0.1)", "'0.1' is no compressor"),
    ("method", "marina(Q=topk(k=3))", "unbiased"),
    ("method", "ef21(C=randk(k=3))", "contractive"),
    ("method", "marina(Q=randk(k=0))", "randk(k=0): k=0; allowed"),
    ("method", "gd(gamma=-0.5)", "gd(gamma=-0.5): gamma=-0.5; allowed: a positive number"),
    ("method", "gd(gamma=True)", "gamma=True"),
    ("method", "gd(gamma=theory*x)", "is no value"),
    ("method", "gd(gamma=[1])", "is no value"),
    ("method", "gd(gamma=__import__('os').getcwd())", "is no value"),
    ("method", "gd(1, f4, 3)", "3 parameters; allowed: gamma, values"),
    ("method", "gd(1, gamma=2)", "gamma is given twice"),
    ("method", "gd(**x)", "not by its name"),
    ("method", "marina(Q=randk(k=3)", "was never closed"),
    ("method", "marina(Q=randk(k=3)))", "unmatched ')'"),
    ("method", "", "Expected NAME"),
    ("method", "gd; gd", "Expected NAME"),
    ("method", "a.b(3)", "is no method"),
    ("method", "gd(\0)", "cannot read"),
    ("problem", "quadratics(d=1.5)", "d=1.5; allowed: a value of type int"),
    ("problem", "quadratics(d=True)", "d=True"),
    ("problem", "logistic(data=3, lam=x)", "lam='x'; allowed: a value of type float | None"),
    ("problem", "logistic(data=[a9a.t], lam=1)", "'a quoted text'"),
    ("problem", "logistic(data=digits)", "logistic(data=digits): Logistic takes either lam"),
]


@pytest.mark.parametrize(("kind", "text", "said"), WRONG)
def test_wrong_text_is_refused_with_the_remedy(kind, text, said):
    with pytest.raises(ConfigError) as error:
        PARSE[kind](text)
    assert said in str(error.value)


PATHS = [
    ("logistic(data=data/a9a.bz2, lam=1)", Logistic(data="data/a9a.bz2", lam=1)),
    ("logistic(data=./my.csv:label, lam=1)", Logistic(data="./my.csv:label", lam=1)),
    ("logistic(~/sets/a9a-t, lam=.5)", Logistic(data="~/sets/a9a-t", lam=0.5)),
    ("logistic(data = a9a.t , lam=1e-3)", Logistic(data="a9a.t", lam=1e-3)),
    ("logistic(data='data/a9a, b', lam=1)", Logistic(data="data/a9a, b", lam=1)),
]


@pytest.mark.parametrize(("text", "meant"), PATHS)
def test_paths_need_no_quotes(text, meant):
    assert parse_problem(text) == meant
    assert parse_problem(to_text(meant)) == meant


@pytest.mark.parametrize("path", ["my data/a9a", "data/*.bz2", "data/a|b/", "a b"])
def test_a_path_that_needs_quotes_is_shown_with_them(path):
    with pytest.raises(ConfigError, match=re.escape(f"Write data={path!r}.")):
        parse_problem(f"logistic(data={path}, lam=1)")


def test_the_time_of_an_unreadable_text_grows_with_its_length():
    """A search for a word at each of its letters would take a minute here."""
    started = process_time()
    with pytest.raises(ConfigError, match=r"aaa\.\.\.\".*unterminated string"):
        parse_method("'" + "a" * 100_000)
    assert process_time() - started < 10


def test_a_pattern_that_is_given_twice_is_refused():
    with pytest.raises(ConfigError, match=r"'\*' is given twice\. Leave one of its rules out"):
        parse_compressor("layered({'*': topk(k=5), 'b': natural, '*': sign})")


def test_a_name_with_values_is_a_text():
    with pytest.raises(ConfigError, match=re.escape("split 'halves(0.1, 2)'")):
        parse_problem("logistic(data=digits, lam=1, split=halves(0.1, 2))")
    with pytest.raises(ConfigError, match=re.escape("write 'halves(share=0.1)'.")):
        parse_problem("logistic(data=digits, lam=1, split=halves(share=0.1))")


def test_a_parameter_is_read_without_its_class():
    text = "Nobody(C=Nothing(k=3, gamma=2.0), gamma=0.25, down=Lossless(values='f4'))"
    assert read_parameter(text, "gamma") == 0.25
    with pytest.raises(ConfigError, match="does not say k"):
        read_parameter(text, "k")


@given(st.text(alphabet="gdmarinQq=()*,.'\"-0 1[]{}:\n\\#", max_size=25))
def test_any_text_gives_a_method_or_a_config_error(text):
    with suppress(ConfigError):
        assert isinstance(parse_method(text), tuple(METHODS.values()))


def test_describe_says_what_list_needs():
    marina = describe(MARINA)
    assert marina.name == "marina"
    assert marina.parameters["Q"] is None and marina.parameters["gamma"] == "theory"
    assert marina.signature.startswith("marina(Q, gamma=theory")
    assert "Algorithm 1" in marina.paper and marina.summary
    for table in TABLES.values():
        assert all(describe(cls).summary for cls in table.values())
    assert describe(COMPRESSORS["dithering"]).signature == "dithering(s, p='2', values=f4)"
