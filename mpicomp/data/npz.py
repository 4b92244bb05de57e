"""Read a ``.npz`` file with the arrays X and y, or with y and the arrays of scipy.sparse.save_npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.data.opening import opened

SPARSE = {"data", "indices", "indptr", "shape", "format"}  # the names of ``scipy.sparse.save_npz``


def read_npz(path: Path, labelled: bool = True) -> tuple[Any, NDArray[Any] | None]:
    """X, an array or sparse matrix, and y.  Unless ``labelled``, y may be absent, and is then None.

    Nothing is unpickled.  Raises ``DataError`` that names the file.
    """
    try:
        with opened(path, archive=True) as content, np.load(content, allow_pickle=False) as file:
            held = set(file.files) if isinstance(file, np.lib.npyio.NpzFile) else set()
            if not ("X" in held or held >= SPARSE) or (labelled and "y" not in held):
                shown = ", ".join(sorted(held)[:10]) or "none"
                if {"data", "shape", "format"} <= held and not held >= SPARSE:
                    raise DataError(
                        f"{path} holds a sparse matrix by the arrays {shown}; allowed: CSR, CSC or BSR. "
                        "scipy.sparse.save_npz(file, X.tocsr()) writes CSR."
                    )
                raise DataError(
                    f"{path} holds the arrays {shown}; expected X and y. numpy.savez(file, X=X, y=y) writes "
                    "them."
                )
            y = _array(path, file, "y") if "y" in held else None
            if "X" in held:
                X = _array(path, file, "X")
            else:
                content.seek(0)
                X = scipy.sparse.load_npz(content)
    except DataError:
        raise
    except Exception as error:  # zipfile, numpy and scipy raise a dozen classes for what is damaged
        reason = str(error).partition("\n")[0][:120].rstrip(".") or type(error).__name__
        raise DataError(
            f"{path} is no .npz file, or damaged: {reason}. numpy.savez(file, X=X, y=y) writes one."
        ) from error
    return X, y


def _array(path: Path, file: Any, name: str) -> NDArray[Any]:
    """The array ``name``.  Raises ``DataError`` if it would have to be unpickled, or is empty."""
    try:
        array: NDArray[Any] = file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"the array {name} of {path} holds Python objects; allowed: numbers, and texts for y. Save "
            f"{name}.astype(str) for texts, or {name}.astype(float)."
        ) from None
    if array.nbytes == 0:  # its shape may be any, whatever the size of the file
        raise DataError(f"the array {name} of {path} is empty: of shape {array.shape}, type {array.dtype}.")
    return array
