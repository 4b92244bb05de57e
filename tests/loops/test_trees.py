"""Gradients in dicts, lists and tuples, one within the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from mpicomp import EF21, Aggregator, Identity, TopK
from mpicomp.base.errors import ConfigError
from mpicomp.loops.trees import arrays_of, rebuilt, shape_of


class Frozen(Mapping):
    """A mapping that is no dict, as flax's FrozenDict."""

    def __init__(self, content):
        self._content = dict(content)

    def __getitem__(self, key):
        return self._content[key]

    def __iter__(self):
        return iter(self._content)

    def __len__(self):
        return len(self._content)


class Pair(NamedTuple):
    first: object
    second: object


def tree(draw):
    return Frozen(
        {
            "dense": {"kernel": draw((3, 2)), "bias": draw(2)},
            "blocks": [Pair(draw(4), (draw(1), OrderedDict(w=draw((1, 1))))), {}],
        }
    )


NAMES = ["dense.kernel", "dense.bias", "blocks.0.0", "blocks.0.1.0", "blocks.0.1.1.w"]


def test_arrays_have_the_names_of_the_way_to_them_and_the_structure_comes_back():
    given = tree(np.zeros)
    assert list(arrays_of(given)) == NAMES
    assert arrays_of(5) == {"x": 5} and arrays_of([]) == {}
    back = rebuilt(shape_of(given), iter("abcde"))
    assert type(back) is Frozen and back["dense"] == {"kernel": "a", "bias": "b"}
    assert back["blocks"] == [Pair("c", ("d", {"w": "e"})), {}]
    assert type(back["blocks"][0]) is Pair and type(back["blocks"][0].second) is tuple


def test_an_aggregator_takes_and_gives_them():
    random = np.random.default_rng(0)
    given = tree(lambda shape: random.normal(size=shape))
    nested = Aggregator(EF21(TopK(k=3)), like=given, workers=2)
    flat = Aggregator(EF21(TopK(k=3)), like=list(arrays_of(given).values()), workers=2)
    for _ in range(4):
        trees = {i: tree(lambda shape: random.normal(size=shape)) for i in range(2)}
        mean = nested(trees)
        expected = flat({i: list(arrays_of(t).values()) for i, t in trees.items()})
        assert type(mean) is Frozen and isinstance(mean["blocks"][0], Pair)
        for ours, theirs in zip(arrays_of(mean).values(), expected, strict=True):
            assert np.array_equal(ours, theirs)
    assert nested.ledger.up_bytes == flat.ledger.up_bytes


def test_keys_may_come_in_another_order():
    agg = Aggregator(EF21(Identity()), like={"a": {"x": np.zeros(2), "y": np.zeros(3)}, "b": np.zeros(1)})
    mean = agg({"b": np.full(1, 3.0), "a": {"y": np.full(3, 2.0), "x": np.full(2, 1.0)}})
    assert [v[0] for v in arrays_of(mean).values()] == [1, 2, 3] and list(mean) == ["a", "b"]


def loop():
    a = {}
    a["a"] = a
    return a


@pytest.mark.parametrize(
    ("like", "said"),
    [
        ({"a.b": np.zeros(1), "a": {"b": np.zeros(1)}}, "two arrays are called 'a.b'"),
        ({"a": {1: np.zeros(1)}}, "the keys of a dict of arrays are their names, texts"),
        (loop(), "nested too deeply, or a dict or list contains itself"),
        ({"a": {}, "b": []}, "like is an empty dict"),
        ({"a": {"b": [1.0, "text"]}}, "part 'a.b.0'"),
        ({"a": {"b": None}}, "part 'a.b'"),
    ],
    ids=str,
)
def test_what_is_refused(like, said):
    with pytest.raises(ConfigError, match=said):
        Aggregator(EF21(Identity()), like=like)


def test_another_structure_is_refused_by_names():
    agg = Aggregator(EF21(Identity()), like={"a": {"x": np.zeros(2)}})
    with pytest.raises(ConfigError, match=r"has the parts a\.y; expected, as at the start: a\.x"):
        agg({"a": {"y": np.zeros(2)}})


def test_a_mapping_that_is_not_made_of_a_dict_comes_back_as_one(tmp_path):
    """numpy's open files of several arrays are mappings; making one of a dict was a TypeError of numpy's."""
    np.savez(tmp_path / "x.npz", w=np.ones(2), b=np.zeros(3))
    with np.load(tmp_path / "x.npz") as opened:
        estimate = Aggregator(EF21(Identity("f8")), like=opened)(opened)
    assert type(estimate) is dict and list(estimate) == ["w", "b"]
    np.testing.assert_array_equal(estimate["w"], np.ones(2))


class Foreign:
    """An array of a library that speaks DLPack, and no more of numpy's words."""

    def __init__(self, values):
        self._values, self.dtype = values, values.dtype

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class Standard(Foreign):
    """One that names its library's functions, as the array API standard says; ``astype`` is one of them."""

    def __array_namespace__(self):
        return SimpleNamespace(
            from_dlpack=lambda x: Standard(np.from_dlpack(x)),
            astype=lambda x, dtype: Standard(x._values.astype(dtype)),
            isfinite=lambda x: np.isfinite(x._values),
            all=np.all,
            finfo=np.finfo,
        )


def test_arrays_of_any_library_of_the_array_api_standard_come_back():
    like = {"a": Standard(np.ones(2, np.float32)), "b": np.ones(3)}
    agg = Aggregator(EF21(Identity("f8")), like=like, workers=2)
    estimate = agg({i: {"a": Standard(np.full(2, 3e38, np.float32)), "b": np.ones(3)} for i in range(2)})
    assert type(estimate["a"]) is Standard and estimate["a"].dtype == np.float32
    np.testing.assert_array_equal(estimate["a"]._values, np.full(2, 3e38, np.float32))


def test_a_library_that_takes_nothing_back_is_refused_at_the_start():
    """It was an AttributeError after the first exchange."""
    with pytest.raises(ConfigError, match=r"part 'x' a Foreign of tests, which has no from_dlpack"):
        Aggregator(EF21(Identity()), like=Foreign(np.ones(3)))
