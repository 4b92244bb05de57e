"""Rows for other programs, and runs as a notebook shows them."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

import pytest

import mpicomp
from mpicomp import EF21, JSONLines, TensorBoard, TopK
from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.problems import Quadratics
from mpicomp.runtime.showing import SHOWN, html_of_rows
from tests.support.launching import mpicomp as command

METHOD, PROBLEM = EF21(TopK(3), gamma=0.1), Quadratics(d=20)


def run(**options):
    return mpicomp.run(METHOD, PROBLEM, workers=2, rounds=20, every=5, **options)


def test_each_row_is_a_line_of_json(tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    done = run(callback=JSONLines(path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [asdict(row) for row in done.rows]
    run(callback=JSONLines(path))
    assert len(path.read_text().splitlines()) == 2 * len(lines)  # appended


def test_what_json_has_no_number_for_is_null(tmp_path):
    row = replace(run().rows[-1], f=float("inf"), grad_norm_sq=None)
    JSONLines(tmp_path / "rows.jsonl")(3, row, None)
    told = json.loads((tmp_path / "rows.jsonl").read_text())
    assert told["f"] is None and told["grad_norm_sq"] is None and told["up_bytes"] == row.up_bytes


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"cannot write .*: Is a directory"):
        run(callback=JSONLines(tmp_path))


def test_rows_are_scalars_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="no tensorboard: pip install -e '.[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    done = run(callback=TensorBoard(tmp_path))
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    for name in ("f", "grad_norm_sq", "up_bytes", "seconds"):
        events = [(e.step, float(make_ndarray(e.tensor_proto))) for e in found.Tensors(name)]
        assert events == [(row.round, pytest.approx(getattr(row, name), rel=1e-6)) for row in done.rows]


def test_without_tensorboard_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ConfigError, match=r"pip install 'mpicomp\[tensorboard\]'"):
        TensorBoard(tmp_path)


def test_the_command_writes_rows_once_whatever_the_ranks(tmp_path):
    for ranks in ("1", "2"):
        done = command(
            *("run", "--problem", "quadratics(d=20)", "--method", "ef21(topk(k=3), gamma=0.1)"),
            *("--workers", "2", "--rounds", "20", "--every", "5", "--ranks", ranks),
            *("--json-lines", str(tmp_path / ranks)),
        )
        assert done.returncode == 0, done.stderr
        assert [json.loads(line)["round"] for line in (tmp_path / ranks).read_text().splitlines()] == [
            *(0, 5, 10, 15, 20)
        ]


def test_a_run_shows_itself_in_a_line_and_as_a_table(tmp_path):
    done = run(out=tmp_path)
    assert repr(done).startswith("<Run of EF21(C=TopK(k=3,") and "20 rounds (rounds), f = " in repr(done)
    assert len(repr(done)) < 400  # the rows and x are not in it
    table = done._repr_html_()
    assert table.count("<tr>") == 1 + len(done.rows) and "<caption>EF21(C=TopK(k=3," in table
    record = mpicomp.load(tmp_path)
    assert repr(record) == f"<Record of {repr(done)[8:-1]} in {tmp_path}>"
    assert record._repr_html_() == table


def test_text_in_a_table_is_escaped_and_long_runs_are_thinned():
    rows = run().rows
    many = [replace(rows[-1], round=k) for k in range(1000)]
    table = html_of_rows("<script>", many)
    assert "&lt;script&gt;" in table and "<script>" not in table
    assert table.count("<tr>") == 1 + SHOWN
    assert "<td>0</td>" in table and "<td>999</td>" in table


def test_a_comparison_shows_its_table():
    found = mpicomp.compare([METHOD], PROBLEM, workers=2, rounds=20, seeds=[0, 1])
    assert repr(found).startswith("<Comparison") and repr(found).endswith("1 methods, 2 of 2 runs ended>")
    table = found._repr_html_()
    assert table.count("<tr>") == 2 and "ef21(C=topk(k=3), gamma=0.1" in table
