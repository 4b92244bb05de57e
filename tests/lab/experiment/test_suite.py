"""What the text of a suite says, and what is refused in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import Lossless, RandK
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.suite import Entry
from mpicomp.lab.experiment.suite_file import METHOD, SETTINGS, load_suite, parse_suite
from mpicomp.methods import DIANA, GD
from mpicomp.problems import Quadratics
from tests.support.suites import SUITE


def test_a_suite_is_read():
    suite = parse_suite(SUITE)
    assert (suite.title, suite.workers, suite.limits.rounds, suite.observation.every) == (
        "Quadratics | small",
        3,
        200,
        5,
    )
    assert suite.problem == Quadratics(d=20, noise=0.5, lam=0.05)
    assert suite.seeds == (0, 1, 2) and suite.target == 1e-6 and suite.limits.max_bytes is None
    assert suite.entries[1] == Entry(DIANA(Q=RandK(k=5), down=Lossless("f4")), "DIANA RandK", (1, 4))
    assert suite.entries[3].label == "dcgd(Q=randk(k=2), gamma=0.0001)"
    assert [e.slug for e in suite.entries] == [
        "gd",
        "diana-randk",
        "too-far",
        "dcgd-q-randk-k-2-gamma-0.0001",
    ]


def test_the_folders_of_long_labels_have_names_that_a_disk_takes(tmp_path):
    """The comparison ended with an error at the first of them, after the runs before it."""
    text = 'problem = "quadratics(d=3)"\nworkers = 2\nrounds = 2\n'
    for k in (1, 2):
        text += f'[[method]]\nmethod = "gd(gamma=0.{k})"\nlabel = "{"x" * 300}{k}"\n'
    assert [len(line.label) for line in compare(parse_suite(text), tmp_path).lines()] == [301, 301]
    names = [path.name for path in (tmp_path / "runs").iterdir()]
    assert [len(name) for name in names] == [255, 255] and names[0][:246] == names[1][:246] == "x" * 246


def test_what_may_be_left_out_has_defaults():
    suite = parse_suite('problem = "quadratics"\nworkers = 2\nrounds = 9\nmethod = [{method = "gd"}]')
    assert (suite.title, suite.observation.every, suite.seeds, suite.down) == ("quadratics", "1%", (0,), "f4")
    assert suite.entries == (Entry(GD(), "gd"),)


def test_exact_means_travel_in_the_format_of_the_suite_forwarded_or_not():
    head = 'problem = "quadratics"\nworkers = 2\nrounds = 9\n'
    for given, wanted in (
        ("lossless(forward=True)", Lossless("f4", forward=True)),
        ("lossless", Lossless("f4")),
        ("lossless(values=f2)", Lossless("f2")),
    ):
        (entry,) = parse_suite(f'{head}method = [{{method = "diana(Q=natural, down={given})"}}]').entries
        assert entry.method.down == wanted


def test_an_axis_that_is_named_twice_has_one_panel():
    """Seven names were a Python error after the last run."""
    names = '"up", "rounds", "up", "up", "seconds", "both", "epochs", "up"'
    suite = parse_suite(f"x = [{names}]\n{SUITE}")
    assert suite.x == ("up", "rounds", "seconds", "both", "epochs")


def test_the_axis_bytes_is_both_as_in_a_plot():
    """`mpicomp plot` took the word, and a suite refused it."""
    assert parse_suite(f'x = ["bytes", "up", "both"]\n{SUITE}').x == ("both", "up")


def test_the_page_has_all_keys_of_a_suite():
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    _, _, section = page.partition("### The file of a suite\n")
    settings, methods = (
        re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
        for table in section.partition("\n## ")[0].split("| key of a `[[method]]`")
    )
    assert sorted([*settings, "method"]) == sorted(SETTINGS)
    assert sorted(methods) == sorted(METHOD)


WRONG = [
    ("workers = 3", "worker = 3", "unknown key of a suite 'worker'. Did you mean 'workers'?"),
    ("workers = 3", "", "a suite needs workers"),
    ("workers = 3", "workers = 'three'", "workers = 'three'; allowed: a value of type int"),
    ("workers = 3", "workers = true", "workers = True"),
    ("every = 5", "max_bytes = 1e6", "max_bytes = 1000000.0; allowed: a value of type int"),
    ("target_grad_norm_sq = 1e-6", "hold = 1.0", "hold=1.0 without a target to hold"),
    ("every = 5", "max_seconds = -1", "max_seconds=-1; allowed: a number that is not negative"),
    ("tune = [1, 4]", "tunes = [-1, 6]", "Did you mean 'tune'?"),
    ("tune = [1, 4]", "tune = [6, -1]", "tune = [6, -1]; allowed: [lo, hi]"),
    ("tune = [1, 4]", "tune = [0.5, 1]", "allowed: [lo, hi]"),
    ("seeds = [0, 1, 2]", "seeds = []", "seeds = []"),
    ("seeds = [0, 1, 2]", "seeds = [1, 1]", "different"),
    ("seeds = [0, 1, 2]", "seeds = [-1]", "non-negative"),
    ('label = "too far"', 'label = "gd"', "label = 'gd': too much like 'GD'"),
    ('label = "too far"', 'label = "?"', "must differ in the letters a to z or digits"),
    ('method = "gd"', 'method = "gdd"', "Did you mean 'gd'?"),
    ('method = "gd"\n', "", "a [[method]] needs method"),
    ("problem = ", "problem ", "not a TOML file"),
]


@pytest.mark.parametrize(("right", "wrong", "said"), WRONG)
def test_a_wrong_suite_is_refused(tmp_path, right, wrong, said):
    path = tmp_path / "suite.toml"
    path.write_text(SUITE.replace(right, wrong, 1))
    with pytest.raises(ConfigError) as error:
        load_suite(path)
    assert said in str(error.value) and str(path) in str(error.value)


def test_a_suite_needs_methods_and_a_file(tmp_path):
    with pytest.raises(ConfigError, match=r"needs a \[\[method\]\]"):
        parse_suite('problem = "quadratics"\nworkers = 2\nrounds = 9\nmethod = []')
    with pytest.raises(ConfigError, match="a table of its own"):
        parse_suite('problem = "quadratics"\nworkers = 2\nrounds = 9\nmethod = ["gd"]')
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml"):
        load_suite(tmp_path / "none.toml")


def test_a_configuration_error_ends_the_comparison(tmp_path):
    """Before anything has run, the method being named; the folder is free for the suite once it is mended."""
    with pytest.raises(ConfigError, match="DIANA RandK: k=21 exceeds the dimension"):
        compare(parse_suite(SUITE.replace("randk(k=5)", "randk(k=21)")), tmp_path)
    with pytest.raises(ConfigError, match=r"x0 has shape \(2,\) .* shape \(20,\)"):
        compare(parse_suite("x0 = [1, 2]\n" + SUITE), tmp_path)
    with pytest.raises(ConfigError, match=r"dimension 10{15}: a vector takes 8e\+06 GB, and this host has"):
        compare(parse_suite(SUITE.replace("d=20", "d=1000000000000000")), tmp_path)
    assert list(tmp_path.iterdir()) == []
