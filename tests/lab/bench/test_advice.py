"""Advice: its lines run, its figures stand in the pages, its seconds are those of `mpicomp predict`."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from math import inf
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mpicomp
from mpicomp.base.errors import ConfigError
from mpicomp.lab.bench.advice import LEAST_BLOCK, NEGLIGIBLE, advise
from mpicomp.lab.bench.message_sizes import is_bound, message_nbytes
from mpicomp.lab.bench.situation import Row
from mpicomp.lab.bench.situations import SITUATIONS
from mpicomp.lab.cli import root
from mpicomp.text.config import parse_method, to_text

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "which.md").read_text()
ADVISED = [of for of in SITUATIONS if of.advised]
CONVEX = {"n": 8, "d": 64, "link": "10mbit", "step_seconds": 1e-4, "convex": True}
NETWORK = {"n": 4, "d": 10**6, "link": "100mbit", "step_seconds": 0.024, "batch": 32}


def lines(**asked):
    return [line.situation.name for line in advise(**asked).lines]


def names(situations):
    return pytest.mark.parametrize("of", situations, ids=lambda of: of.name)


# --- the page ---


def test_the_page_has_the_table():
    table = PAGE.partition("| situation |")[2].partition("\n\n")[0].splitlines()[2:]
    assert table == [f"| {of.name} | `{of.line}` | {of.measured} |" for of in SITUATIONS]
    assert len({of.name for of in SITUATIONS}) == len(SITUATIONS)


def test_the_page_shows_what_the_command_and_python_print():
    (command, shown) = re.search(r"^    (mpicomp advise .*)\n\n```\n(.*?)```", PAGE, re.M | re.S).groups()
    _, *words = shlex.split(command)
    done = CliRunner().invoke(root.cli, words)
    assert done.exit_code == 0 and done.output == shown
    (call,) = re.findall(r"`print\((mpicomp\.advise\(.*?\))\)`", PAGE)
    assert f"{eval(call, {'mpicomp': mpicomp})}\n" == shown


@names(SITUATIONS)
def test_every_figure_stands_in_the_page_that_is_named(of):
    pages = re.findall(r"\]\(([^)#]+)", of.measured)
    there = " ".join((DOCS / page).read_text() for page in pages)
    said = re.sub(r"\[[^]]*\]\([^)]*\)", "", of.measured)
    figures = re.findall(r"\d+(?:\.\d+)?", said)
    assert len(figures) > 1 or "3.9 times" in said
    assert [one for one in figures if not re.search(rf"(?<![\d.]){re.escape(one)}(?![\d.]*\d)", there)] == []


@cache
def rows(page):
    """Case, cells and columns of each row of a page's tables.

    The case is the heading, the bold line and the first cell that stand above the row.
    """
    found, head, bold, case, columns = [], "", "", "", None
    for text in (DOCS / page).read_text().splitlines():
        if text.startswith("#"):
            head, bold = text.strip("# "), ""
        elif text.startswith("**"):
            bold = text.split("**")[1]
        if not text.strip().startswith("|"):
            columns = None
            continue
        cells = [cell.strip() for cell in text.strip().strip("|").replace(r"\|", "").split("|")]
        if columns is None:
            columns = cells
        elif not set(cells[0]) <= set("-:") or not cells[0]:
            case = cells[0] or case
            found.append((f"{head}; {bold}; {case}", cells, columns))
    return found


def is_there(row: Row) -> bool:
    """Whether a table of the page has the row's rounds, or a sentence of it, where the row has no name."""
    if not row.name:
        words = " ".join((DOCS / row.page).read_text().split())
        return f"{row.rounds} rounds, " in words
    for case, cells, columns in rows(row.page):
        count = next((i for i, name in enumerate(columns) if name in ("rounds", "steps")), None)
        named = row.name in cells[:2] and re.search(rf"(?:^|; ){re.escape(row.case)}", case)
        if count is not None and named and cells[count].split()[0] == str(row.rounds):
            return True
    return False


@names([of for of in ADVISED if of.seen])
def test_rounds_stand_in_the_tables(of):
    for one in of.seen:
        for row in (one.row, one.dense):
            assert is_there(row), row
            assert not is_there(Row(row.page, row.case, row.name, row.rounds + 1))
        if one.gradients is not None:
            assert re.search(rf"\b{one.gradients}\b", (DOCS / one.row.page).read_text())


# --- the lines ---


def small(of):
    """A small problem of the situation's kind, and a number of workers."""
    if of.as_many or of.name == "Quadratic f":
        return "quadratics(d=100)", max(of.n, 4)
    if "matrices" in of.name:
        return "softmax(data=digits, lam=1e-3)", 4
    if "false" in of.name:
        return "attacked(problem=logistic(data=digits, lam=0.01), liars=3)", 16
    return f"{'nonconvex_' * (of.convex is False)}logistic(data=digits, lam=0.01)", of.n + 2


@names(SITUATIONS)
def test_a_line_fits_and_runs(of):
    problem, n = small(of)
    assert to_text(parse_method(of.line)) == of.line
    run = mpicomp.run(of.line, problem, workers=n, rounds=3, every=1)
    assert run.status == "rounds" and [row.round for row in run.rows] == [0, 1, 2, 3]
    assert run.rows[3].f < run.rows[0].f or of.line.startswith(("ef21p", "ef21lmo", "powersgd", "lbfgs"))


@pytest.mark.parametrize("server", ["shared", "sharded"])
@names([of for of in ADVISED if not of.as_many])
def test_the_bytes_are_those_of_a_run(of, server):
    """In round 3, for the sets of coordinates of EF21 have then parted; of broadcasts by the data a bound."""
    n, blocks = small(of)[1], {"shared": 1, "sharded": 3}[server]
    options = {"server": server, "blocks": blocks} if blocks > 1 else {}
    run = mpicomp.run(of.line, small(of)[0], workers=n, rounds=3, every=1, **options)
    up = (run.rows[3].up_bytes - run.rows[2].up_bytes) / n
    down = (run.rows[3].down_bytes - run.rows[2].down_bytes) / n
    method = parse_method(of.line)
    expected = message_nbytes(method, run.x.size, n, blocks)
    assert up == expected[0]
    assert down <= expected[1] <= 4 * run.x.size + 9 * blocks if is_bound(method) else down == expected[1]


def test_the_bytes_of_permk():
    """d = n = 100: one number, or all with p = 1/100."""
    (of,) = (of for of in ADVISED if of.as_many)
    up, down = message_nbytes(parse_method(of.line), 100, 100)
    assert up == pytest.approx(0.01 * 400 + 0.99 * 4)
    assert down == 1 + 400
    run = mpicomp.run(of.line, "quadratics(d=100)", workers=100, rounds=9, every=1)
    sent = {b.up_bytes - a.up_bytes for a, b in zip(run.rows, run.rows[1:], strict=False)}
    assert sent <= {100 * 400, 100 * 4} and len(sent) == 2  # round 0 sends whole gradients


def test_a_bound_is_attained_where_workers_choose_different_coordinates():
    method = parse_method("ef21(C=topk(k=0.01), gamma=0.1, down=lossless(values=f4))")
    with mpicomp.Aggregator(method, like=np.zeros(300), workers=4) as agg:
        agg({i: np.where(np.arange(300) // 3 == i, np.arange(1.0, 301.0), 0.0) for i in range(4)})
        assert agg.ledger.down_bytes / 4 == message_nbytes(method, 300, 4)[1]


# --- the seconds ---


@pytest.mark.parametrize(
    "asked",
    [
        CONVEX,
        CONVEX | {"n": 16, "mu": 0.01, "latency": "1ms"},
        CONVEX | {"n": 128, "up_only": True, "alike": True},
        CONVEX | {"d": 10**6, "link": "1gbit"},
        NETWORK,
        NETWORK | {"up_only": True},
        {"n": 4, "d": 100352, "link": "100mbit", "step_seconds": 0.012},
    ],
    ids=lambda asked: "-".join(map(str, asked.values())),
)
def test_seconds_are_those_of_predict(asked):
    """And the order is that of the longest time, with the dense line among one to three."""
    found = advise(**asked)
    for line in found.lines:
        costs, server = line.forecast.costs, line.forecast.server
        words = ["--up", costs.up, "--down", costs.down, "--workers", asked["n"], "--rate", asked["link"]]
        words += ["--latency", asked.get("latency", "50us"), "--server", server, "--json"]
        done = CliRunner().invoke(root.cli, ["predict", *map(str, words)])
        told = json.loads(done.stdout)["round_seconds"]
        messages = told["up" if asked.get("up_only") else "total"]
        gradients = line.situation.gradients
        assert line.seconds == pytest.approx(messages + gradients * asked["step_seconds"], rel=1e-12)
        method = parse_method(line.method)
        assert (costs.up, costs.down) == message_nbytes(method, asked["d"], asked["n"], line.forecast.blocks)
    longest = [line.times[1] for line in found.lines]
    assert longest == sorted(longest) and 1 < len(longest) <= 3
    assert [line.times for line in found.lines if line.situation.dense] == [(1.0, 1.0)]


def test_times_by_hand():
    asked = {**CONVEX, "mu": 0.01, "link": "1kbit", "step_seconds": 0.01}
    (local,) = (
        line for line in advise(**asked).lines if line.method.startswith("locodl(Q=natural, mu=0.01,")
    )
    (dense,) = (line for line in advise(**asked).lines if line.situation.dense)
    messages = local.forecast.round.total
    mushrooms = (13 * messages + 691 * 0.01) / (19 * dense.seconds)
    digits = (54 * messages + 792 * 0.01) / (15 * dense.seconds)
    assert local.times == pytest.approx((mushrooms, digits), rel=1e-12)
    assert local.seconds == pytest.approx(messages + 691 / 13 * 0.01)
    assert "and computes 53 gradients" in str(local)
    asked = {**CONVEX, "mu": 0.01, "step_seconds": 0.01}
    by_name = {line.situation.name: line for line in advise(**asked).lines}
    dense = next(line for line in by_name.values() if line.situation.dense)
    ef21 = by_name["Convex f, bytes in both directions"]
    assert ef21.times[1] == pytest.approx(312 / 22 * ef21.seconds / dense.seconds)
    assert ef21.times[0] == pytest.approx(41 / 9 * ef21.seconds / dense.seconds)


def test_dense_messages_that_take_a_twentieth_of_a_gradient_are_not_compressed():
    (dense,) = (line for line in advise(**CONVEX).lines if line.situation.dense)
    messages = dense.forecast.round.total
    at_the_edge = messages / NEGLIGIBLE
    found = advise(**CONVEX | {"step_seconds": at_the_edge * 1.001})
    assert [line.method for line in found.lines] == ["lbfgs"] and "gains nothing" in found.notes[0]
    assert len(advise(**CONVEX | {"step_seconds": at_the_edge * 0.999}).lines) > 1


def test_blocks_are_not_so_short_that_k_is_another():
    """But they may be where no coordinate is left out, as with 8 bits."""
    for d, server in ((4 * LEAST_BLOCK - 1, "shared"), (4 * LEAST_BLOCK, "sharded")):
        found = advise(**NETWORK | {"d": d, "step_seconds": 1e-3})
        by = {line.forecast.server for line in found.lines if "topk" in line.method}
        assert by == {server}
    slow = {**CONVEX, "mu": 0.01, "link": "1kbit", "step_seconds": 0.01}
    assert "sharded" in {line.forecast.server for line in advise(**slow).lines if "natural" in line.method}


# --- the choice ---


def test_what_is_asked_decides_which_lines_suit():
    assert "Convex f, bytes in both directions" in lines(**CONVEX)
    assert "Convex f, bytes up alone" in lines(**CONVEX | {"up_only": True})
    both = "Convex f_i, 16 workers or more, bytes in both directions"
    assert both in lines(**CONVEX | {"n": 16}) and both not in lines(**CONVEX | {"n": 15})
    local = "Strongly convex f_i, rounds that cost more than gradients"
    assert local in lines(**CONVEX | {"mu": 0.1, "convex": None}) and local not in lines(**CONVEX)
    many = {**CONVEX, "n": 100, "d": 100, "alike": True, "up_only": True}
    permk = "As many workers as coordinates, alike data, bytes up alone"
    assert permk in lines(**many)
    for other in ({"n": 99}, {"d": 101}, {"alike": False}, {"up_only": False}):
        assert permk not in lines(**many | other)
    assert lines(n=4, d=1000, link="1mbit", step_seconds=1e-3) == [
        "A network or another f that is not convex, full gradients",
        "Full gradients: nothing to tune, or a link that is fast against a gradient",
    ]
    assert all(name.startswith("Batches, ") for name in lines(**NETWORK))
    assert "batch=7" in advise(**NETWORK | {"batch": 7}).lines[0].method


def test_what_was_not_measured_is_said():
    assert not any("Not measured" in note for note in advise(**CONVEX).notes)
    text = str(advise(**CONVEX | {"d": 651, "n": 300}))
    assert "Not measured: d = 651. Of these lines, the tables have " in text and "ef21 up to 650" in text
    assert "Not measured: n = 300." in text and "lbfgs up to 256" in text
    assert "not known: `mpicomp compare` measures them" in text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n": 1}, "n=1; allowed: an integer from 2 to 10000"),
        ({"n": 2.5}, "n=2.5; allowed: an integer"),
        ({"d": 0}, "d=0; allowed: an integer from 1"),
        ({"link": "1gb"}, "rate '1gb'; allowed: a number with one of kbit"),
        ({"link": "0mbit"}, "rate '0mbit'; allowed: from 1 to 1e+18 bits a second"),
        ({"latency": "9" * 400 + "s"}, "allowed: at most 1e+18 seconds"),
        ({"link": 1e8}, 'link is 100000000.0; allowed: a text such as "100mbit"'),
        ({"latency": "1"}, "time '1'; allowed: a number with one of us"),
        ({"step_seconds": 0}, "step_seconds is 0; allowed: a positive number"),
        ({"step_seconds": inf}, "step_seconds is inf; allowed"),
        ({"step_seconds": True}, "step_seconds is True; allowed"),
        ({"batch": 0}, "batch=0; allowed: an integer from 1"),
        ({"mu": -1.0}, "mu is -1.0; allowed: a positive number"),
        ({"mu": 0.1, "batch": 3}, "mu is for full gradients"),
        ({"mu": 0.1, "convex": False}, "mu=0.1 says that every f_i is convex, and convex=False that not"),
        ({"convex": "no"}, "convex is 'no'; allowed: True or False"),
        ({"alike": 1}, "alike is 1; allowed: True or False"),
    ],
    ids=str,
)
def test_a_value_that_is_not_allowed(wrong, said):
    with pytest.raises(ConfigError) as error:
        advise(**CONVEX | wrong)
    assert said in str(error.value) and "\n" not in str(error.value)


# --- the command ---


def test_examples_of_the_help_run_and_give_each_word_to_the_function():
    shown = CliRunner().invoke(root.cli, ["advise", "--help"]).output
    examples = re.findall(r"^  mpicomp (advise --n .*)$", shown, flags=re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        assert CliRunner().invoke(root.cli, example.split()).exit_code == 0
    words = "advise --n 128 --d 1e2 --link 1mbit --latency 1ms --step-seconds 0.01 --mu 0.1 --up-only --alike"
    expected = advise(
        n=128,
        d=100,
        link="1mbit",
        latency="1ms",
        step_seconds=0.01,
        mu=0.1,
        up_only=True,
        alike=True,
    )
    assert CliRunner().invoke(root.cli, words.split()).output == f"{expected}\n"
    assert CliRunner().invoke(root.cli, [*examples[0].split(), "--nonconvex"]).output.startswith("8 workers")
    both = CliRunner().invoke(root.cli, [*words.split(), "--nonconvex"])
    assert isinstance(both.exception, ConfigError) and "mu=0.1" in str(both.exception)
    wrong = CliRunner().invoke(root.cli, ["advise", *examples[0].split()[3:], "--n", "1"])
    assert isinstance(wrong.exception, ConfigError)
