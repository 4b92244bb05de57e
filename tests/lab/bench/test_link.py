"""Links: the model's identities, the break-even, forecasts, and what the reports say.  No hosts, no times."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import pytest
from click.testing import CliRunner

from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.base.units import human_rate, human_time, parse_rate, parse_time
from mpicomp.compressors import PermK, RandK
from mpicomp.lab.bench import hosts, linkreport
from mpicomp.lab.bench.cost_model import (
    EAGER,
    HEADERS,
    Costs,
    Link,
    allreduce_time,
    break_even,
    broadcasting,
    copies,
    crossing,
    depth,
    exchanges,
    latency_of,
    round_time,
    sharded_time,
    time_of,
)
from mpicomp.lab.bench.link import (
    Contender,
    Timing,
    between_hosts,
    break_evens,
    contenders,
    runs_alone,
    uncompressed,
)
from mpicomp.lab.bench.linkreport import Results, publish, tables
from mpicomp.lab.bench.predict import FEW, MANY, MORE, _down, _server, _up, forecast, given
from mpicomp.lab.cli import root
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.methods import EF21, GD, M3, MARINA, MARINAP
from mpicomp.problems import Attacked, Noisy, Quadratics
from mpicomp.text.config import parse_method
from tests.support.launching import mpicomp

SMALL = Costs(up=1000.0, down=4000.0, worker=3e-3, server=1e-4, replica=2e-4)
DENSE = Costs(up=4e5, down=4e5, worker=2e-3, server=5e-5, replica=1e-4)


def test_a_round_is_what_the_formulas_say():
    alpha, n = 1e-3, 4
    beta = 8 * HEADERS / 1e8
    small = round_time(SMALL, Link(1e8, alpha), n, sharing=2.0)
    assert small.worker == 2 * SMALL.worker and small.replica == 2 * SMALL.replica
    assert small.server == n * SMALL.server
    assert small.up == pytest.approx(alpha + 3 * 1000 * beta)
    assert small.down == pytest.approx(2 * alpha + 3 * 4000 * beta)  # the announcement is 2 links deep
    dense = round_time(DENSE, Link(1e8, alpha), n)
    assert dense.up == pytest.approx(alpha + 3 * 4e5 * beta + 2 * alpha)
    assert dense.down == pytest.approx(3 * alpha + 3 * 4e5 * beta)
    assert dense.total == dense.worker + dense.up + dense.server + dense.down + dense.replica


def test_messages_to_one_worker_alone_leave_through_the_servers_one_link():
    """Beside the broadcast, which a tree spreads where ranks are many."""
    alpha, n = 1e-3, 40
    beta = 8 * HEADERS / 1e8
    for own, asks in ((500.0, 0), (1e5, 1)):
        plain, both = (round_time(c, Link(1e8, alpha), n) for c in (SMALL, replace(SMALL, own=own)))
        assert both.down - plain.down == pytest.approx(alpha + 39 * own * beta + 2 * asks * alpha)
        assert both.up == plain.up


def test_a_dedicated_server_receives_from_all():
    shared, dedicated = (round_time(SMALL, Link(1e6, 0.0), 4, dedicated=d) for d in (False, True))
    assert dedicated.up / shared.up == pytest.approx(4 / 3)
    assert dedicated.down / shared.down == pytest.approx(4 / 3)


def test_where_every_rank_serves_its_share_the_busiest_link_does_not_grow_with_the_workers():
    """A message and a broadcast pass it, with as many blocks as workers; the root's share falls to 1/S."""
    link = Link(1.0, 0.0)
    for n in (4, 64, 1000):
        time = sharded_time(DENSE, link, n, n)
        assert time.up == pytest.approx(8 * HEADERS * 4e5, rel=1e-3) == pytest.approx(time.down)
        assert time.server == pytest.approx(DENSE.server)
    few = sharded_time(DENSE, Link(inf, 1e-3), 1000, 8)
    assert few.up == pytest.approx(1e-3 + 1007 * 1e-5)
    assert few.server == pytest.approx(1000 / 8 * DENSE.server)


def test_with_far_fewer_blocks_than_ranks_broadcasts_spread_in_trees():
    """Eight blocks between 1000 ranks: ten steps, and some eight blocks a rank in place of 999."""
    assert broadcasting(1000, 1000) == (999, 1) and broadcasting(8, 7) == (7, 1)
    assert broadcasting(1000, 1) == (10, 10) and broadcasting(8, 4) == (7, 1)
    most, steps = broadcasting(1000, 8)
    assert 8 <= most <= 8 + 10 and steps == 10
    few = sharded_time(DENSE, Link(inf, 1e-3), 1000, 8)
    assert few.down == pytest.approx(10e-3 + (9 + most + 8) * 1e-5)
    slow = sharded_time(DENSE, Link(1.0, 0.0), 1000, 8)
    assert slow.down == pytest.approx((most + 9) / 8 * 8 * HEADERS * DENSE.down, rel=1e-6)


@pytest.mark.parametrize(("ranks", "times"), [(1, 0), (2, 1), (3, 3), (4, 2), (7, 4), (8, 3), (1000, 11)])
def test_an_allreduce_exchanges_whole_vectors_in_pairs(ranks, times):
    """log2 of the ranks below, and twice more for those that are left over."""
    link, beta = Link(1e8, 1e-3), 8 * HEADERS / 1e8
    assert exchanges(ranks) == times
    short, long = allreduce_time(SMALL, link, ranks), allreduce_time(DENSE, link, ranks)
    assert short.up == pytest.approx(times * (1e-3 + 1000 * beta)) and short.down == long.down == 0
    assert long.up == pytest.approx(times * (3e-3 + 1.4 * 4e5 * beta))
    in_fragments = allreduce_time(DENSE, between_hosts(1e8, 1e-3), ranks)
    assert in_fragments.up == pytest.approx(times * (3e-3 + 4e5 * beta))
    assert between_hosts(1e10, 1e-3) == Link(1e10, 1e-3)
    assert time_of("allreduce")(SMALL, link, ranks, 1.0) == short


def test_limits_of_the_rate():
    """On an infinitely fast link latency and computing are left; on a slow one time is bytes over rate."""
    fast = round_time(DENSE, Link(inf, 0.0), 4)
    assert fast.up == fast.down == 0.0
    slow = round_time(DENSE, Link(1.0, 0.0), 4).total
    assert slow == pytest.approx(8 * HEADERS * (3 * 4e5 + 3 * 4e5), rel=1e-9)


def test_messages_above_the_eager_limit_are_asked_for():
    """Messages of 64 KiB and a byte are asked for 64 at a time, 4 MiB in all; longer ones one by one."""
    link = Link(inf, 1.0)
    below, above, long = (replace(SMALL, up=size, down=0) for size in (EAGER, EAGER + 1, 1e8))
    for workers, trips in [(5, 1), (65, 1), (66, 2), (1000, 16)]:
        free = round_time(below, link, workers).up
        assert round_time(above, link, workers).up - free == 2 * trips
        assert round_time(long, link, workers).up - free == 2 * (workers - 1)


@pytest.mark.parametrize(
    ("ranks", "k", "t"), [(2, 1, 1), (4, 3, 2), (8, 7, 3), (16, 4, 4), (33, 6, 6), (64, 9, 3), (1000, 15, 5)]
)
def test_broadcasts(ranks, k, t):
    """One after the other below 16 ranks, a binomial tree below 64, then one of radix 4."""
    assert copies(ranks) == k and depth(ranks) == t


def test_the_latency_of_an_empty_round():
    for ranks in (2, 4, 100):
        empty = round_time(Costs(0, 0, 0, 0, 0), Link(1e9, 3e-3), ranks)
        assert latency_of(empty.total, ranks) == pytest.approx(3e-3)


def test_the_break_even_makes_the_times_equal():
    slow = replace(SMALL, worker=1e-2)  # compressing takes long
    rate = break_even((300, slow), (200, DENSE), latency=1e-4, workers=4, sharing=2.0)
    times = [
        rounds * round_time(costs, Link(rate, 1e-4), 4, sharing=2.0).total
        for rounds, costs in ((300, slow), (200, DENSE))
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    for factor, wins in ((0.5, True), (2.0, False)):
        link = Link(factor * rate, 1e-4)
        assert (
            300 * round_time(slow, link, 4, sharing=2.0).total
            < 200 * round_time(DENSE, link, 4, sharing=2.0).total
        ) is wins


def test_break_evens_that_are_none():
    assert break_even((100, SMALL), (200, DENSE), 1e-4, 4, 1.0) == inf
    assert break_even((10**6, SMALL), (1, DENSE), 1e-4, 4, 1.0) == 0.0


def test_where_measured_times_cross():
    rates = [1e8, 1e9, 1e10]
    assert crossing(rates, [1, 1, 1], [10, 10, 0.1]) == pytest.approx((10**9.5, 10**9.5))
    assert crossing(rates, [1, 1, 1], [10, 1, 0.1]) == pytest.approx((1e9, 1e9))
    assert crossing(rates, [1, 1, 1], [3, 2, 1.5]) == (1e10, inf)
    assert crossing(rates, [3, 1, 1], [1, 1, 1]) == (0.0, 1e8)


def test_rates_and_times_as_people_write_them():
    assert [parse_rate(t) for t in ("100mbit", "2.5gbit", "64kbit")] == [1e8, 2.5e9, 64e3]
    assert [parse_time(t) for t in ("50us", "10ms", "0s")] == pytest.approx([5e-5, 1e-2, 0.0])
    assert [human_rate(r) for r in (1e8, 2.5e9, 64e3)] == ["100 Mbit/s", "2.5 Gbit/s", "64 kbit/s"]
    assert [human_time(t) for t in (2.5, 0.01, 5e-5)] == ["2.5 s", "10 ms", "50 us"]
    assert [human_rate(r) for r in (999.4e6, 999.6e6, 999.6e3)] == ["999 Mbit/s", "1 Gbit/s", "1 Mbit/s"]
    assert [human_time(t) for t in (0.9994, 0.9996, 0.9996e-3)] == ["999 ms", "1 s", "1 ms"]
    for bad in ("100", "fast", "1 tbit", "-1mbit"):
        with pytest.raises(ConfigError, match="such as 100mbit"):
            parse_rate(bad)


def test_the_same_method_uncompressed():
    plain = uncompressed(parse_method("ef21(topk(k=0.01), gamma=0.1)"))
    assert plain == parse_method("ef21(identity, gamma=0.1, down=lossless(values=f4))")
    assert uncompressed(parse_method("marina(permk, gamma=0.1)")) == parse_method(
        "marina(identity, gamma=0.1, down=lossless(values=f4))"
    )
    assert uncompressed(parse_method("gd(gamma=0.1)")) is None


SUITE = """
title = "A title"
problem = "quadratics(d=1000, lam=0.1)"
workers = 4
rounds = 100
target_grad_norm_sq = 1e-3
[[method]]
label = "GD"
method = "gd(gamma=0.5)"
[[method]]
label = "TopK"
method = "ef21(topk(k=10), gamma=0.5)"
[[method]]
label = "natural"
method = "ef21(quantized_topk(k=10, Q=natural), gamma=0.5)"
"""


def test_methods_of_one_kind_and_step_share_their_counterpart():
    found = contenders(parse_suite(SUITE), lambda what: None)
    assert [(c.label, c.plain, c.server) for c in found] == [
        ("GD", None, "sharded"),
        ("GD, Allreduce", None, "allreduce"),
        ("TopK, uncompressed", None, "sharded"),
        ("TopK, uncompressed, Allreduce", None, "allreduce"),
        ("TopK", "TopK, uncompressed", "sharded"),
        ("natural", "TopK, uncompressed", "sharded"),
    ]


def test_an_uncompressed_version_that_diverges_is_left_out():
    suite, said = parse_suite(SUITE), []
    calm, wild = (parse_method(f"gd(gamma={gamma})") for gamma in (0.5, 100))
    asked = Contender("GD", calm, None, "sharded")
    added = Contender("TopK, uncompressed", wild, None, "sharded", added=True)
    ((kept, known),) = runs_alone(suite, [asked, added], said.append)
    assert kept is asked and tuple(known) == suite.seeds
    assert said[-1] == "TopK, uncompressed: diverged, and is left out"
    with pytest.raises(DivergedError, match="TopK, uncompressed: "):
        runs_alone(suite, [asked, replace(added, added=False)], said.append)


def test_a_run_that_ends_at_its_start_is_not_timed():
    suite = replace(parse_suite(SUITE), target_grad_norm_sq=1e9)
    asked = Contender("GD", parse_method("gd(gamma=0.5)"), None, "sharded")
    with pytest.raises(
        ConfigError, match=r"GD is not timed: its run with seed \d ends at its start, by target"
    ):
        runs_alone(suite, [asked], lambda said: None)


def test_the_table_says_that_an_uncompressed_version_diverged():
    rows = [t for t in timings([1e8]) if t.label != "plain"]
    topk = next(
        line for line in tables(Results(parse_suite(SUITE), rows, [])).splitlines() if "| TopK" in line
    )
    assert topk.split("|")[8].strip() == "diverges"


def test_a_step_size_is_tuned_in_this_process():
    text = SUITE + 'tune = [-2, 0]\n[[method]]\nlabel = "last"\nmethod = "agd(gamma=0.1, mu=0)"\n'
    said: list[str] = []
    found = {c.label: c for c in contenders(parse_suite(text), said.append)}
    tried = [float(line.removeprefix("tuning natural: step ")) for line in said]
    assert list(dict.fromkeys(tried))[:3] == [0.5, 0.25, 0.125]  # further ones where the best lies at an end
    assert min(tried) < found["natural"].method.step < max(tried)


def test_a_step_size_is_tuned_with_the_ranks_that_average_when_it_is_timed():
    """TopK acts on each of their blocks: 32 times the theory's step, the root's best, diverges there."""
    suite = parse_suite(
        'problem = "quadratics(d=30)"\nworkers = 2\nrounds = 300\nevery = 10\ntarget_grad_norm_sq = 1e-2\n'
        '[[method]]\nlabel = "EF21"\nmethod = "ef21(topk(k=3), gamma=theory*4)"\ntune = [0, 1]\n'
    )
    steps = {}
    for server in ("shared", "sharded"):
        (own,) = (c for c in contenders(suite, lambda said: None, server) if c.label == "EF21")
        ((_, runs),) = runs_alone(suite, [own], lambda said: None)
        assert runs[0].status == "target"
        steps[server] = own.method.step
    assert steps["shared"] == "theory*32" != steps["sharded"]


def made_up(label: str, plain: str | None, rate: float, rounds: int, costs: Costs) -> Timing:
    """A timing that is what the model of the root says."""
    seconds = rounds * round_time(costs, Link(rate, 1e-4), 4, sharing=2.0).total
    return Timing(
        rate=rate,
        latency=0.0,
        label=label,
        method="gd(gamma=1)" if label == "GD" else "ef21(topk(k=10), gamma=1)",
        plain=plain,
        server="shared",
        workers=4,
        d=100_000,
        status="target",
        rounds=rounds,
        up_bytes=round(rounds * 4 * costs.up),
        down_bytes=round(rounds * 4 * costs.down),
        grad_norm_sq=1e-4,
        seconds=seconds,
        predicted=seconds,
        alpha=1e-4,
        sharing=2.0,
        costs=costs,
    )


def timings(rates: list[float]) -> list[Timing]:
    slow = replace(SMALL, worker=1e-2)
    cases = [("GD", None, 200, DENSE), ("plain", None, 200, DENSE), ("TopK", "plain", 300, slow)]
    return [
        made_up(label, plain, rate, rounds, costs) for rate in rates for label, plain, rounds, costs in cases
    ]


def test_break_evens_of_timings():
    """On a fine grid of rates the interpolated crossing is the model's."""
    grid = [10 ** (7 + i / 50) for i in range(150)]
    found = break_evens(timings(grid))
    assert [(b.label, b.against) for b in found] == [("TopK", "plain"), ("TopK", "GD")]
    for b in found:
        assert b.low == b.high == pytest.approx(b.predicted, rel=1e-3)


def test_compressing_is_compared_with_acceleration_too():
    """AGD sends what GD does in a third of the rounds: against it compressing wins on slower links only."""
    rows = timings([10 ** (7 + i / 50) for i in range(150)])
    rows += [
        replace(
            t, label="Nesterov", method="agd(gamma=1)", rounds=t.rounds // 3, seconds=t.seconds * 66 / 200
        )
        for t in rows
        if t.label == "GD"
    ]
    by_name = {b.against: b for b in break_evens(rows)}
    assert list(by_name) == ["plain", "GD", "Nesterov"]
    assert by_name["Nesterov"].low == pytest.approx(by_name["Nesterov"].predicted, rel=1e-3)
    assert by_name["Nesterov"].low < by_name["GD"].low


def test_what_did_not_reach_the_target_has_no_break_even():
    late = [replace(t, status="rounds") if t.label == "plain" else t for t in timings([1e8, 1e9])]
    assert [(b.label, b.against) for b in break_evens(late)] == [("TopK", "GD")]
    assert "> 200" in tables(Results(parse_suite(SUITE), late, []))


def test_the_tables_and_json_of_a_comparison():
    rows = timings([1e8, 1e10])
    results = Results(parse_suite(SUITE), rows, break_evens(rows))
    text = tables(results)
    assert "**100 Mbit/s** (an empty message takes 100 us)" in text
    topk = next(line for line in text.splitlines() if line.startswith("| TopK"))
    gain = rows[0].seconds / rows[2].seconds
    assert topk.split("|")[6].strip() == topk.split("|")[8].strip() == f"{gain:.2g}"
    assert "The model is off by 0% (median), 0% at most." in text
    lines = [json.loads(json.dumps(row)) for row in results.to_json()]
    assert [line["kind"] for line in lines] == ["timing"] * 6 + ["break-even"] * 2
    assert lines[0]["costs"]["up"] == 4e5


def test_where_no_method_meets_the_target_there_is_no_figure(tmp_path, monkeypatch):
    suite, found, said = parse_suite(SUITE), timings([1e8, 1e9]), []
    monkeypatch.setattr(linkreport, "time_on_links", lambda *_: found)
    assert publish(suite, [1e8, 1e9], 0.0, tmp_path, said.append).reached
    assert (tmp_path / "link.png").stat().st_size > 10_000 and not said
    found = [t if t.label == "plain" else replace(t, status="rounds") for t in found]  # not of the suite
    assert not publish(suite, [1e8, 1e9], 0.0, tmp_path, said.append).reached
    assert "| > 200 |" in (tmp_path / "link.md").read_text() and not (tmp_path / "link.png").exists()
    assert said == ["no method of the suite met the target: there is no figure"]


def test_a_dense_method_counts_as_fast_as_it_is_by_allreduce():
    """Gains are over the faster way, and so is the rate that the model says."""
    rows = timings([1e8, 1e10])
    summed = [
        replace(t, label="GD, Allreduce", server="allreduce", seconds=t.seconds / 4)
        for t in rows
        if t.label == "GD"
    ]
    results = Results(parse_suite(SUITE), [*rows, *summed], break_evens([*rows, *summed]))
    lines = {
        line.split("|")[1].strip(): line for line in reversed(tables(results).splitlines()) if "|" in line
    }
    assert lines["TopK"].split("|")[6].strip() == f"{rows[0].seconds / 4 / rows[2].seconds:.2g}"
    by_sums = results.break_evens[1]
    assert (by_sums.label, by_sums.against) == ("TopK", "GD, Allreduce")
    own, against = rows[2], summed[0]
    link = Link(by_sums.predicted, own.alpha)
    times = [t.rounds * time_of(t.server)(t.costs, link, t.workers, t.sharing).total for t in (own, against)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    topk, gd = (
        [t.seconds for t in group if t.label == label]
        for group, label in ((rows, "TopK"), (summed, "GD, Allreduce"))
    )
    assert (by_sums.low, by_sums.high) == crossing([1e8, 1e10], topk, gd)


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


@pytest.mark.parametrize("rate", ["0mbit", "-1mbit", "fast", "1"])
def test_a_rate_is_a_positive_number_with_a_unit(rate):
    with pytest.raises(ConfigError, match="allowed: "):
        parse_rate(rate)


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
    expected = round_time(Costs(1000, 4000, 0, 0, 0), Link(1e9, 5e-5), 64).total
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


def test_hosts_are_refused_where_they_cannot_be(monkeypatch):
    monkeypatch.setattr(hosts.sys, "platform", "darwin")
    assert "Linux" in str(hosts.why_not())
    monkeypatch.undo()
    monkeypatch.setattr(hosts.shutil, "which", lambda tool: None)
    assert "ip and tc and unshare and nsenter not found" in str(hosts.why_not())
    monkeypatch.setattr(hosts.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(hosts.os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="takes root"):
        hosts.Hosts(2)
