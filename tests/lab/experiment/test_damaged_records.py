"""Records that are damaged, cut off or made up are refused, and any text of one can be drawn."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import RecordError
from mpicomp.lab.experiment.picturing import picture_of_folders
from mpicomp.runtime.rows import read_rows
from tests.support.foreign_folders import QUADRATICS, a_comparison, a_run

ROW = "2,0.5,0.25,80,80,640,640,2.0,,0.001,1.0\n"
ROWS = {
    "a round below 0": ("2,0", "-2,0"),
    "a round that is no number": ("\n2,", "\nx,"),
    "a round that is no integer": ("\n2,", "\n2.0,"),
    "a round with 5000 digits": ("\n2,", f"\n{'9' * 5000},"),
    "a round before the last": ("\n2,", "\n9,"),
    "a row twice": (ROW, ROW + ROW),
    "bytes below 0": (",80,80,", ",-80,80,"),
    "an f that is no number": ("\n2,0.5", "\n2,high"),
    "seconds below 0": (",0.001,", ",-0.001,"),
    "seconds that are no number": (",0.001,", ",nan,"),
    "infinitely many epochs": (",2.0,", ",inf,"),
    "a squared norm below 0": (",0.25,", ",-0.25,"),
    "f without its gradient": (",0.25,", ",,"),
    "a column twice": ("x_norm", "f"),
    "too few fields": (ROW, "2,0.5\n"),
    "too many fields": (ROW, ROW.replace("\n", ",7,8\n")),
    "a field of 200,000 characters": ("\n2,", f"\n{' ' * 200_000}2,"),
    "no UTF-8": ("\n2,", "\n\udcff,"),
}


def test_rows_that_cannot_be_are_refused(tmp_path):
    """Not left out together with all rows after them."""
    path = tmp_path / "rows.csv"
    head = (
        "round,f,grad_norm_sq,up_bytes,down_bytes,paper_bits_up,paper_bits_down,epochs,error,seconds,x_norm\n"
    )
    sound = head + ROW.replace("2,", "0,", 1) + ROW + ROW.replace("2,", "4,", 1)
    path.write_text(sound)
    assert [row.round for row in read_rows(path)] == [0, 2, 4]
    accepted = []
    for what, (before, after) in ROWS.items():
        assert before in sound, what
        path.write_bytes(sound.replace(before, after, 1).encode(errors="surrogateescape"))
        try:
            read_rows(path)
            accepted.append(what)
        except RecordError as error:
            assert str(path) in str(error) and "\n" not in str(error)
    assert accepted == []


DEEP = "[" * 100_000
FACTS = {
    "run.json": [
        '{"config": []}', '{"config": {"problem": 5}}', '{"config": {"workers": "0"}}',
        '{"config": {"workers": "x"}}', '{"config": {"workers": 2}}',
        '{"asked": "x"}', '{"asked": {"method": 1}}',
        '{"code": []}', '{"resumed": {}}', '{"resumed": [5]}', '{"resumed": [{"code": []}]}',
        '{"lost": 3}', "[]", "5", "{", "\udcff", DEEP, f'{{"config": {DEEP}',
    ],
    "summary.json": [
        '{"status": 5}', '{"status": ["target"]}', '{"status": "target", "ranks": [1]}',
        '{"status": "target", "method": 5}', '{"set_up_bytes": "x"}', "[]", "{", "\udcff", DEEP,
    ],
}  # fmt: skip


def test_facts_of_a_run_that_cannot_be_are_refused(tmp_path):
    a_run(tmp_path / "run")
    accepted = []
    for name, contents in FACTS.items():
        path = tmp_path / "run" / name
        kept = path.read_bytes()
        for content in contents:
            path.write_bytes(content.encode(errors="surrogateescape"))
            try:
                mpicomp.load(tmp_path / "run")
                accepted.append((name, content[:50]))
            except RecordError as error:
                assert str(path) in str(error) and len(str(error)) < 400
        path.write_bytes(kept)
    assert accepted == []


def test_a_figure_of_a_record_that_says_too_little_is_refused(tmp_path):
    a_run(tmp_path)
    for content, missing in (
        ({"config": {}}, "asked.method"),
        ({"asked": {"method": ""}}, "asked.method"),
        ({"asked": {"method": "gd"}}, "config.problem"),
        ({"asked": {"method": "gd"}, "config": {"problem": "", "workers": "2"}}, "config.problem"),
    ):
        (tmp_path / "run.json").write_text(json.dumps(content))
        assert "rounds" in repr(mpicomp.load(tmp_path))
        with pytest.raises(RecordError, match=f"run.json does not say {missing}"):
            mpicomp.load(tmp_path).plot()


def test_any_text_of_a_record_can_be_drawn(tmp_path):
    """Cut where it is long, and told apart by what was cut; a text is measured letter by letter."""
    folders = [tmp_path / name for name in "abcd"]
    texts = ["m" * 100_000, "m" * 99_999 + "n", "\ud800", "_own"]
    for folder, text in zip(folders, texts, strict=True):
        a_run(folder, asked={"method": text}, config={"problem": "p" * 100_000})
    axes = mpicomp.plot(*map(mpicomp.load, folders))
    labels = axes.get_legend_handles_labels()[1]
    assert labels[2:] == ["?", " _own"]
    assert len(set(labels)) == 4 and {label[:502] for label in labels[:2]} == {"m" * 500 + ".."}
    title = axes.get_title(loc="left")
    assert "CRC" in title and len(title) < 600
    curves = picture_of_folders(folders).curves
    assert len(curves) == 4 and max(map(len, curves)) < 600
    (tmp_path / "a" / "summary.json").write_text(json.dumps({"method": texts[0], "problem": texts[0]}))
    assert len(repr(mpicomp.load(tmp_path / "a"))) < 800


def test_control_characters_of_a_record_are_spelt_and_reach_no_terminal(tmp_path):
    """Warnings are errors here: matplotlib would repeat a character that its font lacks."""
    a_run(tmp_path, asked={"method": "a\x1b]0;b\x07"}, config={"problem": "p\x9b31m\tq"})
    axes = mpicomp.plot(mpicomp.load(tmp_path))
    axes.figure.draw_without_rendering()
    assert r"p\x9b31m\tq" in axes.get_title(loc="left")
    assert axes.get_legend_handles_labels()[1] == [r"a\x1b]0;b\x07"]


HEADERS = [
    {"round": -1}, {"round": "x"}, {"round": 2.0}, {"seconds": "x"}, {"seconds": -1}, {"scale": None},
    {"digest": "x"}, {"digest": 5}, {"digest": "0" * 62}, {"begun": -1}, {"begun": "0"}, {"crew": 2},
    {"crew": ["x", 1]}, {"lost": {}}, {"lost": [3]},
]  # fmt: skip


def test_a_checkpoint_whose_header_cannot_be_is_refused(tmp_path):
    """Sealed anew, as somebody would who made it up; or a part of it is not there."""
    a_run(tmp_path)
    (path,) = tmp_path.glob("checkpoint/round-*/manifest.json")
    sound = json.loads(path.read_bytes().splitlines()[0])
    made = [sound | wrong for wrong in HEADERS]
    made += [{k: v for k, v in sound.items() if k != gone} for gone in ("seconds", "scale", "begun", "crew")]
    accepted = []
    for header in made:
        content = json.dumps(header).encode()
        path.write_bytes(content + b"\n" + sha256(content).hexdigest().encode() + b"\n")
        try:
            mpicomp.run(GD(gamma=0.1), QUADRATICS, workers=2, rounds=6, every=2, out=tmp_path, resume=True)
            accepted.append(header)
        except RecordError as error:
            assert str(tmp_path) in str(error)
    assert accepted == []


TRIAL = {
    "exponent": 0,
    "gamma": 0.1,
    "status": "rounds",
    "seeds": 1,
    "reached": 0,
    "total_bytes": 9,
    "f": 0.5,
}
TUNINGS = [
    {}, {"trials": []}, {"trials": 5}, {"trials": [5]}, {"trials": [{}]}, {"trials": [TRIAL | {"more": 1}]},
    *({"trials": [TRIAL | wrong]} for wrong in (
        {"exponent": 0.5}, {"gamma": []}, {"status": 5}, {"seeds": "x"}, {"reached": True},
        {"total_bytes": "9"}, {"f": "low"}, {"f": [0.5]},
    )),
]  # fmt: skip


def test_a_comparison_that_is_damaged_is_refused(tmp_path):
    a_comparison(tmp_path)
    run = tmp_path / "runs" / "a" / "seed-0"
    damages = [(tmp_path / "runs" / "a" / "tuning.json", json.dumps(tuning)) for tuning in TUNINGS]
    damages += [(run / "summary.json", '{"status": "rounds"}'), (run / "rows.csv", "")]
    unseen = (run / "rows.csv").read_text().splitlines()
    start = unseen[1].split(",")
    damages += [(run / "rows.csv", "\n".join([*unseen[:2], ""]))]  # cut off
    damages += [(run / "rows.csv", "\n".join([*unseen[:2], *unseen[3:], ""]))]  # without its middle
    damages += [(run / "rows.csv", "\n".join([unseen[0], ",".join([start[0], "", "", *start[3:]]), ""]))]
    accepted = []
    for path, content in damages:
        kept = path.read_bytes()
        path.write_text(content)
        try:
            mpicomp.load(tmp_path).table()
            accepted.append(content)
        except RecordError as error:
            assert str(path.parent) in str(error)
        path.write_bytes(kept)
    assert accepted == []
    assert mpicomp.load(tmp_path).table()


def test_a_record_whose_table_was_cut_off_is_refused(tmp_path):
    """Its curve ended early, without a word."""
    mpicomp.run(mpicomp.GD(gamma=0.1), mpicomp.Quadratics(d=5), workers=2, rounds=20, every=5, out=tmp_path)
    table = tmp_path / "rows.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(RecordError, match=r"holds rows from round 0 to 5, and the run had recorded 0 to 20"):
        mpicomp.load(tmp_path)


@pytest.mark.parametrize("name", ["rows.csv", "summary.json"])
def test_files_of_two_runs_are_no_record(tmp_path, name):
    """The rows were of one run and the summary of the other, and a resumed run went on from both."""
    here, there = tmp_path / "here", tmp_path / "there"
    for out, seed in ((here, 0), (there, 1)):
        mpicomp.run("marina(randk(k=2))", QUADRATICS, workers=2, rounds=9, every=3, seed=seed, out=out)
    (here / name).write_bytes((there / name).read_bytes())
    f = json.loads((here / "summary.json").read_text())["f"]
    message = rf"here/rows.csv and summary.json are of two runs: after round 9 f is .* in one and {f} in"
    with pytest.raises(RecordError, match=message):
        mpicomp.load(here)
    with pytest.raises(RecordError, match=message):
        mpicomp.run("marina(randk(k=2))", QUADRATICS, workers=2, rounds=12, every=3, out=here, resume=True)


def test_a_run_that_ends_while_it_is_read_is_not_taken_for_one_that_lost_rows(tmp_path, monkeypatch):
    a_comparison(tmp_path)
    run = tmp_path / "runs" / "a" / "seed-0"
    whole, summary = (run / "rows.csv").read_text(), (run / "summary.json").read_text()
    (run / "rows.csv").write_text("".join(whole.splitlines(keepends=True)[:2]))
    (run / "summary.json").unlink()

    def ends(path):
        rows = read_rows(path)
        if path.parent == run:
            path.write_text(whole)
            (run / "summary.json").write_text(summary)
        return rows

    monkeypatch.setattr("mpicomp.lab.experiment.folder.read_rows", ends)
    assert mpicomp.load(tmp_path).lines()[0].finished == 0
    assert mpicomp.load(tmp_path).lines()[0].finished == 1
