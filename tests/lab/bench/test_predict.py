"""Forecasts of a round from runs with few workers, and the output and refusals of `mpicomp predict`."""

from __future__ import annotations

import json
import signal

import pytest
from click.testing import CliRunner

from mpicomp.base.errors import ConfigError
from mpicomp.compressors import PermK, RandK
from mpicomp.lab.bench.cost_model import (
    HEADERS,
    ByRoot,
    Costs,
    Link,
)
from mpicomp.lab.bench.predict import FEW, MANY, MORE, _down, _server, _up, forecast, given
from mpicomp.lab.bench.timed_run import timed_run
from mpicomp.lab.cli import root
from mpicomp.methods import EF21, GD, M3, MARINA, MARINAP
from mpicomp.problems import Attacked, Noisy, Quadratics
from mpicomp.text.config import parse_method
from tests.support.launching import mpicomp


def test_fits_to_two_runs():
    """Each law goes through its two points, and is the one it names."""
    assert _up(1000.0, 1000.0, 500) == 1000.0
    assert _up(4000 / FEW, 4000 / MORE, 500) == pytest.approx(4000 / 500)  # PermK
    assert _server(MORE * 1e-6 + 1e-3, MANY * 1e-6 + 1e-3, 500) == pytest.approx(500e-6 + 1e-3)
    assert _server(1e-3, 0.9e-3, 500) == pytest.approx(1e-3)  # the broadcast's time alone
    d, q = 10_000, 0.01
    union = [8 * d * (1 - (1 - q) ** n) for n in (FEW, MORE, 300)]
    assert _down(*union[:2], d, 300) == pytest.approx(union[2])
    assert _down(500.0, 500.0, d, 300) == 500.0
    assert _down(*union[:2], d, 10**6) <= 8 * d


def test_a_forecast_of_few_workers_is_the_run():
    """At 16 workers nothing is extrapolated: the sizes are those of the run with 16."""
    method, problem = MARINA(Q=parse_method("marina(permk)").Q, gamma=0.1), Quadratics(d=1000)
    found = forecast(method, problem, MORE, Link(1e9, 1e-4))
    dense, split = 4 * 1000, 4 * (1000 // MORE)
    assert split <= found.costs.up <= dense  # with a dense round now and then
    assert found.received == 15 * found.costs.up and found.sent == 4 * found.costs.down
    topk = forecast(EF21(parse_method("ef21(topk(k=10))").C, gamma=0.1), problem, 1000, Link(1e9, 1e-4))
    assert topk.costs.down <= 8 * 1000 and topk.costs.up < 100


def test_a_forecast_of_messages_to_one_worker_alone():
    """PermK's are d/n numbers: 320 and 80 bytes for 4 and 16 workers, 32 for 40; the broadcast is empty."""
    found = forecast(MARINAP(PermK(), gamma=0.1, p=1e-9), Quadratics(d=320), 40, Link(1e9, 1e-4))
    assert (found.costs.own, found.costs.down) == (pytest.approx(32), 0)
    assert found.sent == pytest.approx(39 * 32)
    whole = forecast(MARINAP(PermK(), gamma=0.1, p=1.0), Quadratics(d=320), 40, Link(1e9, 1e-4))
    assert (whole.costs.own, whole.costs.down) == (0, pytest.approx(4 * 320))
    both = M3(
        RandK(k=5), PermK(), gamma=0.1, p=1e-9, p_down=1e-9
    )  # round 0, with whole gradients, is left out
    found = forecast(both, Quadratics(d=320), 40, Link(1e9, 1e-4))
    assert (found.costs.up, found.costs.own, found.costs.down) == (pytest.approx(20), pytest.approx(32), 0)
    with pytest.raises(ConfigError, match="use server='shared' or 'dedicated'"):
        forecast(MARINAP(PermK(), gamma=0.1), Quadratics(d=320), 40, Link(1e9, 1e-4), "sharded", 4)


def test_a_forecast_says_of_which_run_a_refusal_speaks():
    """Seven liars of 64 workers are allowed, and were refused as seven of 4."""
    said = r"forecast for 64 workers .* runs with 4 and 16 workers.* With 4: attacked has liars=7 of 4"
    with pytest.raises(ConfigError, match=said):
        forecast(GD(gamma=0.1), Attacked(Quadratics(d=8), liars=7), 64, Link(1e9, 1e-4))


def test_loads_of_the_server():
    found = given(1e4, 1e5, 1000, Link(1e9, 0.0))
    busy = 8 * HEADERS * 999 * 1e4 / 1e9  # it receives more than it sends
    assert found.link_load == pytest.approx(busy / found.round.total)
    assert found.round.total == pytest.approx(8 * HEADERS * (999 * 1e4 + 15 * 1e5) / 1e9)
    assert found.processor_load == 0.0


def test_a_forecast_leaves_out_the_first_gradients():
    """EF21-SGDM sends them whole; and an Allreduce sends as much as it receives."""
    method = parse_method("ef21_sgdm(topk(k=10), gamma=0.1, eta=0.5)")
    few = forecast(method, Quadratics(d=1000), 100, Link(1e9, 1e-4))
    assert 10 * 4 <= few.costs.up <= 10 * 4 + 20  # ten values, and their positions
    summed = forecast(parse_method("gd(gamma=0.1)"), Quadratics(d=1000), 100, Link(1e9, 1e-4), "allreduce")
    assert summed.costs.up == summed.costs.down == 4000
    assert summed.sent == summed.received == 8 * 4000
    with pytest.raises(ConfigError, match="server='allreduce' sums vectors that are sent whole"):
        forecast(method, Quadratics(d=1000), 100, Link(1e9, 1e-4), "allreduce")


def test_messages_are_forwarded_where_the_mean_is_longer():
    """Two coordinates of 300, others on each worker: a mean of n messages takes more than 8 n bytes."""
    problem, link = Noisy(Quadratics(d=300), sigma=0.5), Link(1e9, 1e-4)
    plain, forward = (
        parse_method(f"diana(randk(k=2), gamma=0.1, batch=1, down=lossless{f})")
        for f in ("", "(forward=True)")
    )
    for n, forwards in ((64, True), (10_000, False)):
        mean, found = (forecast(m, problem, n, link) for m in (plain, forward))
        assert found.costs.down == (1 + 8 * n if forwards else mean.costs.down)
        assert forwards == (found.costs.down < mean.costs.down) and found.method.endswith("(forward=True))")
    with pytest.raises(ConfigError, match="leave forward out"):
        forecast(
            parse_method("dcgd(identity, gamma=0.1, down=lossless(forward=True))"),
            problem,
            4,
            link,
            "allreduce",
        )


def test_a_round_of_no_time_loads_nothing():
    found = given(0, 0, workers=2, link=Link(rate=1e9, latency=0.0))
    assert found.round.total == found.link_load == found.processor_load == 0


def test_predict_on_the_command_line():
    done = mpicomp(
        "predict", "--up", "1000", "--down", "4000", "--workers", "64", "--rate", "1gbit", "--json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    expected = ByRoot().time(Costs(1000, 4000, 0, 0, 0), Link(1e9, 5e-5), 64).total
    assert told["round_seconds"]["total"] == pytest.approx(expected)
    assert told["total_seconds"] == pytest.approx(1000 * expected)
    done = mpicomp(
        *("predict", "--problem", "quadratics(d=100)", "--method", "gd(gamma=0.1)"),
        *(
            "--method",
            "ef21(topk(k=5), gamma=0.1)",
            "--workers",
            "1000",
            "--rate",
            "1gbit",
            "--latency",
            "10ms",
        ),
    )
    assert done.returncode == 0, done.stderr
    assert "15 messages' lengths, 5 links deep" in done.stdout
    assert "where a byte takes 8.36 bits, headers included" in done.stdout  # 8 (1448 + 66) / 1448
    assert "left out, some 10 us for each message received" in done.stdout
    assert "| gd(gamma=0.1) | 400 B | 400 B |" in done.stdout
    done = mpicomp(
        *("predict", "--up", "1000", "--down", "1000", "--workers", "64", "--rate", "1gbit"),
        *("--server", "allreduce"),
    )
    assert done.returncode == 0, done.stderr
    assert "whole vectors in pairs 6 times" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--up", "1", "--rate", "1gbit"), "either --problem and --method, or --up and --down"),
        (
            ("--up", "nan", "--down", "1", "--rate", "1gbit"),
            "messages of nan and 1.0 bytes; allowed: numbers",
        ),
        (
            ("--up", "1e308", "--down", "1", "--rate", "1kbit"),
            "1e+308 and 1.0 bytes; allowed: numbers up to 1e+18",
        ),
        (
            ("--up", "1", "--down", "1", "--rate", "9" * 400 + "gbit"),
            "allowed: from 1 to 1e+18 bits a second",
        ),
        (("--up", "1", "--down", "1", "--rate", f"0.{'0' * 300}1kbit"), "allowed: from 1 to 1e+18 bits"),
        (
            ("--up", "1", "--down", "1", "--rate", "1gbit", "--latency", "9" * 400 + "s"),
            "allowed: at most 1e+18 seconds",
        ),
        (("--up", "1", "--down", "1", "--rate", "1gb"), "rate '1gb'; allowed: a number with one of kbit"),
    ],
)
def test_predict_refuses(arguments, said):
    done = mpicomp("predict", "--workers", "10", *arguments)
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("name", "value"), [("--workers", "1000000000"), ("--rounds", "1" + "0" * 400)])
def test_a_forecast_ends_whatever_the_numbers(name, value):
    """With 10^9 workers it went on for hours, and 10^400 rounds ended in a traceback."""
    usual = {"--workers": "10", "--up": "1", "--down": "1", "--rate": "1gbit", "--server": "sharded"}
    words = [word for pair in (usual | {name: value}).items() for word in pair]
    done = CliRunner().invoke(root.cli, ["predict", *words])
    assert done.exit_code == 2 and f"Invalid value for '{name}'" in done.output


def test_an_interrupt_in_the_warm_up_ends_the_timed_run():
    """It ended the warm-up, and the run that is timed went on."""
    seen = []

    def interrupt(round, row):
        seen.append(round)
        if round == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        timed_run(GD(gamma=0.1), Quadratics(d=10), workers=2, rounds=50, progress=interrupt)
    assert seen == [1, 2, 3]
