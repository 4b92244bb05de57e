"""Texts, folders and states that hold former names are read: `sparse` as `lossless`, `shards` as `blocks`."""

import json
from dataclasses import replace

import numpy as np
import pytest

import mpicomp
from mpicomp import EF21, Aggregator, Lossless, TopK
from mpicomp.base.errors import RecordError
from mpicomp.base.former import present_repr
from mpicomp.lab.experiment.picturing import picture_of_runs
from mpicomp.problems import Quadratics
from mpicomp.runtime.generations import seal
from mpicomp.text.config import parse_compressor, parse_method, to_text

METHOD = EF21(TopK(2), gamma=0.125, down=Lossless("f4"))
TEXT = "ef21(C=topk(k=2), gamma=0.125, down=lossless(values=f4))"
SUITE = f"""
problem = "quadratics(d=5)"
workers = 2
rounds = 6

[[method]]
label = "EF21"
method = "{TEXT}"
"""


def old(text: str) -> str:
    text = text.replace("Lossless(", "Sparse(").replace("lossless(", "sparse(")
    return text.replace('"blocks": "', '"shards": "')


def make_old(folder) -> int:
    """Write the former name into the files of ``folder``; returns how many of them held the present one."""
    changed = 0
    for path in [*folder.rglob("*.json"), *folder.rglob("*.toml")]:
        before = path.read_text()
        if path.name == "manifest.json":
            path.write_bytes(seal(json.loads(old(before.splitlines()[0]))))
        else:
            path.write_text(old(before))
        changed += path.read_text() != before
    return changed


def test_a_text_with_the_former_name_is_read_and_written_with_the_present_one():
    assert parse_method(old(TEXT)) == parse_method(TEXT) == METHOD
    assert to_text(parse_method(old(TEXT))) == TEXT
    assert parse_compressor("sparse") == parse_compressor("Sparse()") == Lossless()
    assert "sparse" in to_text(parse_compressor("block_steps(beta=4, blocks=1, code=sparse)"))


def test_names_that_end_alike_stay():
    text = "Layered({{'b': {}('f4')}}, MySparse())"
    assert present_repr(text.format("Sparse")) == text.format("Lossless")


def test_a_run_with_the_former_name_is_read_and_resumed(tmp_path):
    """And one whose compressor differs in more than its name is not."""
    where = {"problem": Quadratics(d=5), "workers": 2, "server": "sharded", "blocks": 2}
    options = where | {"out": tmp_path, "checkpoint_every": 2}
    whole = mpicomp.run(METHOD, rounds=12, **where)
    mpicomp.run(METHOD, rounds=6, **options)
    assert make_old(tmp_path) >= 3  # run.json, summary.json and a manifest
    record = mpicomp.load(tmp_path)
    assert record.rows[-1].round == 6 and list(picture_of_runs([record]).curves) == [TEXT]
    with pytest.raises(RecordError, match=r"down is Lossless\(values='f4'\) there and Lossless\("):
        mpicomp.run(replace(METHOD, down=Lossless("f2")), rounds=12, resume=True, **options)
    assert mpicomp.run(METHOD, rounds=12, resume=True, **options).iterates_sha256 == whole.iterates_sha256


def test_a_comparison_with_the_former_name_is_read_and_resumed(tmp_path):
    suite, out = tmp_path / "suite.toml", tmp_path / "out"
    suite.write_text(SUITE)
    ran = mpicomp.compare(suite, out=out)
    assert make_old(out) >= 3
    assert mpicomp.load(out).outcomes[0].rows == ran.outcomes[0].rows
    again = mpicomp.compare(suite, out=out, resume=True)
    assert [o.rows for o in again.outcomes] == [o.rows for o in ran.outcomes]


def test_a_saved_state_with_the_former_name_is_loaded(tmp_path):
    """From a folder, and as ``state()`` returned it."""

    def rounds(aggregator: Aggregator, count: int) -> list[bytes]:
        return [aggregator({0: np.linspace(1, 2, 5) / (k + 1)}).tobytes() for k in range(count)]

    options = {"like": np.zeros(5), "server": "sharded", "blocks": 2, "workers": 1}
    first = Aggregator(METHOD, **options)
    rounds(first, 2)
    first.save(tmp_path)
    state = {name: old(v) if isinstance(v, str) else v for name, v in first.state().items()}
    state["config.shards"] = state.pop("config.blocks")
    assert make_old(tmp_path) == 1 and state["config.method.down"] == "Sparse(values='f4')"
    wanted = rounds(first, 3)
    for load in (lambda a: a.load(tmp_path), lambda a: a.restore(state)):
        second = Aggregator(METHOD, **options)
        load(second)
        assert rounds(second, 3) == wanted
