"""A limit or an option of a run is written once: ``run`` and the command line follow its dataclass."""

from __future__ import annotations

import inspect
from dataclasses import asdict, fields

import numpy as np
import pytest
from click.testing import CliRunner

import mpicomp
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.lab.cli import bench, root
from mpicomp.lab.cli.options import RESUME
from mpicomp.lab.cli.work import run as run_command
from mpicomp.lab.cli.work import submit as submit_command
from mpicomp.runtime.limits import Limits
from mpicomp.runtime.observation import Observation
from mpicomp.runtime.placement import Placement

FIELDS = [pytest.param(cls, f, id=f.name) for cls in (Limits, Observation, Placement) for f in fields(cls)]


@pytest.mark.parametrize(("cls", "field"), FIELDS)
def test_a_field_is_a_keyword_of_run_with_the_same_default(cls, field):
    keyword = inspect.signature(mpicomp.run).parameters[field.name]
    assert keyword.kind is keyword.KEYWORD_ONLY
    assert keyword.default == field.default == getattr(cls(), field.name)


@pytest.mark.parametrize("command", [run_command, submit_command], ids=["run", "submit"])
@pytest.mark.parametrize(("cls", "field"), FIELDS)
def test_a_field_is_an_option_of_the_command_line_with_the_same_default(cls, field, command):
    flag = "--" + field.name.replace("_", "-")
    assert flag in next(o for o in command.params if o.name == field.name).opts
    context = command.make_context("run", ["--problem", "quadratics(d=5)", "--method", "gd(gamma=0.1)"])
    assert context.params[field.name] == field.default


@pytest.mark.parametrize(("cls", "field"), [param for param in FIELDS if param.id != "verify_bytes"])
def test_run_refuses_what_the_value_refuses(cls, field):
    wrong = -1 if cls is Limits else "?"
    with pytest.raises(ConfigError) as alone:
        cls(**{field.name: wrong})
    with pytest.raises(ConfigError) as in_run:
        mpicomp.run(mpicomp.GD(gamma=0.1), mpicomp.problems.Quadratics(d=5), workers=2, **{field.name: wrong})
    assert str(in_run.value) == str(alone.value) and field.name in str(alone.value)


def test_limits_are_kept_as_plain_numbers():
    assert type(Limits(rounds=np.int64(7)).rounds) is int
    assert type(Observation(every=np.int32(2)).every) is int
    assert [type(k) for k in Observation(at=np.array([3, 1])).at] == [int, int]
    assert asdict(Limits(7)) == {"rounds": 7, "hold": 0.0} | dict.fromkeys(
        ("target_grad_norm_sq", "max_bytes", "max_seconds")
    )
    assert asdict(Observation()) == {"every": 10, "at": None, "observe": "full"}


@pytest.mark.parametrize("name", ["max_bytes", "max_seconds"])
def test_a_limit_of_zero_ends_a_run_at_its_start(name):
    """A script that gives what is left of a budget may give 0; the command takes what Python takes."""
    asked = {"workers": 2, name: 0}
    assert mpicomp.run(mpicomp.GD(gamma=0.1), mpicomp.problems.Quadratics(d=5), **asked).status == name
    command = ["run", "--problem", "quadratics(d=5)", "--method", "gd", f"--{name.replace('_', '-')}", "0"]
    done = CliRunner().invoke(root.cli, command, catch_exceptions=False)
    assert f"0 rounds ({name})" in done.output
    for less in (-1, float("nan")):
        with pytest.raises(ConfigError, match=f"{name}={less}; allowed: a number that is not negative"):
            Limits(**{name: less})


def test_the_options_of_resuming_give_each_value_of_the_keyword():
    assert [*RESUME.values()] == [False, True, None]


@pytest.mark.parametrize(
    ("option", "value"), [("--until-accuracy", "nan"), ("--until-accuracy", "1.5"), ("--max-seconds", "nan")]
)
def test_no_number_and_one_beyond_the_limits_are_refused(option, value):
    """A training to the accuracy nan would never end."""
    done = CliRunner().invoke(root.cli, ["bench", "train", "--to-target", option, value])
    assert done.exit_code == 2 and f"Invalid value for '{option}'" in done.output


@pytest.mark.parametrize("command", ["serving", "train"])
def test_a_benchmark_of_no_place_is_refused(command):
    done = CliRunner().invoke(root.cli, ["bench", command, "--links", "", "--no-one-host"])
    assert isinstance(done.exception, ConfigError) and "leaves nothing to time" in str(done.exception)


@pytest.mark.parametrize("command", [["train", "--to-target"], ["link", "link_digits"], ["traffic"]])
def test_a_folder_that_cannot_be_written_is_refused_before_the_benchmark(command, tmp_path):
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(root.cli, ["bench", *command, "--out", str(tmp_path / "file")])
    assert isinstance(done.exception, RecordError) and "cannot write" in str(done.exception)


@pytest.mark.parametrize(
    "command",
    [
        *(["bench", name] for name in ("kernels", "traffic", "serving", "train")),
        ["bench", "link", "link_digits"],
        ["bench", "images", "digits", "--model", "model.npz"],
        ["predict", "--up", "1", "--down", "1", "--workers", "4", "--rate", "1gbit"],
    ],
    ids=" ".join,
)
def test_what_one_process_measures_is_refused_on_several_ranks(command, monkeypatch):
    """Each rank timed it while the others did, and printed its own table."""
    monkeypatch.setattr(root, "launched_ranks", lambda: 3)
    done = CliRunner().invoke(root.cli, command)
    said = f"^{command[0]}.* is for one process, .*; the launcher has started 3. Run it without a launcher."
    with pytest.raises(ConfigError, match=said):
        raise done.exception


@pytest.mark.parametrize(("started", "words", "ranks"), [(None, [], 4), (1, [], 4), (3, [], 3), (1, [5], 5)])
def test_benchmarks_on_ranks_take_those_that_a_launcher_has_started(started, words, ranks, monkeypatch):
    """On three ranks the default of 4 was refused, with the advice to leave --ranks out."""
    for module in (root, bench):
        monkeypatch.setattr(module, "launched_ranks", lambda: started)
    monkeypatch.setattr(bench, "relaunch", lambda count: relaunched.append(count))
    monkeypatch.setattr("mpicomp.lab.bench.round.round_overhead", lambda: here.append(started) or [])
    relaunched, here = [], []
    done = CliRunner().invoke(root.cli, ["bench", "round", *(f"--ranks={count}" for count in words)])
    assert done.exit_code == 0, done.exception
    assert (here, relaunched) == (([3], []) if ranks == 3 else ([], [ranks]))


def test_a_benchmark_of_no_model_is_refused():
    done = CliRunner().invoke(root.cli, ["bench", "train", "--d", "", "--no-transformer"])
    assert isinstance(done.exception, ConfigError) and "leaves nothing to train" in str(done.exception)
