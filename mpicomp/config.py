"""Text to objects and back: ``marina(Q=randk(k=0.01), gamma=theory*8)``.

The text only looks like a Python call: its syntax tree is read, and nothing is executed.

* A class is named as in its table or as in Python: ``quantized_topk`` or ``QuantizedTopK``.
* A class without parentheses takes its defaults: ``natural`` is ``natural()``.
* A bare name is a string, ``gamma=theory`` or ``p=inf``, unless its parameter is a compressor or a problem.
* The rules of ``layered`` are a dict of quoted patterns: ``{'*.bias': identity, 'ndim>=2': topk(k=0.05)}``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from mpicomp.base.errors import ConfigError, unknown
from mpicomp.compressors import COMPRESSORS, Compressor, Layered
from mpicomp.methods import METHODS, Method
from mpicomp.problems import PROBLEMS, Problem

TABLES: dict[str, Mapping[str, type]] = {"method": METHODS, "problem": PROBLEMS, "compressor": COMPRESSORS}
NESTED: dict[str, type] = {"compressor": Compressor, "problem": Problem}  # kinds that a parameter may have

_SHOWN = 200  # characters of an unreadable text that its error message shows

Source = TypeVar("Source")  # the form of a parameter's value before it is read: a syntax tree, or JSON


def parse_method(text: str) -> Method:
    """The method that ``text`` describes.  Raises ``ConfigError`` if it describes none."""
    return _parse("method", text)


def parse_problem(text: str) -> Problem:
    """The problem that ``text`` describes.  Raises ``ConfigError`` if it describes none."""
    return _parse("problem", text)


def parse_compressor(text: str) -> Compressor:
    """The compressor that ``text`` describes.  Raises ``ConfigError`` if it describes none."""
    return _parse("compressor", text)


def to_text(obj: object) -> str:
    """The canonical text: the name in the table, and the fields that differ from their defaults.

    It reads back: ``parse_method(to_text(m)) == m``, also for problems and compressors.  An object of a class
    in no table, such as a user's own problem, gives its ``repr``.
    """
    name = _name(type(obj))
    if name is None:
        return repr(obj)
    given = [(f, getattr(obj, f.name)) for f in _fields(type(obj))]
    changed = [f"{f.name}={_value_text(value)}" for f, value in given if value != f.default]
    return f"{name}({', '.join(changed)})" if changed else name


def to_json(obj: object) -> dict[str, Any]:
    """``{"name": ..., field: value, ...}`` with all fields; compressors and problems are nested objects."""
    values = {f.name: getattr(obj, f.name) for f in _fields(type(obj))}
    return {"name": _name(type(obj)), **{k: _json_value(v) for k, v in values.items()}}


def _json_value(value: Any) -> Any:
    if isinstance(value, Compressor | Problem):
        return to_json(value)
    if _are_rules(value):
        return {pattern: to_json(C) for pattern, C in value}
    return value


def from_json(kind: str, content: Mapping[str, Any]) -> Any:
    """The object that ``to_json`` has written; ``kind`` is "method", "problem" or "compressor".

    Raises ``ConfigError`` if ``content`` describes none.
    """
    if not isinstance(content, Mapping) or not isinstance(content.get("name"), str):
        raise ConfigError(f"{content!r} is no {kind}; expected an object with a 'name'.")
    given = {k: v for k, v in content.items() if k != "name"}
    return _build(kind, content["name"], given, from_json, _from_json_value, str(dict(content)))


def _from_json_value(value: Any) -> Any:
    """``value``, as a tuple if it is a list: JSON has no tuples.  An object holds the rules of Layered."""
    if isinstance(value, Mapping):
        return {pattern: from_json("compressor", C) for pattern, C in value.items()}
    return tuple(value) if isinstance(value, list) else value


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
    """The description of a class: its name in the tables, its parameters, a summary and the paper."""
    parameters = {f.name: None if f.default is MISSING else _value_text(f.default) for f in _fields(cls)}
    # The first line on a method is its module's; the class's docstring starts with the algorithm.
    doc = sys.modules[cls.__module__].__doc__ if issubclass(cls, Method) else cls.__doc__
    summary = (doc or "").strip().partition("\n")[0]  # none under python -OO
    return Description(_name(cls) or cls.__name__, parameters, summary, getattr(cls, "paper", ""))


def _parse(kind: str, text: str) -> Any:
    shown = repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(
            f"cannot read {shown}: {reason}. Expected NAME or NAME(PARAMETER=VALUE, ...)."
        ) from None
    except (RecursionError, MemoryError):  # the parser's errors for deep nesting
        raise ConfigError(f"cannot read {shown}: it is nested too deeply.") from None
    try:
        return _object(kind, node)
    except RecursionError:
        raise ConfigError(f"cannot read {shown}: it is nested too deeply.") from None


def _object(kind: str, node: ast.expr) -> Any:
    """The object of the given kind that ``node``, a name or a call, describes."""
    text = ast.unparse(node)
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if not isinstance(call.func, ast.Name):
        raise ConfigError(f"{text!r} is no {kind}; expected NAME or NAME(PARAMETER=VALUE, ...).")
    cls = _lookup(kind, call.func.id)
    names = [f.name for f in _fields(cls)]
    if len(call.args) > len(names):
        raise ConfigError(f"{text}: {len(call.args)} parameters; allowed: {', '.join(names) or 'none'}.")
    given = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in given:
            raise ConfigError(f"{text}: {keyword.arg or '**'} is given twice, or not by its name.")
        given[keyword.arg] = keyword.value
    return _build(kind, call.func.id, given, _object, _literal, text)


def _build(
    kind: str,
    name: str,
    given: Mapping[str, Source],
    nested: Callable[[str, Source], Any],
    literal: Callable[[Source], Any],
    text: str,
) -> Any:
    """An object of the class ``name`` with the parameters ``given``.

    ``nested`` reads a parameter whose type is a compressor or a problem, ``literal`` any other; ``text`` is
    the object as written, for error messages.  Raises ``ConfigError``.
    """
    cls = _lookup(kind, name)
    hints, known = get_type_hints(cls), {f.name: f for f in _fields(cls)}
    for parameter in given:
        if parameter not in known:
            raise unknown(f"parameter of {_name(cls)}", parameter, known)
    missing = [f.name for f in known.values() if f.name not in given and f.default is MISSING]
    if missing:
        raise ConfigError(
            f"{text} lacks {' and '.join(missing)}. {describe(cls).signature} is what it takes."
        )
    values = {}
    for parameter, source in given.items():
        hint = hints[parameter]
        within = None if _is_none(source) else _nested_kind(hint)
        if within is None:
            values[parameter] = _typed(text, parameter, literal(source), hint)
        else:
            values[parameter] = nested(within, source)
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{text}: {error}") from None


def _nested_kind(hint: Any) -> str | None:
    """ "compressor" or "problem" if the type hint is one or allows one, else None."""
    types = [h for h in (hint, *get_args(hint)) if isinstance(h, type)]
    return next((kind for kind, base in NESTED.items() if any(issubclass(h, base) for h in types)), None)


def _is_none(source: Any) -> bool:
    return source is None or (isinstance(source, ast.Constant) and source.value is None)


def _lookup(kind: str, name: str) -> type:
    """The class ``name``; case and underscores are ignored.  Raises ``ConfigError`` if there is none."""
    for other in (kind, *TABLES):
        for known, cls in TABLES[other].items():
            if _plain(known) == _plain(name):
                if other == kind:
                    return cls
                raise ConfigError(
                    f"{name!r} is a {other}; a {kind} is expected. Allowed: {', '.join(TABLES[kind])}."
                )
    raise unknown(kind, name, TABLES[kind])


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _name(cls: type) -> str | None:
    """The name of a class in the tables, None if it is in none."""
    cls = Layered if issubclass(cls, Layered) else cls  # an object's own class is that of its kind
    return next((name for table in TABLES.values() for name, c in table.items() if c is cls), None)


def _literal(node: ast.expr) -> Any:
    """The number, string, tuple, True, False or None that ``node`` is; a name or theory*8 is a string.

    A dict has compressors for values: the rules of Layered.
    Raises ``ConfigError`` if it is anything else.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name(id=name):
            return name
        case ast.Tuple(elts=elements):
            return tuple(_literal(element) for element in elements)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            patterns = [_literal(key) for key in keys if key is not None]
            return dict(zip(patterns, (_object("compressor", C) for C in values), strict=True))
        case ast.BinOp(
            left=ast.Name(id=name), op=ast.Mult(), right=ast.Constant(value=int() | float() as factor)
        ):
            return f"{name}*{factor}"
    raise ConfigError(
        f"{ast.unparse(node)!r} is no value; allowed: a number, a name, 'a quoted text', "
        "True, False, None, theory*NUMBER, a tuple of such."
    )


def _typed(text: str, parameter: str, value: Any, hint: Any) -> Any:
    """``value`` if it has the parameter's declared type ``hint``, else raise ``ConfigError``."""
    if hint is Any:
        return value
    if hint is str and type(value) is int:  # p=2 is accepted for p='2'
        return str(value)
    members = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kinds = tuple(get_origin(member) or member for member in members)  # a tuple[float, ...] is a tuple
    accepted = (*kinds, int) if float in kinds else kinds  # whole numbers are numbers
    if isinstance(value, bool) or not isinstance(value, accepted):
        wanted = getattr(hint, "__name__", str(hint))
        raise ConfigError(f"{text}: {parameter}={value!r}; allowed: a value of type {wanted}.")
    return value


def _value_text(value: Any) -> str:
    if isinstance(value, Compressor | Problem):
        return to_text(value)
    if _are_rules(value):
        return f"{{{', '.join(f'{pattern!r}: {to_text(C)}' for pattern, C in value)}}}"
    if isinstance(value, str) and _reads_back(value):
        return value
    return repr(float(value)) if isinstance(value, float) else repr(value)


def _are_rules(value: Any) -> bool:
    """Whether ``value`` is a tuple of pairs of a pattern and a compressor: the rules of Layered."""
    return isinstance(value, tuple) and any(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Compressor) for pair in value
    )


def _reads_back(text: str) -> bool:
    """Whether ``text`` without quotes is read as the string ``text``."""
    try:
        return bool(_literal(ast.parse(text, mode="eval").body) == text)
    except (SyntaxError, ValueError, ConfigError):
        return False


def _fields(cls: type) -> tuple[Field[Any], ...]:
    """The parameters of a class, but for those that a run sets: they are not part of the ``repr``."""
    return tuple(f for f in fields(cls) if f.repr)
