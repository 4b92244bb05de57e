"""Parse a literal (number, name, quoted text, tuple), and check it against a parameter's type."""

from __future__ import annotations

import ast
from types import UnionType
from typing import Any, Union, get_args, get_origin

from mpicomp.base.errors import ConfigError
from mpicomp.text.quoting import advice, quote_words

_SHOWN = 200  # characters of an unreadable text that its error message shows


def syntax_tree(text: str) -> ast.expr:
    """The syntax tree of ``text``.  Raises ``ConfigError`` if Python cannot parse it."""
    # In a file name that is not UTF-8 some characters are surrogates; the parser reads only their escapes.
    plain = quote_words(text.strip()).encode(errors="backslashreplace").decode()
    try:
        return ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(
            f"cannot read {abridged(text)}: {reason}. Expected NAME or NAME(PARAMETER=VALUE, ...)."
            f"{advice(text)}"
        ) from None
    except (RecursionError, MemoryError):  # the parser's errors for deep nesting
        raise ConfigError(f"cannot read {abridged(text)}: it is nested too deeply.") from None


def abridged(text: str) -> str:
    """``repr(text)`` for an error message, cut off after 200 characters."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def literal_value(node: ast.expr) -> Any:
    """The value of ``node``: a number, string, tuple, True, False or None.

    A name gives a string; so do theory*8, and a name with values such as dirichlet(0.1).  Raises
    ``ConfigError`` if ``node`` is anything else.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name(id=name):
            return name
        case ast.Tuple(elts=elements):
            return tuple(literal_value(element) for element in elements)
        case ast.BinOp(
            left=ast.Name(id=name), op=ast.Mult(), right=ast.Constant(value=int() | float() as factor)
        ):
            return f"{name}*{factor}"
        case ast.Call(func=ast.Name(id=name), args=[*values], keywords=[]):
            return f"{name}({', '.join(str(literal_value(value)) for value in values)})"
    raise ConfigError(
        f"{ast.unparse(node)!r} is no value; allowed: a number, a name, 'a quoted text', "
        "True, False, None, theory*NUMBER, a tuple of such. "
        f"If a text is meant, write {ast.unparse(node)!r}."
    )


def check_type(text: str, parameter: str, value: Any, hint: Any) -> Any:
    """``value`` if it has the parameter's declared type ``hint``, else raise ``ConfigError``."""
    if hint is Any:
        return value
    if hint is str and type(value) is int:  # p=2 is accepted for p='2'
        return str(value)
    members = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    kinds = tuple(get_origin(member) or member for member in members)  # a tuple[float, ...] is a tuple
    if not all(isinstance(kind, type) for kind in kinds):  # a user's own class may say Literal["a", "b"]
        return value
    accepted = (*kinds, int) if float in kinds else kinds  # whole numbers are numbers
    switch = isinstance(value, bool) and bool not in kinds  # to Python, True is an int
    if switch or not isinstance(value, accepted):
        wanted = hint.__name__ if isinstance(hint, type) else str(hint)
        raise ConfigError(f"{text}: {parameter}={value!r}; allowed: a value of type {wanted}.")
    return value


def is_bare(text: str) -> bool:
    """Whether ``text`` needs no quotes: written without them, it is read as this string."""
    try:
        return bool(literal_value(ast.parse(text, mode="eval").body) == text)
    except (SyntaxError, ValueError, ConfigError):
        return False


def read_parameter(text: str, name: str) -> Any:
    """Read the parameter ``name`` from ``text``, the ``repr`` of an object, without making the object.

    Raises ``ConfigError`` if the text does not give it.
    """
    node = syntax_tree(text)
    for keyword in node.keywords if isinstance(node, ast.Call) else []:
        if keyword.arg == name:
            try:
                return literal_value(keyword.value)
            except RecursionError:
                break
    raise ConfigError(f"{text} does not say {name}.")
