"""Timings on links: the methods that are timed, their break-evens, and the reports.  No hosts, no times."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.lab.bench import hosts, linkreport
from mpicomp.lab.bench.break_even import crossing
from mpicomp.lab.bench.contenders import Contender, contenders, uncompressed
from mpicomp.lab.bench.cost_model import (
    ByRoot,
    Costs,
    Link,
    model_of,
)
from mpicomp.lab.bench.link import runs_alone
from mpicomp.lab.bench.linkreport import Results, publish, tables
from mpicomp.lab.bench.timings import Timing, break_evens
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.text.config import parse_method

SMALL = Costs(up=1000.0, down=4000.0, worker=3e-3, server=1e-4, replica=2e-4)
DENSE = Costs(up=4e5, down=4e5, worker=2e-3, server=5e-5, replica=1e-4)


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
    suite = parse_suite(SUITE.replace("target_grad_norm_sq = ", "target_grad_norm_sq = 1e9 # "))
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
    seconds = rounds * ByRoot().time(costs, Link(rate, 1e-4), 4, sharing=2.0).total
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
    times = [
        t.rounds * model_of(t.server).time(t.costs, link, t.workers, t.sharing).total for t in (own, against)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    topk, gd = (
        [t.seconds for t in group if t.label == label]
        for group, label in ((rows, "TopK"), (summed, "GD, Allreduce"))
    )
    assert (by_sums.low, by_sums.high) == crossing([1e8, 1e10], topk, gd)


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
