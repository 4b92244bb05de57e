"""Restore quotes that a text may omit: ``logistic(data=data/a9a.bz2)`` reads as ``(data='data/a9a.bz2')``.

A word in the place of a value is quoted if Python reads it neither as a name nor as a number.  A word
consists of letters, digits and ``_ . / : ~ @ % + -``; the user has to quote a text with other characters.
"""

from __future__ import annotations

import ast
import re

_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_WORD = r"[\w./:~@%+-]+"
_VALUE = re.compile(rf"{_STRING}|(?P<before>(?:^|[(,=:])\s*)(?P<word>{_WORD})")
_CLASS = re.compile(rf"'({_WORD}:\w+)'(?=\(|$)")
_GIVEN = re.compile(r"\b(\w+)\s*=\s*([^\s'\"(),=](?:[^'\"(),=]*[^\s'\"(),=])?)(?=\s*[,)])")


def quote_words(text: str) -> str:
    """``text`` with quotes around the words that are neither names nor numbers."""

    def quoted(found: re.Match[str]) -> str:
        word = found["word"]
        return found[0] if word is None or _is_plain(word) else f"{found['before']}{word!r}"

    return _VALUE.sub(quoted, text)


def shown(node: ast.expr) -> str:
    """The text of ``node``, without quotes around the names of a user's own classes."""
    return _CLASS.sub(r"\1", ast.unparse(node))


def needs_no_quotes(text: str) -> bool:
    """Whether the user may write ``text`` without quotes, because it is one word."""
    return re.fullmatch(_WORD, text) is not None


def advice(text: str) -> str:
    """Advice such as " Write data='my file'.", if a parameter's value in ``text`` needs quotes; else ""."""
    for name, value in _GIVEN.findall(text):
        try:
            ast.parse(quote_words(value), mode="eval")
        except (SyntaxError, ValueError):
            return f" Write {name}={value!r}."
    return ""


def _is_plain(word: str) -> bool:
    """Whether Python reads ``word`` as a name or as a number."""
    if word.isidentifier():
        return True
    try:
        float(word)
    except ValueError:
        return False
    return True
