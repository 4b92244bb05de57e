"""Read a user's own file as a pair (X, y): LIBSVM, .npz, CSV or TSV, by the ending of its name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.errors import DataError
from mpicomp.data.csv_file import read_csv
from mpicomp.data.libsvm import read_libsvm
from mpicomp.data.npz import read_npz

CSV = re.compile(r"(.+?\.([ct])sv(?:\.gz|\.bz2|\.xz)?)(?::(.*))?", flags=re.IGNORECASE | re.DOTALL)


def as_name(data: Any) -> Any:
    """``data`` as a text where it names a file: a path, or a number, as data=3 in a text; else itself.

    A path is never the name of a known set: Path("digits") is ./digits.
    """
    if isinstance(data, os.PathLike):
        path = os.fsdecode(data)
        return path if os.path.dirname(path) else os.path.join(os.curdir, path)
    return str(data) if isinstance(data, int) else data


@dataclass(frozen=True)
class DataFile:
    """The file at ``path``, in format ``form``; ``column`` names the column of y in a CSV or TSV file."""

    path: Path
    form: Literal["libsvm", "npz", "csv", "tsv"]
    column: str | None = None

    @staticmethod
    def of(name: str) -> DataFile:
        """The file that ``name`` means: ``PATH.npz``, ``PATH.csv:COLUMN`` or .tsv, else LIBSVM."""
        if found := CSV.fullmatch(name):
            return DataFile(Path(found[1]), "tsv" if found[2].lower() == "t" else "csv", found[3] or None)
        return DataFile(Path(name), "npz" if name.lower().endswith(".npz") else "libsvm")

    def read(self, labelled: bool = True) -> tuple[Any, NDArray[Any]]:
        """X, an array or sparse matrix of shape (m, d), and y, shape (m,); y is 0 unless ``labelled``.

        Raises ``DataError`` if the file is not in its format.
        """
        match self.form:
            case "npz":
                X, y = read_npz(self.path, labelled)
            case "csv" | "tsv":
                if labelled and self.column is None:
                    raise DataError(
                        f"{self.path} is given without the name of its column of labels; write it after a "
                        f"colon, as in {self.path}:label."
                    )
                X, y = read_csv(self.path, self.column, tabs=self.form == "tsv")
            case "libsvm":
                X, y = read_libsvm(self.path)
                X.eliminate_zeros()  # which would tell the data from equal arrays
        return X, y if labelled and y is not None else np.broadcast_to(0.0, X.shape[:1])


def has_real_targets(name: str) -> bool:
    """Whether least squares uses any y of the file ``name`` unchanged; two labels of LIBSVM become -1, 1."""
    return DataFile.of(name).form != "libsvm"
