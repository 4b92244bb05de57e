"""A blank figure, its colours, its texts, and the file it is saved in."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from mpicomp.base.errors import ConfigError
from mpicomp.base.files import write_atomically
from mpicomp.base.given_arrays import ADDRESS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Wong's palette for colour-blind readers, without its yellow: black and grey first; two of Tol's at the end.
COLOURS = (
    "#000000",
    "#7f7f7f",
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#882255",
    "#999933",
)
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = "osD^vPX*<>hd"
LEAST_DPI = 50
LONGEST = 500  # characters of a text that are drawn
MOST_STYLES = len(COLOURS) * len(DASHES)  # pairs of a colour and a dash pattern


def curve_style(i: int) -> dict[str, Any]:
    """Colour, dash pattern and marker of curve ``i``: no two curves have the same colour and dashes.

    Raises ``ConfigError`` for more curves than there are such pairs.
    """
    if i >= MOST_STYLES:
        raise ConfigError(
            f"a figure has {MOST_STYLES} curves at most, which is what there are colours and dashes for. "
            "Draw some of the runs: mpicomp plot takes their folders."
        )
    dashes = DASHES[(i + i // len(COLOURS)) % len(DASHES)]  # shifted each time the colours begin again
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": dashes, "marker": MARKERS[i % len(MARKERS)]}


def plain_label(label: str) -> str:
    """``label`` for matplotlib: $ does not start a formula, and a leading _ does not hide the label."""
    return (f" {label}" if label.startswith("_") else label).replace("$", r"\$")


def plain_title(title: str) -> str:
    """``title`` for matplotlib: text between two $ is a formula, unless matplotlib cannot parse it."""
    from matplotlib.cbook import is_math_text
    from matplotlib.mathtext import MathTextParser

    try:
        for line in filter(is_math_text, title.split("\n")):
            MathTextParser("path").parse(line)
    except (ValueError, RecursionError):
        return title.replace("$", r"\$")
    return title


def drawable(text: str) -> str:
    """Make any ``text`` fit for a figure: replace characters that cannot be drawn, and cut a long text.

    Addresses of objects, which are others each time, are left out.  A cut text gets its length and a
    checksum, so that different texts still differ in the figure.
    """
    plain = ADDRESS.sub("", text).encode(errors="replace").decode()  # matplotlib refuses a lone surrogate
    # No font has a control character, and matplotlib's complaints of it would reach the user's terminal.
    plain = re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", lambda found: repr(found[0])[1:-1], plain)
    with suppress(ImportError, ValueError):  # ``blank_figure`` says what matplotlib lacks
        from mpicomp.lab.experiment.glyphs import spelt

        plain = spelt(plain)
    if len(plain) <= LONGEST:
        return plain
    return f"{plain[:LONGEST]}.. ({len(plain)} characters, CRC {crc32(plain.encode()):08x})"


@contextmanager
def without_tex() -> Iterator[None]:
    """In the ``with`` block matplotlib sets texts by itself, also where a user's settings say ``usetex``.

    The labels are no TeX: they have signs such as _ and ∇.  Raises ``ConfigError`` if matplotlib is not
    installed.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise ConfigError(
            "a figure needs matplotlib, which is not installed: pip install matplotlib."
        ) from None
    except ValueError as error:  # of MPLBACKEND, which it reads
        raise ConfigError(f"a figure needs matplotlib, which does not start: {error}.") from None
    with rc_context({"text.usetex": False}):
        yield


def blank_figure(
    rows: int, columns: int, sharey: bool, size: tuple[float, float] | None = None
) -> tuple[Figure, list[Axes]]:
    """An empty figure of ``size``, in inches, and its rows x columns panels, row by row."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    width = max(5.5 * columns, 7) if columns < 3 else 4.2 * columns
    # Texts are laid out at the user's dots an inch; a font of less than a dot has no size.
    dots = max(rcParams["figure.dpi"], LEAST_DPI)
    figure = Figure(figsize=size or (width, 1.4 + 3.4 * rows), dpi=dots)
    figure.set_layout_engine("constrained")
    return figure, list(figure.subplots(rows, columns, sharey=sharey, squeeze=False).flat)


def plain_axes(axes: Axes) -> None:
    """Give the panel a light grid below its curves, and no frame at the top and on the right."""
    axes.grid(True, which="major", color="#e2e2e2", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_entries(panels: Sequence[Axes]) -> dict[str, Any]:
    """Map each label in the panels to the first curve that has it."""
    shown: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        shown |= {label: handle for handle, label in zip(handles, labels, strict=True) if label not in shown}
    return shown


@without_tex()
def save(figure: Figure, path: Path) -> None:
    """Write the figure, atomically, in the format that the path's suffix names.

    Raises ``RecordError`` if the file cannot be written, ``ConfigError`` if the format is unknown.
    """
    content = io.BytesIO()
    try:
        figure.savefig(content, format=path.suffix[1:], dpi=200)
    except ValueError as error:
        raise ConfigError(f"cannot write {path}: {error}.") from None
    write_atomically(path, content.getvalue())  # in the place of a link, not through it
