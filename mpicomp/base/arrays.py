"""Type names of arrays, by their content.  On a GPU, arrays of its library (CuPy) take their place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]  # float32 or float64
Matrix = NDArray[np.floating]  # with two axes
Reals = NDArray[np.float64]
Indices = NDArray[np.int64]  # coordinates
Words = NDArray[np.uint32]  # random words, or words of the entropy coder
Symbols = NDArray[np.uint16]  # levels, counted from the lowest one
Symbols32 = NDArray[np.int32]  # symbols of an alphabet, as constriction codes them
Widths = NDArray[np.uint8]  # the number of bits of each symbol
Frequencies = NDArray[np.uint32]  # the frequency of each of the 256 byte values

StreamName = tuple[tuple[int, int], tuple[int, int, int]]  # Philox's key, and the upper lanes of its counter
