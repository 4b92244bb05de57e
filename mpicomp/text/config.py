"""Parse a text such as ``marina(Q=randk(k=0.01), gamma=theory*8)`` into an object, and write it back.

The text only looks like a Python call.  Its syntax tree is read, and nothing in it is executed.  But if it
names a class of the user's own, the module or file of that class is imported, and this executes the module.
Where no import is allowed, such a method or problem becomes an ``UnimportedMethod`` or ``UnimportedProblem``.

* A class is named as in its table or as in Python: ``quantized_topk`` or ``QuantizedTopK``.
* A class of the user's own is ``my_module:MyMethod`` or ``./my_file.py:MyMethod``; see ``own_classes``.
* A class without parentheses takes its defaults: ``natural`` is ``natural()``.
* A bare name is a string, ``gamma=theory`` or ``p=inf``, unless its parameter is a compressor or a problem.
* The rules of ``layered`` are a dict of quoted patterns: ``{'*.bias': identity, 'ndim>=2': topk(k=0.05)}``.
* A path needs no quotes, ``data=data/a9a.bz2``, unless it holds spaces or the like; see ``quoting``.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, get_args, get_type_hints

import numpy as np

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.base.former import present_name
from mpicomp.base.given_arrays import in_full
from mpicomp.base.lazy import Table
from mpicomp.compressors import COMPRESSORS, Compressor, Layered
from mpicomp.methods import METHODS, Method
from mpicomp.problems import PROBLEMS, Problem
from mpicomp.text.literals import abridged, check_type, is_bare, literal_value, syntax_tree
from mpicomp.text.own_classes import NotImported, import_class, is_reference, reference
from mpicomp.text.quoting import needs_no_quotes, shown
from mpicomp.text.unimported import UnimportedMethod, UnimportedProblem

TABLES: dict[str, Table[Any]] = {"method": METHODS, "problem": PROBLEMS, "compressor": COMPRESSORS}
NESTED: dict[str, type] = {"compressor": Compressor, "problem": Problem}  # kinds that a parameter may have
_UNIMPORTED = {"method": UnimportedMethod, "problem": UnimportedProblem}


def parse_method(text: str) -> Method:
    """The method that ``text`` describes.  Raises ``ConfigError`` if it describes none."""
    return _parse("method", text)


def parse_problem(text: str) -> Problem:
    """The problem that ``text`` describes.  Raises ``ConfigError`` if it describes none."""
    return _parse("problem", text)


def as_method(given: Method | str) -> Method:
    """``given``, parsed if it is a text.  Raises ``ConfigError`` if the text describes no method."""
    return parse_method(given) if isinstance(given, str) else given


def as_problem(given: Problem | str) -> Problem:
    """``given``, parsed if it is a text.  Raises ``ConfigError`` if the text describes no problem."""
    return parse_problem(given) if isinstance(given, str) else given


def parse_compressor(text: str) -> Compressor:
    """The compressor that ``text`` describes.  Raises ``ConfigError`` if it describes none."""
    return _parse("compressor", text)


def to_text(obj: object) -> str:
    """The canonical text of ``obj``: its name in the table, and the fields that differ from their defaults.

    Parsing inverts it: ``parse_method(to_text(m)) == m``, also for problems and compressors.  A class of the
    user's own has the name under which it was imported.  For an object of any other class, its ``repr``.
    """
    name = _name(type(obj))
    if name is None or type(obj) in _UNIMPORTED.values():
        return repr(obj)
    name = name if needs_no_quotes(name) else repr(name)
    given = [(f, getattr(obj, f.name)) for f in _fields(type(obj))]
    changed = [f"{f.name}={_value_text(value)}" for f, value in given if not _is_default(f, value)]
    return f"{name}({', '.join(changed)})" if changed else name


@dataclass(frozen=True)
class Description:
    """The facts about a class that ``mpicomp list`` shows."""

    name: str
    parameters: dict[str, str | None]  # name -> default as text, None if it must be given
    summary: str
    paper: str

    @property
    def signature(self) -> str:
        """The text ``marina(Q, gamma=theory)``: the name, and the parameters with their defaults."""
        return f"{self.name}({', '.join(p if v is None else f'{p}={v}' for p, v in self.parameters.items())})"


def describe(cls: type) -> Description:
    """Describe a class: its name in texts, its parameters, the first line on it, and its paper or ""."""
    parameters = {f.name: None if _default(f) is MISSING else _value_text(_default(f)) for f in _fields(cls)}
    # The first line on a method is its module's; the class's docstring starts with the algorithm.
    doc = sys.modules[cls.__module__].__doc__ if METHODS.name_of(cls) else cls.__doc__
    summary = (doc or "").strip().partition("\n")[0]  # none under python -OO
    summary = summary.removesuffix("::")  # before an algorithm set apart
    return Description(_name(cls) or cls.__name__, parameters, summary, getattr(cls, "paper", ""))


def _parse(kind: str, text: str) -> Any:
    try:
        return _object(kind, syntax_tree(text))
    except NotImported:
        if kind not in _UNIMPORTED:
            raise
        return _UNIMPORTED[kind](text.strip())
    except RecursionError:
        raise ConfigError(f"cannot read {abridged(text)}: it is nested too deeply.") from None


def _object(kind: str, node: ast.expr) -> Any:
    """The object of the given kind that ``node``, a name or a call, describes.  Raises ``ConfigError``."""
    text = shown(node)
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    match call.func:
        case ast.Name(id=name):
            pass
        case ast.Constant(value=str() as name) if is_reference(name):
            pass
        case ast.Constant(value=str() as name) if name.endswith(".py"):
            file = name if "/" in name else f"./{name}"
            raise ConfigError(f"{name} is no {kind}; name a class in it, as in {file}:MyClass.")
        case _:
            raise ConfigError(f"{text!r} is no {kind}; expected NAME or NAME(PARAMETER=VALUE, ...).")
    cls = _lookup(kind, name)
    known = {f.name: f for f in _fields(cls)}
    given = _arguments(text, call, known, _name(cls))
    missing = [f.name for f in known.values() if f.name not in given and _default(f) is MISSING]
    if missing:
        raise ConfigError(
            f"{text} lacks {' and '.join(missing)}. {describe(cls).signature} is what it takes."
        )
    hints = get_type_hints(cls)
    values = {name: _value(text, name, source, hints[name]) for name, source in given.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{text}: {error}") from None
    except (TypeError, ValueError) as error:
        if not is_reference(name):
            raise
        raise ConfigError(f"{text}: {error}") from None  # from the checks of a user's own class


def _arguments(
    text: str, call: ast.Call, known: Mapping[str, Field[Any]], name: str | None
) -> dict[str, ast.expr]:
    """The arguments of ``call`` by the names of the parameters ``known`` of the class ``name``."""
    if len(call.args) > len(known):
        raise ConfigError(f"{text}: {len(call.args)} parameters; allowed: {', '.join(known) or 'none'}.")
    given = dict(zip(known, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in given:
            raise ConfigError(f"{text}: {keyword.arg or '**'} is given twice, or not by its name.")
        given[keyword.arg] = keyword.value
    for parameter in given:
        if parameter not in known:
            raise unknown(f"parameter of {name}", parameter, known)
    return given


def _value(text: str, parameter: str, node: ast.expr, hint: Any) -> Any:
    """Read the value of a parameter whose type is ``hint``: a compressor, a problem, or a literal."""
    kind = _nested_kind(hint)
    if kind is None or (isinstance(node, ast.Constant) and node.value is None):
        return check_type(text, parameter, _literal(node), hint)
    return _object(kind, node)


def _nested_kind(hint: Any) -> str | None:
    """ "compressor" or "problem" if the type hint is one or allows one, else None."""
    types = [h for h in (hint, *get_args(hint)) if isinstance(h, type)]
    return next((kind for kind, base in NESTED.items() if any(issubclass(h, base) for h in types)), None)


def _lookup(kind: str, name: str) -> type:
    """The class called ``name``.  Case and underscores are ignored, except for a user's own class.

    Raises ``ConfigError`` if there is none.
    """
    if is_reference(name):
        return import_class(name, kind)
    name = present_name(name)
    for other in (kind, *TABLES):
        for known in TABLES[other]:
            if _plain(known) == _plain(name):
                if other == kind:
                    return TABLES[kind][known]
                raise ConfigError(
                    f"{name!r} is a {other}; a {kind} is expected. Allowed: {', '.join(TABLES[kind])}."
                )
    raise unknown(kind, name, TABLES[kind])


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _name(cls: type) -> str | None:
    """The name of a class in the tables, or of a user's own class; None if it has none."""
    cls = Layered if issubclass(cls, Layered) else cls  # an object's own class is that of its kind
    known = (name for table in TABLES.values() if (name := table.name_of(cls)))
    return next(known, None) or reference(cls)


def _literal(node: ast.expr) -> Any:
    """The literal value of ``node``; in a dict the values are compressors, for the rules of Layered."""
    if not isinstance(node, ast.Dict) or None in node.keys:
        return literal_value(node)
    patterns = [literal_value(key) for key in node.keys if key is not None]
    for pattern, count in Counter(patterns).items():
        if count > 1:  # Python's dict would keep the last one without a word
            raise ConfigError(f"{shown(node)}: {pattern!r} is given twice. Leave one of its rules out.")
    return dict(zip(patterns, (_object("compressor", C) for C in node.values), strict=True))


def _value_text(value: Any) -> str:
    if isinstance(value, Compressor | Problem):
        return to_text(value)
    if _are_rules(value):
        return f"{{{', '.join(f'{pattern!r}: {to_text(C)}' for pattern, C in value)}}}"
    if isinstance(value, str) and is_bare(value):
        return value
    if isinstance(value, np.ndarray):  # as a data set of the package's: it cannot be read back
        return f"<{' x '.join(map(str, value.shape))}, sha256 {in_full(value).rpartition('sha256 ')[2]}>"
    return repr(float(value)) if isinstance(value, float) else repr(value)


def _is_default(f: Field[Any], value: Any) -> bool:
    """Whether ``value`` is the default of the field.

    An array or a table of pandas, whose comparison is one of entries, is none.
    """
    default = _default(f)
    same = default is not MISSING and value == default
    return isinstance(same, bool | np.bool_) and bool(same)


def _are_rules(value: Any) -> bool:
    """Whether ``value`` is a tuple of pairs of a pattern and a compressor: the rules of Layered."""
    return isinstance(value, tuple) and any(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Compressor) for pair in value
    )


def _fields(cls: type) -> tuple[Field[Any], ...]:
    """The parameters of a class, without those that a run sets (they are not in the ``repr``)."""
    return tuple(f for f in fields(cls) if f.init and f.repr)


def _default(f: Field[Any]) -> Any:
    """The default of a parameter; ``MISSING`` if it must be given."""
    return f.default if f.default_factory is MISSING else f.default_factory()
