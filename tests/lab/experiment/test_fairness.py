"""What a comparison says against itself, on suites that break one rule each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Lossless
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.fairness import caveats
from mpicomp.lab.experiment.results import Comparison
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.tables import cells, header, markdown
from tests.support.lines import line
from tests.support.suites import FAIR


def said(tmp_path, *changes: tuple[str, str]) -> list[str]:
    """The caveats of ``FAIR`` with some of its text replaced, from the files of its comparison."""
    text = FAIR
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    suite = parse_suite(text)
    lines = compare(suite, tmp_path).lines()
    found = caveats(lines, suite)
    assert all(sentence in markdown(lines, suite) for sentence in found)
    return found


def test_a_fair_comparison_has_nothing_to_say(tmp_path):
    assert said(tmp_path) == []


def test_unequal_precision(tmp_path):
    (sentence,) = said(tmp_path, ("gamma=0.4", "gamma=0.4, down=lossless(values=f8)"))
    assert sentence == "Unequal precision of what is sent. f4: GD; f4 and f8: MARINA."


def test_what_is_lossless_goes_down_in_float32_as_what_is_dense(tmp_path):
    """The default; "exact" leaves to each method its own, and the table says so."""
    method = parse_suite(FAIR).entries[1].method
    assert method.down == Lossless("f4") and method.sync.values == "f4"
    assert parse_suite(FAIR.replace("workers = 3", 'workers = 3\ndown = "bf16"')).entries[1].method.down == (
        Lossless("bf16")
    )
    (sentence,) = said(tmp_path, ("workers = 3", 'workers = 3\ndown = "exact"'))
    assert sentence == "Unequal precision of what is sent. f4: GD; exact and f4: MARINA."
    with pytest.raises(ConfigError, match=r"down='f3'; allowed: 'exact', 'f8'"):
        parse_suite(FAIR.replace("workers = 3", 'workers = 3\ndown = "f3"'))


def test_unequal_budgets(tmp_path):
    changes = ('gamma=0.2)"', 'gamma=0.2)"\ntune = [-2, -1]'), ('gamma=0.4)"', 'gamma=0.4)"\ntune = [-1, 1]')
    found = said(tmp_path, *changes)
    assert "Unequal budgets: step sizes asked for, 2: GD; 3: MARINA." in found


def test_an_untuned_method_beside_a_tuned_one(tmp_path):
    found = said(tmp_path, ('gamma=0.4)"', 'gamma=0.4)"\ntune = [-1, 1]'))
    assert "Unequal budgets: step sizes asked for, none: GD; 3: MARINA." in found


EF21_SGDM = """
[[method]]
label = "{label}"
method = "ef21sgdm(C={C}, gamma=0.2, eta={eta})"
tune = [-1, 0]
"""


def test_a_method_with_several_values_of_another_parameter_has_more_trials(tmp_path):
    """Two values of η, each tuned; another compressor is another method, and so is what is not tuned."""
    rows = [("η = 0.1", "topk(k=5)", 0.1), ("η = 1", "topk(k=5)", 1), ("sign", "sign", 0.1)]
    more = "".join(EF21_SGDM.format(label=label, C=C, eta=eta) for label, C, eta in rows)
    found = said(
        tmp_path,
        ('gamma=0.2)"', 'gamma=0.2)"\ntune = [-2, -1]'),
        ('gamma=0.4)"\n', f'gamma=0.4)"\n{more}'),
        ("rounds = 400", "rounds = 10"),
    )
    wanted = (
        "Unequal budgets: step sizes asked for, none: MARINA; 2: GD, sign; 4: η = 0.1 and η = 1 together."
    )
    assert wanted in found


def test_a_number_beside_the_theorems_own_is_one_more():
    """μ of AGD as its theorem has it, and another one."""
    rows = ("AGD", "agd(gamma=0.1)"), ("AGD, 2 μ", "agd(gamma=0.1, mu=0.1)")
    text = FAIR.replace('gamma=0.2)"', 'gamma=0.2)"\ntune = [0, 1]') + "".join(
        f'[[method]]\nlabel = "{label}"\nmethod = "{method}"\ntune = [0, 1]\n' for label, method in rows
    )
    suite = parse_suite(text)
    found = caveats(Comparison(suite, {}, []).lines(), suite)
    assert any("2: GD; 4: AGD and AGD, 2 μ together" in sentence for sentence in found)


def test_methods_of_other_sizes_are_other_methods():
    """As compressors of other sizes are."""
    text = FAIR + "".join(
        f'[[method]]\nlabel = "rank {r}"\nmethod = "powersgd(r={r}, rows=4, gamma=0.1)"\ntune = [0, 1]\n'
        for r in (1, 2)
    )
    text = text.replace('gamma=0.2)"', 'gamma=0.2)"\ntune = [0, 1]').replace(
        'gamma=0.4)"', 'gamma=0.4)"\ntune = [0, 1]'
    )
    suite = parse_suite(text)
    lines = Comparison(suite, {}, []).lines()
    assert not any("budgets" in sentence for sentence in caveats(lines, suite))


def test_coarse_observation(tmp_path):
    found = said(tmp_path, ("workers = 3", "workers = 3\nevery = 25"))
    assert any(
        sentence.startswith("Observed every 25 rounds: costs of GD or MARINA may be up to")
        for sentence in found
    )


def test_observing_every_round_is_not_coarse():
    suite = parse_suite(FAIR)
    quick = [replace(line("a", [3] * 5), rounds=4.0), replace(line("b", [4] * 5), rounds=300.0)]
    assert not any("Observed" in sentence for sentence in caveats(quick, suite))


def test_an_edge(tmp_path):
    """The range grows towards the best, and has an end all the same."""
    found = said(tmp_path, ('gamma=0.2)"', 'gamma=0.2)"\ntune = [-15, -13]'))
    assert any(sentence.startswith("† The best step size tried is at the edge") for sentence in found)


def test_a_blown_up_run_on_a_loss_that_saturates(tmp_path, noise):
    """A huge step of GD throws x to where the loss is flat and f above f(x⁰), with a gradient of nearly 0."""
    text = FAIR.replace("quadratics(d=20, noise=0.5, lam=0.05)", f"nonconvex_glm(data='{noise}')").replace(
        "target_grad_norm_sq = 1e-6", ""
    )
    suite = parse_suite(text.replace("gamma=0.2", "gamma=1e7"))
    line, _ = lines = compare(suite, tmp_path).lines()
    assert line.rose == 5 and line.grad_norm_sq == 0 < lines[1].grad_norm_sq
    assert "f ended above f(x⁰) with some seed of GD." in caveats(lines, suite)
    assert "(5 of 5 rose)" in dict(zip(header(suite), cells(line, suite), strict=True))["|∇f|²"]


def test_a_target_reached_where_a_loss_is_flat(tmp_path_factory):
    """Nearly separable: far away f is the error rate, below f(x⁰), and the gradient is 0 all the same."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("flat")
    X = rng.normal(size=(300, 5))
    y = np.sign(X[:, 0]) * np.where(rng.random(300) < 0.15, -1, 1)
    rows = [" ".join(f"{j}:{x:.3f}" for j, x in enumerate(row, 1)) for row in X]
    (folder / "data.svm").write_text("".join(f"{int(s)} {row}\n" for s, row in zip(y, rows, strict=True)))
    text = FAIR.replace("quadratics(d=20, noise=0.5, lam=0.05)", f"nonconvex_glm(data='{folder}/data.svm')")
    suite = parse_suite(text.replace("gamma=0.2", "gamma=512").replace("1e-6", "1e-4"))
    lines = compare(suite, folder / "out").lines()
    assert lines[0].reached == 5 and lines[0].rounds < 10 < lines[1].rounds
    assert 0.25 > lines[0].f > 1.1 * lines[1].f
    (sentence,) = [text for text in caveats(lines, suite) if "far from" in text]
    assert sentence.startswith(f"The target was reached far from the least f, {lines[1].f:.4g}: GD at f = ")


def test_few_seeds(tmp_path):
    assert said(tmp_path / "1", ("[0, 1, 2, 3, 4]", "[0]")) == [
        "One seed resolves no difference between methods that draw at random."
    ]
    assert said(tmp_path / "3", ("[0, 1, 2, 3, 4]", "[0, 1, 2]")) == [
        "3 seeds resolve no difference between random methods; 4 may."
    ]
