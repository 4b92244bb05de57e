"""A comparison that is resumed or made in parts: what is missing is run, and nothing else."""

from __future__ import annotations

import csv
import re
import shutil
import signal

import pytest

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import read_json, write_json
from mpicomp.lab.experiment import folder, job
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.folder import read_comparison, unfinished
from mpicomp.lab.experiment.job import Stage
from mpicomp.lab.experiment.report import publish
from mpicomp.lab.experiment.suite import parse_part
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.experiment.tables import cells
from mpicomp.methods import GD
from tests.support.suites import SUITE


def test_resuming_runs_nothing_again_and_gives_the_same(done, tmp_path, monkeypatch):
    folder, comparison = done
    out = shutil.copytree(folder, tmp_path / "out")
    before = (out / "table.json").read_text()
    monkeypatch.setattr(job, "run", None)
    stages: list[Stage] = []
    assert (
        compare(parse_suite(SUITE), out, resume=True, progress=lambda s, k, r: stages.append(s)) == comparison
    )
    publish(out)
    assert (out / "table.json").read_text() == before and not stages


def test_resuming_runs_what_is_missing(done, tmp_path):
    small = SUITE.replace("seeds = [0, 1, 2]", "seeds = [0]").replace("tune = [1, 4]", "tune = [1, 3]")
    stages: list[Stage] = []
    first = compare(parse_suite(small), tmp_path, progress=lambda s, k, r: stages.append(s))
    assert [s.number for s in dict.fromkeys(stages)] == [1, 2, 3, 4, 5, 6, 7] and stages[0].of == 7
    (tmp_path / "runs" / "gd" / "seed-0" / "summary.json").unlink()
    notes = tmp_path / "runs" / "gd" / "seed-0" / "notes.txt"
    notes.write_text("the user's")
    stages.clear()
    again = compare(parse_suite(small), tmp_path, resume=True, progress=lambda s, k, r: stages.append(s))
    assert {(s.number, s.what) for s in stages} == {(1, "GD, seed 0")}
    assert again.outcomes[0].summary["iterates_sha256"] == first.outcomes[0].summary["iterates_sha256"]
    assert again.outcomes[1:] == first.outcomes[1:]
    assert notes.read_text() == "the user's"


@pytest.mark.parametrize("linked", [False, True])
def test_files_of_the_user_beside_the_checkpoints_of_an_unfinished_run_stay(linked, tmp_path):
    """They are named, and nothing is deleted before they are moved away."""
    suite = parse_suite(SUITE.replace("seeds = [0, 1, 2]", "seeds = [0]").replace("tune = [1, 4]", ""))
    compare(suite, tmp_path / "out")
    run = tmp_path / "out" / "runs" / "gd" / "seed-0"
    (run / "summary.json").unlink()
    kept = run / "checkpoint"
    if linked:
        kept = kept.rename(tmp_path / "elsewhere")
        (run / "checkpoint").symlink_to(kept)
    for theirs in (kept / "notes.txt", next(kept.glob("round-*")) / "copy.npz"):
        theirs.write_bytes(b"the user's")
        before = {file: file.read_bytes() for place in (run, kept) for file in place.rglob("*.*")}
        with pytest.raises(RecordError, match=f"{'checkpoint' if linked else theirs.name} belongs to no"):
            compare(suite, tmp_path / "out", resume=True)
        assert {file: file.read_bytes() for place in (run, kept) for file in place.rglob("*.*")} == before
        theirs.unlink()
    if linked:
        (run / "checkpoint").unlink()
    compare(suite, tmp_path / "out", resume=True)
    assert (run / "summary.json").exists()


def test_a_finished_run_that_another_job_has_begun_anew_is_missed(tmp_path):
    """Of two jobs in one folder: the table had been written without it."""
    suite = parse_suite(SUITE.replace("seeds = [0, 1, 2]", "seeds = [0]").replace("tune = [1, 4]", ""))

    def remove(stage, round, row):
        if stage.number == 2:
            (tmp_path / "runs" / "gd" / "seed-0" / "rows.csv").unlink(missing_ok=True)

    with pytest.raises(RecordError, match="gd/seed-0 holds no finished run any more"):
        compare(suite, tmp_path, progress=remove)
    assert not (tmp_path / "rows.csv").exists()
    assert len(compare(suite, tmp_path, resume=True).outcomes) == 4


def test_an_interrupted_comparison_can_be_resumed(tmp_path):
    suite = parse_suite(SUITE.replace("seeds = [0, 1, 2]", "seeds = [0]").replace("tune = [1, 4]", ""))

    def stop(stage, round, row):
        if stage.number == 2 and round == 7:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        compare(suite, tmp_path, progress=stop)
    held = read_comparison(tmp_path)
    assert [o.summary["status"] for o in held.outcomes] == ["target", "interrupted"]
    assert held.lines()[1].finished == 0 and cells(held.lines()[1], suite)[2] == "not run"
    resumed = compare(suite, tmp_path, resume=True)
    assert [o.summary["status"] for o in resumed.outcomes] == ["target", "rounds", "diverged", "rounds"]


def test_finished_runs_of_another_step_or_limit_are_not_kept(tmp_path):
    """As of a method that has been tuned again; its step is in no other file of the comparison."""
    method = '[[method]]\nlabel = "GD"\nmethod = "gd"\ntune = [0, 1]\n'
    suite = parse_suite(f'problem = "quadratics(d=5)"\nworkers = 2\nrounds = 9\n{method}')
    best = compare(suite, tmp_path).tunings["GD"].best.gamma
    folder = tmp_path / "runs" / "gd" / "seed-0"
    kept = read_json(folder / "run.json")
    for name, held, wanted in (("method", repr(GD(gamma=0.3)), repr(GD(gamma=best))), ("rounds", 8, 9)):
        write_json(folder / "run.json", kept | {"asked": kept["asked"] | {name: held}})
        said = f"seed-0 holds a run with {name} = {held}, and the comparison now has {wanted}. Delete that"
        with pytest.raises(RecordError, match=re.escape(said)):
            compare(suite, tmp_path, resume=True)
    write_json(folder / "run.json", kept)
    assert len(compare(suite, tmp_path, resume=True).outcomes) == 1


def test_another_comparison_is_not_overwritten(done, tmp_path):
    out, _ = done
    with pytest.raises(RecordError, match="already holds a comparison"):
        compare(parse_suite(SUITE), out)
    with pytest.raises(RecordError, match="with other workers"):
        compare(parse_suite(SUITE.replace("workers = 3", "workers = 4")), out, resume=True)
    with pytest.raises(RecordError, match="no comparison to resume"):
        compare(parse_suite(SUITE), tmp_path, resume=True)
    with pytest.raises(RecordError, match="already holds a run"):
        compare(parse_suite(SUITE), out / "runs" / "gd" / "seed-0")


@pytest.mark.parametrize("of", [2, 3, 20])
def test_parts_make_the_whole(done, tmp_path, of):
    """Run in any order, each a job of its own; the last one to end finds nothing missing."""
    out, whole = done
    suite = parse_suite(SUITE)
    missing = []
    for number in range(of, 0, -1):
        comparison = compare(suite, tmp_path, resume=None, part=parse_part(f"{number}/{of}"))
        missing.append(unfinished(tmp_path))
    assert missing == sorted(missing, reverse=True) and missing[-2] > missing[-1] == 0
    assert comparison.tunings == whole.tunings
    assert [(o.label, o.seed) for o in comparison.outcomes] == [(o.label, o.seed) for o in whole.outcomes]
    for mine, other in zip(comparison.outcomes, whole.outcomes, strict=True):
        assert [(r.round, r.f, r.up_bytes) for r in mine.rows] == [
            (r.round, r.f, r.up_bytes) for r in other.rows
        ]
    tables = [(folder / "rows.csv").read_text().splitlines() for folder in (tmp_path, out)]
    assert len(tables[0]) == len(tables[1])
    assert (tmp_path / "tuning.json").read_text() == (out / "tuning.json").read_text()


def test_jobs_that_end_at_the_same_time_leave_the_rows_of_all_runs(tmp_path, monkeypatch):
    """The other job ends its run, and gathers, between this one's reading and its writing."""
    suite = parse_suite(
        'problem = "quadratics(d=10)"\nworkers = 2\nrounds = 10\nseeds = [0, 1]\n'
        '[[method]]\nlabel = "GD"\nmethod = "gd(gamma=0.1)"\n'
    )
    write, others = folder.write_json, [parse_part("2/2")]

    def write_late(path, content):
        if path.name == "tuning.json" and others:
            compare(suite, tmp_path, resume=None, part=others.pop())
        write(path, content)

    monkeypatch.setattr(folder, "write_json", write_late)
    comparison = compare(suite, tmp_path, part=parse_part("1/2"))
    assert unfinished(tmp_path) == 0 and not others
    with open(tmp_path / "rows.csv", newline="") as file:
        gathered = {(row["label"], int(row["seed"])) for row in csv.DictReader(file)}
    assert gathered == {(o.label, o.seed) for o in comparison.outcomes if o.rows}
    assert len(comparison.outcomes) == len(suite.entries) * len(suite.seeds)


def test_the_seeds_of_a_tuned_method_are_in_one_part():
    tasks = parse_suite(SUITE).tasks()
    assert [(entry.label, seeds) for entry, seeds in tasks[:5]] == [
        ("GD", (0,)),
        ("GD", (1,)),
        ("GD", (2,)),
        ("DIANA RandK", (0, 1, 2)),
        ("too far", (0,)),
    ]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "-1/4", "1/0"])
def test_a_part_is_one_of_several(text):
    with pytest.raises(ConfigError, match="allowed: I/N with I from 1 to N"):
        parse_part(text)
