"""Characters that a figure's font lacks: from another font that has them, or else as their code points."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, cast

from matplotlib.font_manager import FontProperties, findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_NO_GLYPHS = ("Last Resort", "Emoji")  # fonts of boxes, and of coloured pictures that matplotlib cannot draw


def spelt(text: str) -> str:
    """``text`` with code points, such as \\u65b9, for characters that no font here has; warns once."""
    missing = {c for c in _lacking(text) if _font_with(c) is None}
    if missing:
        _warn_of_missing_fonts()
    return "".join(c.encode("ascii", "backslashreplace").decode() if c in missing else c for c in text)


def borrow_glyphs(artist: Artist) -> None:
    """Have each text in ``artist`` drawn with further fonts where its own lack some of its characters."""
    for text in cast("list[Text]", artist.findobj(Text)):
        own = text.get_fontfamily()
        further = {_font_with(c) for c in _lacking(text.get_text(), tuple(own))} - {None}
        if further:
            text.set_fontfamily([*own, *sorted(str(name) for name in further)])
            text.set_fontweight("normal")  # matplotlib complains of a font without bold letters


def _lacking(text: str, families: tuple[str, ...] | None = None) -> set[str]:
    """The characters of ``text`` that the fonts of ``families``, by default matplotlib's settings, lack."""
    unusual = {c for c in text if not c.isascii() and c.isprintable()}
    if not unusual:
        return unusual
    paths = [str(findfont(FontProperties(family=[f]))) for f in families or FontProperties().get_family()]
    return {c for c in unusual if not any(ord(c) in _characters(path) for path in paths)}


@cache  # once in a process, also where others change the filters of warnings between two texts
def _warn_of_missing_fonts() -> None:
    warnings.warn(
        "no font of this machine has some of the characters in a title or label: the figure has their "
        "code points, such as \\u65b9. Install a font with them, such as Noto Sans CJK.",
        stacklevel=3,
    )


@cache
def _font_with(character: str) -> str | None:
    """A font that has the character, preferably without serifs, as the text around it."""
    return next((name for name, path in _upright() if ord(character) in _characters(path)), None)


@cache
def _upright() -> list[tuple[str, str]]:
    """The names and files of the upright fonts of normal weight, those without serifs first."""
    found = {
        font.name: font.fname
        for font in fontManager.ttflist
        if font.style == "normal" and font.weight in (400, "normal", "regular")
    }
    usable = {name for name in found if not any(word in name for word in _NO_GLYPHS)}
    first = sorted(usable, key=lambda name: ("Sans" not in name and "Gothic" not in name, name))
    return [(name, found[name]) for name in first]


@cache
def _characters(path: str) -> frozenset[int]:
    """The code points that the font in the file has; none if it cannot be scaled, or read."""
    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(font.get_charmap()) if font.scalable else frozenset()
