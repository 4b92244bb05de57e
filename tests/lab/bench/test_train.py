"""Training beside torch: every contestant trains, bytes are counted, ranks agree; no times."""

from __future__ import annotations

import json

import pytest

from mpicomp.base.errors import ConfigError
from mpicomp.lab.bench import hosts
from mpicomp.lab.bench.train.compare import Ask, contest, named
from mpicomp.lab.bench.train.report import _range, checked, publish, tables
from mpicomp.lab.bench.train.target import check, chosen_rates, middle, to_target
from tests.support.launching import mpicomp

SMALL = 10_000  # parameters
LOSS_4 = {"transformer": 4.0}  # in nats a character
OURS = {"dense", "Natural", "EF14, TopK 1 %", "EF21-SGDM, TopK 1 %", "DoubleSqueeze, TopK 1 %"}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="no torch: pip install -e '.[peers]'")


@pytest.fixture(scope="module")
def timed(torch):
    """The figures of all contestants, on two ranks."""
    return {row["label"]: row for row in contest(Ask([("cnn", SMALL)], [None], steps=40), ranks=2)}


def test_every_contestant_takes_its_steps(timed):
    assert OURS < set(timed)
    assert {row["side"] for row in timed.values()} == {"torch", "ours", "floor"}
    assert all(row["steps"] == 40 for row in timed.values())
    assert all(0 < row["low"] <= row["seconds"] <= row["high"] for row in timed.values())


def test_ranks_agree_if_they_communicate(timed):
    assert {label for label, row in timed.items() if not row["ranks_agree"]} == {"no communication"}


def test_bytes_are_counted(timed):
    d = timed["dense"]["d"]
    for direction in ("up_bytes", "down_bytes"):
        dense = timed["dense"][direction]
        assert 4 * d * 2 <= dense <= 1.01 * 4 * d * 2  # two workers
        assert timed["dense, every 8 steps"][direction] == pytest.approx(dense / 8, rel=0.01)
        assert timed["DoubleSqueeze, TopK 1 %"][direction] < dense / 50
    assert timed["Natural"]["up_bytes"] < 0.3 * timed["dense"]["up_bytes"]
    assert timed["EF14, TopK 1 %"]["up_bytes"] < timed["dense"]["up_bytes"] / 50
    assert timed["DDP"]["up_bytes"] == 0  # not known


def test_phases_are_those_of_a_round(timed):
    assert set(timed["EF14, TopK 1 %"]["phases"]) >= {"compress", "wait"}
    assert timed["DDP"]["phases"] == {}


def test_the_tables_and_files(timed, tmp_path):
    text = tables(list(timed.values()))
    assert "2 ranks on one host; cnn, d = 9" in text.splitlines()[0]
    assert all(label in text for label in timed)
    publish(list(timed.values()), tmp_path)
    assert (tmp_path / "train.md").read_text() == text
    assert len((tmp_path / "train.jsonl").read_text().splitlines()) == len(timed)


def test_a_step_is_compared_with_those_that_exchange_as_often():
    torch = [("DDP", 1, 8.0), ("DDP, fp16 hook", 1, 6.0), ("local SGD, every 8 steps", 8, 2.0)]
    ours = [("dense", 1, 3.0), ("dense, every 8 steps", 8, 1.0)]
    bare = {
        "rate": None,
        "ranks": 4,
        "optimiser": "sgd",
        "model": "cnn",
        "d": 10,
        "low": 1.0,
        "high": 9.0,
        "phases": {},
    }
    sent = {"up_bytes": 1.0, "down_bytes": 1.0, "link_bytes": 0.0}
    rows = [
        {"label": label, "side": side, "every": every, "seconds": seconds, **bare, **sent}
        for side, group in (("torch", torch), ("ours", ours))
        for label, every, seconds in group
    ]
    lines = {line.split(" | ")[0]: line.split(" | ") for line in tables(rows).splitlines()}
    assert lines["| dense, ours"][3:5] == ["2.67", "2.00"]
    assert "d = 10**" in tables(rows) and "d = 10, AdamW**" in tables([rows[0] | {"optimiser": "adamw"}])
    assert lines["| dense, every 8 steps, ours"][3:5] == ["8.00", "2.00"]


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
@pytest.mark.parametrize("labels", [("DDP", "dense"), ("local SGD, every 8 steps", "dense, every 8 steps")])
def test_our_dense_mean_trains_as_torch_s_does(torch, labels, optimiser):
    """The same batches, and means of the same vectors: after 40 steps scores differ by rounding."""
    ask = Ask([("transformer", 0)], [None], targets={"transformer": 100}, labels=labels, optimiser=optimiser)
    theirs, ours = (row["curve"][0][2] for row in contest(ask, ranks=2))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_training_to_a_target(torch):
    """Contestants that communicate learn: from 4.6 nats, with equal chances, to less than 4."""
    rows = list(contest(Ask([("transformer", 0)], [None], targets=LOSS_4, limit=60.0), ranks=2))
    assert len(rows) >= 10
    assert [row["label"] for row in rows if not row["reached"]] == []
    assert all(row["curve"][-1][2] <= 4.0 and row["seconds"] > 0 for row in rows)


def test_steps_to_a_target_times_seconds_a_step(torch, tmp_path):
    """Dense training is the same with DDP and with us; a run takes the rate of the fewest steps."""
    ask = Ask(
        [("transformer", 0)],
        [None],
        targets=LOSS_4,
        labels=["DDP", "dense"],
        grid=(1e-4, 0.05),
        seeds=(1, 2),
        tuning=(0, 3),
        most=120,
    )
    said: list[str] = []
    ddp, dense = rows = list(to_target(ask, ranks=2, say=said.append))
    steps = ddp["all_steps"][0]
    assert any(line.startswith(f"DDP: learning rate 0.05, seed 1: {steps} steps, ") for line in said)
    assert any(line.endswith("target missed") for line in said)  # with the rate of 1e-4
    assert ddp["all_steps"] == dense["all_steps"] and ddp["lr"] == dense["lr"] == 0.05
    for row in rows:
        assert row["reached"] and len(row["all_steps"]) == 2
        assert row["seconds"] == pytest.approx(row["steps"] * row["per_step"])
    assert ddp["messages"] == [None, None]
    steps = dense["all_steps"][0]
    assert dense["messages"][0] == pytest.approx(
        2 * 2 * 4 * dense["d"] * steps, rel=0.02
    )  # two workers, up and down
    whole = check(dense)
    assert whole["steps"] == steps  # the same training, step for step
    publish(rows, tmp_path, checked(dense, whole))
    assert f"a whole training took {whole['seconds']:.3g} s" in (tmp_path / "train.md").read_text()
    assert (tmp_path / "train.png").stat().st_size > 10_000


def test_rows_come_as_they_are_done_and_the_ranks_end_with_their_reader(torch):
    """The second training would take for ever, for its learning rate is next to nothing."""
    ask = Ask(
        [("transformer", 0)],
        [None],
        targets=LOSS_4,
        limit=1e9,
        labels=["DDP", "dense"],
        learning={"dense": (1e-12, 1.0)},
    )
    rows = contest(ask, ranks=2)
    assert next(rows)["label"] == "DDP"
    rows.close()  # waits for the launcher, which waits for its ranks


def test_the_network_learns_the_bundled_digits(torch):
    ask = Ask([("cnn", SMALL)], [None], targets={"cnn": 0.8}, images="digits", labels=["dense"], most=600)
    (row,) = contest(ask, ranks=2)
    assert row["reached"] and 0.8 <= row["curve"][-1][2] <= 1


def test_a_score_is_the_sum_over_ranks(torch):
    from mpicomp.lab.bench.train.models import task

    job = task("cnn", SMALL, "digits")
    model = job.model()
    shares = [job.score(model, rank, 3) for rank in range(3)]
    assert sum(shares) == pytest.approx(job.score(model))


def test_the_rates_of_the_fewest_steps_are_chosen():
    def row(label, lr, steps, reached, score, outer=1.0):
        curve = [] if score is None else [(1.0, steps, score)]
        rates = {"label": label, "model": "cnn", "lr": lr, "outer": outer}
        return rates | {"steps": steps, "reached": reached, "curve": curve}

    rows = [
        row("a", 0.1, 80, True, 0.9),
        row("a", 0.2, 40, True, 0.8),
        row("a", 0.4, 40, False, 0.99),
        row("b", 0.1, 120, False, 0.5),
        row("b", 0.2, 120, False, 0.6),
        row("b", 0.4, 0, False, None),
    ]
    assert chosen_rates(rows) == {"a": (0.2, 1), "b": (0.2, 1)}
    assert chosen_rates([*rows, row("a", 0.2, 120, True, 0.8), row("a", 0.1, 120, True, 0.8)]) == {
        "a": (0.1, 1),  # the slowest seeds take as long
        "b": (0.2, 1),
    }
    assert chosen_rates([*rows, row("a", 0.2, 40, False, 0.7)])["a"] == (0.1, 1)
    assert chosen_rates([*rows, row("b", 0.1, 80, True, 0.9, outer=0.5)])["b"] == (0.1, 0.5)
    same = [row("b", 0.1, 80, True, 0.9, outer) for outer in (0.7, 0.5)]
    assert chosen_rates([*rows, *same])["b"] == (0.1, 0.5)


def test_outer_rates_are_tried_with_each_learning_rate(torch):
    """With three outer rates there are three trainings a learning rate, and the last has the chosen pair."""
    label = "DiLoCo, every 8 steps"
    ask = Ask([("transformer", 0)], [None], targets=LOSS_4, labels=[label], grid=(0.05,), most=80, seeds=(1,))
    said: list[str] = []
    (row,) = to_target(ask, ranks=2, say=said.append)
    tried = [line.split("outer ")[1].split(",")[0] for line in said[:-1]]
    assert tried[:3] == ["0.7", "0.5", "0.3"] and tried[3] == f"{row['outer']:g}" and len(tried) == 4


def test_a_training_that_diverges_has_no_number_of_steps(torch):
    ask = Ask(
        [("transformer", 0)], [None], targets=LOSS_4, labels=["dense"], grid=(1e6,), most=80, seeds=(1,)
    )
    (row,) = to_target(ask, ranks=2)
    assert not row["reached"] and row["diverged"] == [True] and row["all_steps"] == [None]
    assert "| diverged |" in tables([row])


def test_a_panel_for_each_model_and_place_and_a_number_at_each_curve(torch):
    """A contestant that diverged at once has no curve; of the others six are shown, plain DDP among them."""
    from mpicomp.lab.bench.figures import draw_training

    def row(label, model, rate, seconds):
        curve = [(seconds / 2, 40, 0.7), (seconds, 80, 0.9)] if seconds else []
        return {"label": label, "model": model, "d": 9, "rate": rate, "ranks": 4, "target": 0.85} | {
            "reached": bool(curve),
            "seconds": seconds,
            "curve": curve,
            "link_per_step": 1000.0 * seconds if rate else 0.0,
        }

    labels = {"at once": 0.0, **{f"m{i}": 1.0 + i for i in reversed(range(7))}, "DDP": 90.0}
    rows = [
        row(label, model, rate, seconds)
        for model in ("cnn", "transformer")
        for rate in (None, 1e8, 1e9)
        for label, seconds in labels.items()
    ]
    figure = draw_training(rows)
    assert len(figure.axes) == 8  # the last one of each model has bytes
    for axes in figure.axes:
        (curve,) = (line for line in axes.lines if line.get_label() == "2  m0")
        of_bytes = axes in (figure.axes[3], figure.axes[7])
        assert list(curve.get_xdata()) == ([40_000.0, 80_000.0] if of_bytes else [0.5, 1.0])
        assert axes.get_xlabel() == ("bytes through the busiest link" if of_bytes else "seconds of training")
        assert {text.get_text() for text in axes.texts} == set("123456")
        assert axes.get_xscale() == "log"  # DDP takes 90 s, half of the others less than a fifth of that
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "1  DDP",
        *(f"{i + 2}  m{i}" for i in range(5)),
    ]


def test_where_every_first_seed_diverged_there_is_no_figure(torch, tmp_path, monkeypatch):
    """Not even an old one.  And where one model has scores, the other one has no panel."""
    from mpicomp.lab.bench.figures import draw_training
    from mpicomp.lab.bench.train import report

    monkeypatch.setattr(report, "tables", lambda rows: "")
    row = {"label": "DDP", "model": "cnn", "d": 9, "rate": None, "ranks": 4, "target": 0.85}
    row |= {"reached": False, "seconds": 2.0, "curve": []}
    (tmp_path / "train.png").touch()
    publish([row], tmp_path)
    assert (tmp_path / "train.md").exists() and not (tmp_path / "train.png").exists()
    scored = row | {"model": "transformer", "curve": [(1.0, 40, 3.0), (2.0, 80, 2.5)]}
    assert len(draw_training([row, scored]).axes) == 1


def test_each_seed_is_told_by_itself():
    """One has reached the target, one ran out of steps, one diverged."""
    row = {"all_steps": [None, 80, None], "most": 400, "diverged": [False, False, False]}
    assert _range(row, 1.0) == "80 to > 400"
    assert _range(row | {"diverged": [True, False, False]}, 0.5) == "40 to diverged"
    assert _range(row | {"all_steps": [80, 80, 80]}, 1.0) == "80"


def test_a_seed_that_misses_counts_as_more_than_any():
    assert middle([40, None, 80]) == 80
    assert middle([40, None, None]) is None and middle([40, None]) is None


def test_across_hosts_torch_s_bytes_cross_the_link(torch):
    if (reason := hosts.why_not()) is not None:
        pytest.skip(reason)
    ask = Ask([("cnn", SMALL)], [1e9], labels=["no communication", "DDP", "dense"])
    floor, ddp, dense = contest(ask, ranks=2)
    for row in (ddp, dense):  # each rank sends and receives d values at least
        assert row["link_bytes"] > 4 * row["d"]
    assert floor["link_bytes"] < 1000


@pytest.mark.parametrize("d", ["many", "10", "1e300"])
def test_the_command_refuses(torch, d):
    done = mpicomp("bench", "train", "--links", "", "--no-transformer", "--d", d)
    assert done.returncode != 0 and "allowed" in done.stderr


def test_a_learning_rate_is_a_positive_number(torch):
    done = mpicomp("bench", "train", "--to-target", "--learning-rates", "0.1,-1")
    assert done.returncode != 0 and "'-1'; allowed: a positive" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("traffic", "--workers", "4,some"), "--workers 'some'; allowed: whole numbers from 1"),
        (("serving", "--d", ""), "--d ''; allowed: whole numbers from 1"),
        (("train", "--links", "1gb"), "rate '1gb'; allowed"),
        # Steps were timed, as without it, on images of random squares.
        (("train", "--images", "digits"), "--images is for a target: add --to-target"),
        (("train", "--seeds", "3"), "--seeds is for a target: add --to-target"),
        (("link", "link_digits", "--rate", ""), "rate ''; allowed"),
    ],
)
def test_values_that_do_not_fit_are_refused_one_by_one(arguments, said):
    done = mpicomp("bench", *arguments)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1


def test_contestants_are_chosen_by_their_names(torch):
    assert {"no communication", "DDP", "Dion, rank 1/4", "1-bit Adam"} | OURS <= set(named(()))
    assert set(named(())) - set(named((), "adamw")) == {
        *named(["Dion"]),
        *named(["1-bit Adam"]),
        *named(["EF21-SGDM"]),
    }
    with pytest.raises(ConfigError, match="no contestant has 'Dion' in its name"):
        named(["Dion"], "adamw")
    for label in ("Dion, rank 1/4", "nobody"):
        with pytest.raises(ConfigError, match=f"no contestant with adamw is called '{label}'"):
            next(contest(Ask([("cnn", SMALL)], [None], labels=[label], optimiser="adamw")))
    with pytest.raises(ConfigError, match="optimiser='adam'; allowed: 'sgd', 'adamw'"):
        Ask([("cnn", SMALL)], [None], optimiser="adam")
    assert named(["Dion", "fp16"]) == ["DDP, fp16 hook", "Dion, rank 1/4"]
    local, delayed = named(["every 8 steps"]), named(["delayed by 2"])
    assert "DiLoCo, every 8 steps" in local and "DiLoCo, every 8 steps" not in delayed
    assert all("every 8 steps" in label for label in local) and set(delayed) < set(local)
    with pytest.raises(ConfigError, match=r"no contestant has 'dion' in its name: no communication; DDP"):
        named(["Dion", "dion"])


def test_a_name_of_contestants_that_are_only_timed_is_refused_with_a_target(torch):
    """Nothing was trained, the table was empty, and the exit status 0."""
    for text in ("no communication", "overlapped"):
        assert named([text])
        with pytest.raises(ConfigError, match=f"no contestant that trains to a target has '{text}'"):
            named([text], to_target=True)
    done = mpicomp("bench", "train", "--links", "", "--to-target", "--only", "overlapped")
    assert done.returncode == 1 and "trains to a target has 'overlapped'" in done.stderr
    assert set(named(())) - set(named((), to_target=True)) == {"no communication"} | {
        *("EF21-SGDM, TopK 1 %, overlapped", "EF21-SGDM, TopK 1 %, by the root"),
        *("DoubleSqueeze, TopK 1 %, overlapped", "PowerSGD, rank 2, by Allreduce"),
    }


def test_a_training_takes_no_more_steps_than_allowed(torch):
    """A score is taken after each 40 steps: 119 allow two of them, where there were 120 steps."""
    ask = Ask([("cnn", SMALL)], [None], targets={"cnn": 1.0}, images="digits", most=119, labels=["DDP"])
    (row,) = contest(ask, ranks=2)
    assert not row["reached"] and [step for _, step, _ in row["curve"]] == [40, 80] and row["steps"] == 80


def test_without_torch_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="torch"):
        next(contest(Ask([("cnn", SMALL)], [None])))


def test_the_command_prints_json(torch):
    one = ["--links", "", "--no-transformer", "--d", "1e4", "--steps", "30"]
    done = mpicomp("bench", "train", *one, "--only", "DDP, fp16", "--only", "EF14", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["label"] for row in rows] == ["DDP, fp16 hook", "EF14, TopK 1 %"]
    assert [row["ranks"] for row in rows] == [4, 4]
