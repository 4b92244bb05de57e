"""Mutated states: `python -m tests.support.mutated_states --count 10000 --seed 0`.

Each is a sound state of an ``Aggregator`` in which something is changed, and sealed again, so that every
SHA-256 is right: values in the manifest, arrays of a part, bytes of a part; or values of a ``state()``.  It
has to be loaded, or refused by a ``MpicompError`` that changes nothing, within a bound.
"""

from __future__ import annotations

import copy
import io
import json
import random
import resource
import shutil
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from mpicomp import EF21SGDM, Aggregator, TopK
from mpicomp.base.errors import MpicompError
from mpicomp.runtime.generations import seal

WORKERS, D = 2, 5
JUNK: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        7,
        2**63,
        2**200,
        1.5,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "../x",
        "worker-0",
    ),
    *("part-0.npz", "../part-0.npz", "/etc/passwd", "0" * 64, [], {}, [[]], [["part-0.npz", "0" * 64, []]]),
]
ARRAYS: list[Any] = [
    *(
        np.zeros(D, int),
        np.zeros(D, np.float32),
        np.zeros(D, complex),
        np.zeros(D, object),
        np.zeros(D, "U3"),
    ),
    *(np.zeros(0), np.zeros(D + 1), np.zeros((2, D - 1)), np.zeros((D, 1, D)), np.float64(0), np.int64(-1)),
    *(np.array("x"), np.array(None), np.zeros(D, "M8[s]"), np.zeros(D, [("a", "f8")]), np.zeros(D, ">f8")),
    *(np.array(1e308), np.array(np.nan), np.zeros(D, bool), np.zeros((10**4, 10))),
]


def made() -> Aggregator:
    return Aggregator(EF21SGDM(TopK(k=2), eta=0.5), np.zeros(D), workers=WORKERS)


def trained(folder: Path) -> Aggregator:
    """An aggregator after three steps, saved in ``folder``."""
    agg, rng = made(), np.random.default_rng(0)
    for _ in range(3):
        agg({i: rng.normal(size=D) for i in range(WORKERS)})
    agg.save(folder)
    return agg


def change(tree: Any, draw: random.Random) -> None:
    """Change something in ``tree``, dicts and lists within one another."""
    places = []

    def walk(node: Any) -> None:
        keys = range(len(node)) if isinstance(node, list) else list(node)
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(tree)
    node, key = draw.choice(places)
    how = draw.choice(["replace", "remove", "swap", "nest"])
    if how == "replace":
        node[key] = copy.deepcopy(draw.choice(JUNK))
    elif how == "remove":
        del node[key]
    elif how == "swap":
        other, its = draw.choice(places)
        node[key] = copy.deepcopy(other[its])
    else:
        node[key] = [node[key]]


def change_part(content: bytes, draw: random.Random) -> bytes:
    """A part with another array, without one, compressed, or with other bytes."""
    how = draw.choice(["array", "missing", "compressed", "bytes", "cut", "header"])
    if how in ("bytes", "cut"):
        changed = bytearray(content)
        for _ in range(draw.choice([1, 1, 10])):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        return bytes(changed[: draw.randrange(len(changed))] if how == "cut" else changed)
    if how == "header":  # a shape or type that claims more than there is
        for old, new in draw.sample([(b"(5,)", b"(9**9,)"), (b"'<f8'", b"'|O8'"), (b"(2,)", b"(-1,)")], 2):
            content = content.replace(old + b" " * (len(new) - len(old)), new)
        return content
    arrays = dict(np.load(io.BytesIO(content)))
    name = draw.choice(sorted(arrays))
    if how == "missing":
        del arrays[name]
    elif how == "array":
        arrays[name] = draw.choice(ARRAYS)
    buffer = io.BytesIO()
    (np.savez_compressed if how == "compressed" else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def mutate(place: Path, draw: random.Random) -> None:
    """Change the generation in ``place``, and seal it again; now and then the seal is wrong too."""
    path = place / "manifest.json"
    manifest = json.loads(path.read_bytes().splitlines()[0])
    if draw.random() < 0.5:
        change(manifest, draw)
    else:
        part = manifest["parts"][0]
        content = change_part((place / part[0]).read_bytes(), draw)
        (place / part[0]).write_bytes(content)
        part[1] = sha256(content).hexdigest()
    sealed = bytearray(seal(manifest))
    if draw.random() < 0.05:
        sealed[draw.randrange(len(sealed))] ^= 1 << draw.randrange(8)
    path.write_bytes(sealed)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def outcome(sound: Path, agg: Aggregator, draw: random.Random, place: Path) -> str:
    """What becomes of one mutated state.  Raises ``AssertionError`` if it is neither taken nor refused."""
    other = made()
    before = other.state()
    try:
        if draw.random() < 0.2:
            state = agg.state()
            name = draw.choice(sorted(state))
            if draw.random() < 0.2:
                del state[name]
            else:
                state[name] = copy.deepcopy(draw.choice(JUNK + ARRAYS))
            other.restore(state)
        else:
            shutil.copytree(sound, place)
            mutate(place / "round-3", draw)
            other.load(place)
    except MpicompError as error:
        assert same(before, other.state()), f"refused, and changed: {error}"
        return "refused"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    now, then = other.state(), agg.state()
    for name, value in then.items():
        kinds = type(value), getattr(value, "dtype", None)
        assert kinds == (type(now[name]), getattr(now[name], "dtype", None)), f"{name} is {now[name]!r}"
    assert 0 <= other.steps < 2**63 and 0 <= other.skipped < 2**63
    return "taken"


def outcomes(count: int, seed: int) -> tuple[Counter[str], float, int]:
    """What became of ``count`` states, the seconds of the slowest, and the kilobytes that memory grew by."""
    draw, seen, slowest = random.Random(seed), Counter[str](), 0.0
    with TemporaryDirectory() as folder:
        agg = trained(Path(folder) / "sound")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(count):
            started = time.process_time()
            seen[outcome(Path(folder) / "sound", agg, draw, Path(folder) / "mutated")] += 1
            slowest = max(slowest, time.process_time() - started)
    return seen, slowest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


@click.command()
@click.option("--count", default=10000, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(count: int, seed: int) -> None:
    seen, slowest, kilobytes = outcomes(count, seed)
    click.echo(
        f"{count} states: {dict(seen)}; {slowest:.3f} s of the processor at most, {kilobytes} kB more memory"
    )


if __name__ == "__main__":
    main()
