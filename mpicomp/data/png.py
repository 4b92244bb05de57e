"""PNG files of 8 bits a channel, grey or in red, green, blue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError, RecordError

MODES = {"L": "grey", "RGB": "red, green, blue"}


def png_files(folder: Path) -> list[Path]:
    """The PNG files in ``folder``, by name.  Raises ``DataError`` if there is none."""
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".png")
    except OSError as error:
        raise DataError(f"cannot look into {folder}: {error.strerror}.") from None
    if not found:
        raise DataError(f"{folder} holds no PNG file; allowed: a folder with files that end in .png.")
    return found


def read_png(path: Path) -> NDArray[np.uint8]:
    """The pixels, (height, width) if grey, else (height, width, 3).

    Raises ``DataError`` for what is no PNG file, and for one with transparency, a palette, or 1 or 16 bits.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=["PNG"]) as image:
            if image.mode not in MODES or "transparency" in image.info:
                raise DataError(
                    f"{path} is a PNG file of mode {image.mode}; allowed: 8 bits a channel, grey (L) or red, "
                    "green, blue (RGB). Convert it, with Pillow by image.convert('L')."
                )
            return np.array(image)
    except UnidentifiedImageError:
        raise DataError(f"{path} is no PNG file.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None


def write_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write (height, width), grey, or (height, width, 3).  Raises ``RecordError`` if it cannot be written."""
    from PIL import Image

    try:
        Image.fromarray(pixels).save(path, format="PNG", optimize=True)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}.") from None
