"""A linear autoencoder on images, with adjustable differences between workers.  From the PermK paper."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mpicomp.base.arrays import Array, Indices
from mpicomp.base.blas import one_thread_for_good
from mpicomp.base.checks import as_seed, check_at_least, check_nonnegative
from mpicomp.base.errors import ConfigError
from mpicomp.base.parts import Part, Parts
from mpicomp.data import ClassRows, Images, as_name, load_images, rows_of, shard_sizes
from mpicomp.keys import Key
from mpicomp.problems.base import Problem
from mpicomp.problems.objective import FiniteSum


@dataclass(frozen=True)
class Autoencoder(Problem):
    """f_i(D, E) = (1/m_i) sum_j ||D E a_j - a_j||^2 + lam/2 (||D||^2 + ||E||^2), D of shape (p, r), E (r, p).

    x = (D, E), row by row, d = 2 p r.  The images a_j, pixels from 0 to 1, are shuffled and cut into n + 1
    parts.  With probability ``p_hat``, drawn from ``seed``, worker i holds part 0, which is common; else it
    holds part i + 1, its own.  p_hat = 1 makes all f_i equal, p_hat = 0 makes all data disjoint.

    x0 is drawn from ``seed`` too.  Its entries are normal with variance 1/p: the columns of D and the rows of
    E have length 1, about, as at the minima with D = E'.  (At 0, a saddle, the gradient vanishes.)

    ``data`` is a name or path for ``load_images``, or an array or sparse matrix of shape (m, p), which is
    copied and taken as it is.

    The constants are not known: give step sizes as numbers.

    Source: Szlendak, Tyurin, Richtarik, "Permutation compressors for provably faster distributed
    nonconvex optimization", ICLR 2022, experiments on MNIST, written from memory; x0 is this
    library's.

    r      the length of the code E a_j, 1 or above
    p_hat  the probability that a worker holds the common part, from 0 to 1
    """

    paper: ClassVar[str] = "Szlendak, Tyurin, Richtárik, Permutation compressors (ICLR 2022), experiments"

    data: Any = "mnist"
    r: int = 16
    p_hat: float = 0.0
    lam: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", as_name(self.data))
        if not isinstance(self.data, str | ClassRows):
            object.__setattr__(self, "data", ClassRows.unlabelled(self.data))
        check_at_least("r", self.r, 1, "the code has at least 1 entry")
        if not 0 <= self.p_hat <= 1:
            raise ConfigError(
                f"p_hat = {self.p_hat}: it is a probability, from 0 to 1.",
                allowed="a probability from 0 to 1",
            )
        check_nonnegative("lam", self.lam, "the weight of the penalty")
        as_seed(self.seed)

    def images(self) -> Images | ClassRows:
        if isinstance(self.data, ClassRows):
            return self.data
        return load_images(self.data, labelled=False)

    def dimension(self) -> int:
        return 2 * self.images().shape[1] * self.r

    def parts(self) -> Parts:
        """D and E."""
        p = self.images().shape[1]
        return Parts((Part("D", (p, self.r)), Part("E", (self.r, p))))

    def fingerprint(self) -> str:
        return self.images().sha256

    def shard_sizes(self, n: int) -> list[int]:
        parts = shard_sizes(n + 1, self.images().labels, "shuffled")
        return [parts[self.part_of(i, n)] for i in range(n)]

    def x0(self) -> Array:
        p = self.images().shape[1]
        stream = Key(seed=self.seed, round=0, worker=None, n=1).shared("autoencoder/start")
        return stream.normals(self.dimension()) / sqrt(p)

    def part_of(self, i: int, n: int) -> int:
        """The number, from 0 to n, of the part that worker i out of n holds."""
        key = Key(seed=self.seed, round=0, worker=i, n=n)
        return 0 if key.private("autoencoder/part").coin(self.p_hat) else i + 1

    def objective(self, i: int, n: int) -> AutoencoderObjective:
        one_thread_for_good()
        images = self.images()
        rows = rows_of(self.part_of(i, n), n + 1, images.labels, "shuffled")
        A = images.intensities(rows)
        m, p = A.shape
        return AutoencoderObjective(A, A.T @ A / m if m > p else None, self.r, self.lam)


class AutoencoderObjective(FiniteSum):
    """The f_i of ``Autoencoder`` over rows a_j of A, shape (m, p).

    The images enter only through S = A'A / m.  Without the penalty f_i = tr D'D E S E' - 2 tr D'S E' + tr S,
    with the gradients 2 (D E S E' - S E') in D and 2 (D'D E S - D'S) in E.  S is given if it is smaller than
    A, else None.
    """

    def __init__(self, A: NDArray[np.float64], S: NDArray[np.float64] | None, r: int, lam: float) -> None:
        self.A, self.S, self.r, self.lam = A, S, r, lam
        self.samples = len(A)
        self.trace = np.sum(A * A) / len(A)  # tr S

    def part(self, rows: Indices) -> AutoencoderObjective:
        return AutoencoderObjective(self.A[rows], None, self.r, self.lam)

    def value(self, x: Array) -> float:
        D, E = self._factors(x)
        SE = self._S_times(E.T)
        f = np.sum((D.T @ D) * (E @ SE)) - 2 * np.sum(D * SE) + self.trace
        return float(f + self.lam / 2 * np.sum(x * x))

    def grad(self, x: Array) -> Array:
        D, E = self._factors(x)
        SE, SD = self._S_times(E.T), self._S_times(D)
        g = np.concatenate([(D @ (E @ SE) - SE).ravel(), (SE @ (D.T @ D) - SD).T.ravel()])
        g *= 2
        g += self.lam * x
        return g

    def _factors(self, x: Array) -> tuple[Array, Array]:
        """D, shape (p, r), and E, shape (r, p), as views of x."""
        half = x.size // 2
        return x[:half].reshape(-1, self.r), x[half:].reshape(self.r, -1)

    def _S_times(self, V: Array) -> Array:
        return self.A.T @ (self.A @ V) / self.samples if self.S is None else self.S @ V
