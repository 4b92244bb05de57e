"""A comparison is not continued on other data, blocks or methods, and what has no rows is run again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import DataError, RecordError
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.fairness import caveats
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.problems import LeastSquares
from mpicomp.runtime.placement import Placement
from tests.support.suites import FAIR


def write_data(path, modulus: int) -> None:
    """40 samples of 8 features, which differ with ``modulus``."""
    rows = [" ".join(f"{j}:{(i * j) % modulus}" for j in range(1, 9)) for i in range(40)]
    path.write_text("".join(f"{i % 2} {row}\n" for i, row in enumerate(rows)))


def test_a_comparison_whose_data_change_between_two_runs_ends(tmp_path, monkeypatch):
    """Else one table would compare a method on one file with a method on another."""
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_text("a,b,y\n1,2,3\n2,1,-1\n3,5,1\n")
    problem = LeastSquares("data.csv:y", lam=0.1)
    methods = {"first": GD(gamma=0.01), "second": GD(gamma=0.02)}

    def change(stage, round, row):
        if round == 4:
            Path("data.csv").write_text("a,b,y\n1,2,3\n2,1,-1\n3,5,2\n")

    options = {"workers": 2, "rounds": 4, "out": "out"}
    for folder in ("out", None):
        with pytest.raises(DataError, match="data have changed since this comparison began"):
            mpicomp.compare(methods, problem, **options | {"out": folder}, progress=change)
        Path("data.csv").write_text("a,b,y\n1,2,3\n2,1,-1\n3,5,1\n")
    done = mpicomp.compare(methods, problem, **options, resume=True)
    assert [o.summary["status"] for o in done.outcomes] == ["rounds", "rounds"]
    path = Path("out/runs/second/seed-0/run.json")  # as of a part on another machine, with its own file
    path.write_text(path.read_text().replace(problem.fingerprint(), "0" * 64))
    with pytest.raises(RecordError, match=r"are of other data each.*out/runs/second/seed-0: 0000"):
        mpicomp.load("out")


def test_a_comparison_is_not_continued_on_other_data(tmp_path):
    """Neither where a run is missing, nor where nothing but a tuning is there."""
    data, out = tmp_path / "data.svm", tmp_path / "out"
    write_data(data, modulus=7)
    text = FAIR.replace("quadratics(d=20, noise=0.5, lam=0.05)", f"logistic(data='{data}', lam=0.1)")
    text = text.replace('gamma=0.2)"', 'gamma=0.2)"\ntune = [0, 1]')
    compare(parse_suite(text), out)
    (out / "runs" / "gd" / "seed-3" / "summary.json").unlink()
    before = json.loads((out / "tuning.json").read_text())
    write_data(data, modulus=5)

    def refused(by: str) -> None:
        said = rf"{by} is of other data: their fingerprint is .*Put the data back"
        with pytest.raises(RecordError, match=said):
            compare(parse_suite(text), out, resume=True)
        assert json.loads((out / "tuning.json").read_text()) == before

    refused(by=r"tuning\.json")
    tuning = out / "runs" / "gd" / "tuning.json"
    kept = tuning.read_text()
    tuning.unlink()
    refused(by="seed-0")
    for run in (out / "runs").glob("*/seed-*"):
        shutil.rmtree(run)
    tuning.write_text(kept)
    refused(by=r"tuning\.json")


def test_a_comparison_is_not_continued_with_other_blocks(tmp_path):
    """Compressors act on each block alone: one table would have methods of other iterates and bytes."""
    out, text = tmp_path / "out", FAIR.replace('gamma=0.2)"', 'gamma=0.2)"\ntune = [0, 1]')
    four = Placement(server="sharded", blocks=4)
    compare(parse_suite(text), out, placement=four)
    runs, tuning = out / "runs", out / "runs" / "gd" / "tuning.json"
    shutil.rmtree(runs / "gd" / "seed-3")
    for other in (Placement(), Placement(server="sharded", blocks=2)):
        for held in (tuning, runs):
            said = rf"{held}.* is of runs with 4 blocks.* they have {other.block_count(3)} block.* --blocks"
            with pytest.raises(RecordError, match=said):
                compare(parse_suite(text), out, resume=True, placement=other)
            if held == tuning:  # then the runs tell it
                kept = tuning.read_text()
                tuning.unlink()
        tuning.write_text(kept)
    compare(parse_suite(text), out, resume=True, placement=four)
    tuning.write_text(json.dumps({"trials": json.loads(kept)["trials"]}))  # as older versions wrote it
    compare(parse_suite(text), out, resume=True, placement=four)
    path = runs / "gd" / "seed-3" / "run.json"  # as of a part that was started otherwise
    whole = path.read_text()
    for blocks in ("2", "damaged"):
        path.write_text(whole.replace('"blocks": "4"', f'"blocks": "{blocks}"'))
        with pytest.raises(RecordError, match=rf"in several ways: .*seed-3: {blocks} blocks of the"):
            mpicomp.load(out)


def test_a_run_whose_rows_are_gone_is_missing(tmp_path):
    suite = parse_suite(FAIR)
    whole = compare(suite, tmp_path)
    (tmp_path / "runs" / "gd" / "seed-1" / "rows.csv").unlink()
    lines = mpicomp.lab.experiment.folder.read_comparison(tmp_path).lines()
    assert (lines[0].finished, lines[0].missing) == (4, 1)
    assert "Of 5 seeds, runs are missing: 1 of GD." in caveats(lines, suite)
    again = compare(suite, tmp_path, resume=True)
    assert [o.summary["iterates_sha256"] for o in again.outcomes] == [
        o.summary["iterates_sha256"] for o in whole.outcomes
    ]


def test_a_finished_run_of_another_method_is_not_taken(tmp_path):
    suite = parse_suite(FAIR)
    compare(suite, tmp_path)
    path = tmp_path / "runs" / "gd" / "seed-1" / "run.json"
    path.write_text(path.read_text().replace("GD(gamma=0.2", "GD(gamma=0.9"))
    with pytest.raises(RecordError, match=r"holds a run with method = GD\(gamma=0.9"):
        compare(suite, tmp_path, resume=True)
