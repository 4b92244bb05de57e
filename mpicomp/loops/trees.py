"""Arrays in dicts, lists and tuples, one within the other: their names, and the same structure of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

from mpicomp.base.errors import ConfigError


def arrays_of(tree: Any) -> dict[str, Any]:
    """The arrays of ``tree`` by name, in its order.

    A name has the keys of dicts and the numbers in lists on the way to the array, with dots between them:
    ``{"dense": {"kernel": W, "bias": b}}`` has dense.kernel and dense.bias.  A lone array is x.  Raises
    ``ConfigError`` for a key that is no text, two arrays of one name, and a tree that contains itself.
    """
    if not _is_node(tree):
        return {"x": tree}
    named: dict[str, Any] = {}
    try:
        for name, array in _walk(tree, ""):
            if name in named:
                raise ConfigError(f"two arrays are called {name!r}: a key has a dot. Rename it.")
            named[name] = array
    except RecursionError:
        raise ConfigError("the arrays are nested too deeply, or a dict or list contains itself.") from None
    return named


def rebuilt(tree: Any, arrays: Iterator[Any]) -> Any:
    """``tree`` with the next of ``arrays`` in the place of each of its own, in the order of ``arrays_of``.

    Another mapping than a dict, and a named tuple, keep their class; what derives from dict, list or tuple
    becomes that, and a mapping that is not made of a dict, such as an open file of numpy's, becomes a dict.
    """
    if isinstance(tree, Mapping):
        content = {name: rebuilt(node, arrays) for name, node in tree.items()}
        return content if isinstance(tree, dict) else _mapping(type(tree), content)
    if isinstance(tree, list | tuple):
        nodes = [rebuilt(node, arrays) for node in tree]
        if hasattr(tree, "_fields"):
            return type(tree)(*nodes)
        return tuple(nodes) if isinstance(tree, tuple) else nodes
    return next(arrays)


def _mapping(kind: Any, content: dict[str, Any]) -> Any:
    try:
        return kind(content)
    except Exception:  # of a class that we do not know
        return content


def shape_of(tree: Any) -> Any:
    """The structure of ``tree`` without its arrays, which are not kept alive."""
    return rebuilt(tree, repeat(None))


def _is_node(tree: Any) -> bool:
    return isinstance(tree, Mapping | list | tuple)


def _walk(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not _is_node(tree):
        yield name, tree
        return
    if isinstance(tree, Mapping) and not all(isinstance(key, str) for key in tree):
        raise ConfigError("the keys of a dict of arrays are their names, texts.")
    nodes = tree.items() if isinstance(tree, Mapping) else ((str(i), node) for i, node in enumerate(tree))
    for key, node in nodes:
        yield from _walk(node, f"{name}.{key}" if name else key)
