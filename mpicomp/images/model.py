"""A trained model of images: probabilities of images, and its file."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mpicomp.base.errors import ConfigError, DataError
from mpicomp.base.files import as_path, is_folder, os_errors_as, refuse_endless, write_atomically
from mpicomp.base.units import one_line
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from mpicomp.images.network import IntegerNetwork

KINDS: dict[str, type[LocalImages | FullImages]] = {"local": LocalImages, "full": FullImages}
SETTINGS = ("horizon", "hidden", "blocks")
EXPANSION = 2**6  # bytes of a model for each byte of its file; ``save`` writes them as they are


def kind_of(problem: LocalImages | FullImages) -> str:
    """The name in ``KINDS`` of the problem's class.  Raises ``ConfigError`` if it is none of these."""
    for name, cls in KINDS.items():
        if type(problem) is cls:
            return name
    raise ConfigError(f"the problem is {one_line(problem)}; allowed: a LocalImages or a FullImages.")


@dataclass(frozen=True, eq=False)
class ImageModel:
    """The network of ``LocalImages`` (kind "local") or ``FullImages`` (kind "full") with parameters x.

    shape  (height, width) of the images of a full model, which sees a pixel's row and column; else None
    """

    kind: str
    settings: dict[str, Any]  # horizon, hidden, blocks
    x: Any
    shape: tuple[int, int] | None = None

    @staticmethod
    def of(problem: LocalImages | FullImages, x: Any) -> ImageModel:
        """The model that was trained on ``problem``; x is the ``x`` of the run."""
        kind = kind_of(problem)
        settings = {name: getattr(problem, name) for name in SETTINGS}
        shape = problem.images().pixels.shape[1:] if kind == "full" else None
        return ImageModel(kind, settings, np.asarray(x, dtype=np.float32), shape)

    def problem(self, data: Any) -> LocalImages | FullImages:
        """The problem of this network on other images: a name, a path or an array."""
        return replace(KINDS[self.kind](data), **self.settings)

    def log_likelihoods(self, data: Any) -> Any:
        """log p of each image, in nats, shape (images,), float64.

        Raises ``ConfigError`` for a full model and images of another shape than those of its training.
        """
        problem = self.problem(data)
        if self.shape is not None and (other := problem.images().pixels.shape[1:]) != self.shape:
            raise ConfigError(
                f"images of {other[0]} x {other[1]} pixels; allowed: {self.shape[0]} x {self.shape[1]}, as "
                "those on which the full model was trained."
            )
        return problem.log_likelihoods(self.x)

    def integers(self) -> IntegerNetwork:
        """The integer network for an archive.  Raises ``ConfigError`` if the model is full, or too large."""
        problem = self.problem(np.zeros((1, 1, 1), dtype=np.uint8))
        if not isinstance(problem, LocalImages):
            raise ConfigError("a full model cannot compress; allowed: a local model, `mpicomp images train`.")
        return IntegerNetwork.of(problem, self.x)

    def save(self, path: str | Path) -> None:
        """Write the model to an .npz file.  Raises ``RecordError`` if it cannot be written."""
        buffer = io.BytesIO()
        described = {"kind": self.kind, "shape": self.shape, **self.settings}
        np.savez(buffer, x=self.x, model=json.dumps(described))
        write_atomically(as_path("path", path, "file"), buffer.getvalue())

    @staticmethod
    def load(path: str | Path) -> ImageModel:
        """Load the model from a file that ``save`` wrote, or from the folder of a training.

        Raises ``DataError`` if there is no model.  Memory and time are bounded by the file's size.
        """
        path = as_path("path", path, "file")
        with os_errors_as(DataError, f"cannot read the model {path}"):
            if is_folder(path):
                path = path / "model.npz"
        refuse_endless(path)
        try:
            content = path.read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                if sum(held.file_size for held in found.zip.infolist()) > EXPANSION * len(content):
                    raise ValueError(f"more than {EXPANSION} bytes in a byte of the file")
                settings, x = json.loads(str(found["model"])), found["x"]
            kind, shape = settings.pop("kind"), settings.pop("shape", None)
            model = ImageModel(kind, settings, x, None if shape is None else (int(shape[0]), int(shape[1])))
            # Others, such as data, would be read in place of the images that the user gives.
            if settings.keys() != {*SETTINGS}:
                raise ValueError(f"the settings {', '.join(settings)}")
            if x.dtype.kind != "f" or not np.isfinite(x).all():
                raise ValueError(f"parameters of type {x.dtype}, or not finite")
            if (model.kind == "full") == (shape is None):
                raise ValueError(f"a {model.kind} model of images of shape {shape}: train it again")
            model.problem(np.zeros((1, 1, 1), dtype=np.uint8))  # refuses settings of no network
            return model
        except OSError as error:
            raise DataError(f"cannot read the model {path}: {error.strerror or error}.") from None
        except Exception as error:  # a damaged file has many ways to fail
            raise DataError(
                f"{path} holds no model of images ({error!r}); allowed: what `mpicomp images train` wrote."
            ) from None
