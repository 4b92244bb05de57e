"""Training in stages is the runs one after the other, on any number of ranks."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21SGDM, GD, TopK
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.images import ImageModel, train
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from mpicomp.images.training import RECIPES
from tests.support.launching import mpicomp as command

METHOD = EF21SGDM(TopK(k=0.05), gamma=9.0, eta=0.1, batch=16)
STAGES = ((1.0, 8), (0.25, 5))


@pytest.mark.parametrize(
    "problem", [LocalImages("digits", hidden=3), FullImages("digits", hidden=3)], ids=repr
)
def test_each_stage_starts_where_the_one_before_ended(problem, tmp_path):
    x, up, seen = None, 0, []
    for step, rounds in STAGES:
        run = mpicomp.run(METHOD.with_step(step), problem, workers=3, rounds=rounds, seed=5, x0=x)
        x, up = run.x, up + run.rows[-1].up_bytes
    found = train(
        problem,
        METHOD,
        STAGES,
        workers=3,
        seed=5,
        out=tmp_path,
        progress=lambda round, row: seen.append(round),
    )
    assert found.model.x.tobytes() == x.tobytes() and found.up_bytes == up and not found.interrupted
    assert ImageModel.load(tmp_path).x.tobytes() == x.tobytes()
    assert seen == sorted(seen) and seen[-1] == 13
    assert [mpicomp.load(tmp_path / f"stage-{k}").rows[-1].round for k in (1, 2)] == [8, 5]


@pytest.mark.parametrize("stopped", [3, 8, 11])
def test_a_training_that_was_interrupted_is_resumed_bit_for_bit(stopped, tmp_path):
    """Within a stage, at its end, and within the next; then a second time, when it is complete."""
    problem = LocalImages("digits", hidden=3)
    settings = {"method": METHOD, "stages": STAGES, "workers": 3, "seed": 5}
    whole = train(problem, **settings, out=tmp_path / "whole")

    def interrupt(round, row):
        if round == stopped:
            signal.raise_signal(signal.SIGINT)

    cut = train(problem, **settings, out=tmp_path / "cut", progress=interrupt)
    assert cut.interrupted and not (tmp_path / "cut/model.npz").exists()
    with pytest.raises(RecordError, match="stage-1 is already there"):
        train(problem, **settings, out=tmp_path / "cut")
    for resume in (True, None):
        found = train(problem, **settings, out=tmp_path / "cut", resume=resume)
        assert (found.value, found.up_bytes, found.down_bytes) == (
            whole.value,
            whole.up_bytes,
            whole.down_bytes,
        )
        assert found.model.x.tobytes() == whole.model.x.tobytes() and not found.interrupted
        assert ImageModel.load(tmp_path / "cut").x.tobytes() == whole.model.x.tobytes()


OTHER = [
    STAGES[:1],
    (*STAGES, (0.1, 2)),
    (STAGES[0], (0.25, 9)),
    ((1.0, 9), STAGES[1]),
    ((0.5, 8), STAGES[1]),
]


@pytest.mark.parametrize("other", OTHER)
def test_a_training_is_resumed_by_its_own_stages_before_any_round(other, tmp_path):
    """Its model was replaced by one of other stages, or a stage was played on, which no resume could undo."""
    problem = LocalImages(np.arange(96, dtype=np.uint8).reshape(6, 4, 4), hidden=2)
    method = METHOD.with_step(1.0)
    train(problem, method, STAGES, workers=1, out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RecordError, match=r"holds a training by other stages: 8 rounds of .* Give these"):
        train(problem, method, other, workers=1, out=tmp_path, resume=True)
    train(problem, method, STAGES, workers=1, out=tmp_path, resume=True)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path for path in before if before[path] != after[path]} <= {
        path for path in before if path.name in ("run.json", "manifest.json")
    }


def test_a_training_is_resumed_only_where_there_is_one(tmp_path):
    problem = LocalImages(np.zeros((3, 4, 4), dtype=np.uint8), hidden=2)
    settings = {"method": METHOD, "stages": STAGES, "workers": 1}
    with pytest.raises(RecordError, match="holds no run to resume"):
        train(problem, **settings, out=tmp_path / "none", resume=True)
    with pytest.raises(ConfigError, match="resume needs the folder"):
        train(problem, **settings, resume=True)
    (tmp_path / "model.npz").write_text("mine")
    with pytest.raises(RecordError, match=r"holds a training by other stages: none"):
        train(problem, **settings, out=tmp_path, resume=None)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_on_two_ranks_the_model_is_the_same(tmp_path):
    text = "ef21sgdm(C=topk(k=0.05), gamma=1, eta=0.1, batch=16)"
    for ranks in ("1", "2"):
        done = command(
            *("images", "train", "digits", "--hidden", "3", "--method", text, "--stages", "1:6,0.5:3"),
            *("--ranks", ranks, "--out", str(tmp_path / ranks)),
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("bits a pixel on training pixels") == 1
    assert np.array_equal(*(ImageModel.load(tmp_path / ranks).x for ranks in ("1", "2")))
    again = command(
        *("images", "train", "digits", "--hidden", "3", "--method", text, "--stages", "1:6,0.5:3"),
        *("--resume", "--out", str(tmp_path / "2")),
    )
    assert (again.returncode, again.stdout) == (0, done.stdout)


def test_the_recipes_are_those_of_each_kind():
    for kind, (method, stages) in RECIPES.items():
        assert method.C.k == {"local": 0.01, "full": 0.05}[kind]
        steps = [step for step, _ in stages]
        assert steps == sorted(steps, reverse=True) and sum(rounds for _, rounds in stages) == 10_000


def test_stages_that_are_none_are_refused():
    for wrong in ("1", "1:", "a:5", "1:2.5", ""):
        done = command("images", "train", "digits", "--stages", wrong, "--out", "nowhere")
        assert done.returncode == 2 and "such as 1:5000" in done.stderr
    with pytest.raises(ConfigError, match="rounds"):
        train(LocalImages("digits", hidden=3), METHOD, ((1.0, 0),))
    for wrong in ([], [(1.0,)], [1.0, 5], 5, "1:5"):
        with pytest.raises(ConfigError, match=r"^stages=.*; allowed: pairs of a step size and rounds"):
            train(LocalImages("digits", hidden=3), METHOD, wrong)


def test_a_method_may_be_a_text_and_a_problem_is_one_of_images():
    """The text raised an AttributeError, another problem a StopIteration."""
    problem = LocalImages(np.zeros((3, 4, 4), dtype=np.uint8), hidden=2)
    of_text, of_method = (train(problem, given, [(1.0, 1)], workers=1) for given in ("gd", GD()))
    assert np.array_equal(of_text.model.x, of_method.model.x)
    with pytest.raises(ConfigError, match="the problem is 3; allowed: a LocalImages or a FullImages"):
        train(3, "gd", [(1.0, 1)])


@pytest.mark.parametrize("last", [(0.0, 5), (0.3, 0), (float("nan"), 5)])
def test_a_later_stage_that_cannot_run_is_refused_before_the_first(last, tmp_path):
    problem = LocalImages(np.zeros((3, 4, 4), dtype=np.uint8), hidden=2)
    with pytest.raises(ConfigError, match=r"allowed: (a positive number|an integer from 1)"):
        train(problem, METHOD, [(1.0, 3), last], workers=1, out=tmp_path / "trained")
    assert not (tmp_path / "trained").exists()


@pytest.mark.parametrize("held", ["model.npz", "stage-1", "stage-2"])
def test_a_folder_with_a_part_of_a_training_is_refused_before_the_first_stage(held, tmp_path):
    """A model of another training was overwritten, and a stage in the way was met after all rounds before."""
    problem = LocalImages(np.zeros((3, 4, 4), dtype=np.uint8), hidden=2)
    (tmp_path / held).write_text("mine")
    with pytest.raises(RecordError, match=rf"{held} is already there. Choose another folder"):
        train(problem, METHOD, STAGES, workers=1, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [held]
    assert (tmp_path / held).read_text() == "mine"


def test_two_ranks_refuse_a_folder_with_a_model_in_one_line(tmp_path):
    (tmp_path / "model.npz").write_text("mine")
    done = command(
        *("images", "train", "digits", "--hidden", "3", "--stages", "1:2", "--ranks", "2"),
        *("--out", str(tmp_path)),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == (
        f"mpicomp: {tmp_path}/model.npz is already there. Choose another folder for the training."
    )
    assert (tmp_path / "model.npz").read_text() == "mine"
