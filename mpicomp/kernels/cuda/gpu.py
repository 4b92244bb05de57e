"""The device as CuPy reaches it; nothing else in the package imports CuPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from mpicomp.base.errors import ConfigError

OPTIONS = (
    "-std=c++17",
    "-fmad=false",
)  # no contraction: one IEEE operation at a time.  CuPy adds -ftz=true; see arithmetic.cuh.

_DLPACK_CUDA = 2  # kDLCUDA


def source(name: str) -> str:
    """The text of module ``name`` with its headers in it, so that whoever caches it sees all of it."""
    folder = Path(__file__).parent
    lines = (folder / f"{name}.cu").read_text().split("\n")
    return "\n".join(
        (folder / line.split('"')[1]).read_text() if line.startswith("#include") else line for line in lines
    )


class Gpu:
    """The CUDA device of the ``local_rank``-th process on this host, which share the devices in turn.

    Everything goes to CuPy's current stream; ``wait`` and ``host`` wait for it.

    Raises ``ConfigError`` where CuPy, a device or the compiler is missing.
    """

    def __init__(self, local_rank: int = 0) -> None:
        try:
            import cupy
        except ImportError as error:
            raise ConfigError(
                f"no CuPy here ({error}); install mpicomp[cuda12] or mpicomp[cuda13], "
                "or run with device='cpu' (--device cpu)."
            ) from None
        try:
            device = cupy.cuda.Device(local_rank % cupy.cuda.runtime.getDeviceCount())
            device.use()
            attributes = device.attributes
            pinned = cupy.cuda.alloc_pinned_memory(32)  # of the host, at the same address on the device
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ConfigError(
                f"no CUDA device here ({error}); run with device='cpu' (--device cpu)."
            ) from None
        self.xp: Any = cupy
        self.multiprocessors = int(attributes["MultiProcessorCount"])
        self.notes = np.frombuffer(pinned, dtype=np.uint64, count=4)
        self.notes.fill(0)
        self.pointer = int(pinned.ptr)
        self._kernel = cache(self._compile)
        try:
            self._kernel("check", "check")
        except (RuntimeError, cupy.cuda.compiler.CompileException) as error:  # now, not in the first round
            raise ConfigError(
                f"CuPy cannot compile kernels here ({error}); install mpicomp[cuda12] or mpicomp[cuda13], "
                "which bring NVRTC, or run with device='cpu' (--device cpu)."
            ) from None
        self.dlpack = (_DLPACK_CUDA, int(device.id))

    def launch(self, module: str, kernel: str, grid: int, block: int, *args: Any) -> None:
        """Run ``kernel`` on grid x block threads.  Args: device arrays, ints (64 bits), floats (double)."""
        if grid:
            self._kernel(module, kernel)((grid,), (block,), args)

    def expit(self, x: Any) -> Any:
        """1/(1 + exp(-x)), elementwise."""
        from cupyx.scipy.special import expit

        return expit(x)

    def wait(self) -> None:
        """Until everything launched so far on the current stream is done."""
        self.xp.cuda.get_current_stream().synchronize()

    def put(self, a: Any) -> Any:
        """An array of the host's, sparse ones too, on the device; an array that lies there is returned."""
        if not scipy.sparse.issparse(a):
            return self.xp.asarray(a)
        from cupyx.scipy import sparse

        return sparse.csr_matrix(a.tocsr())  # of CSC, cuSPARSE would take the slower, transposed product

    def host(self, a: Any) -> Any:
        """A device array as one of numpy's in pinned memory, once the current stream has come that far."""
        from cupyx import empty_pinned

        return a.get(out=empty_pinned(a.shape, a.dtype)) if a.size else np.empty(a.shape, a.dtype)

    def _compile(self, module: str, kernel: str) -> Any:
        return self._module(module).get_function(kernel)

    @cache  # noqa: B019 - a Gpu lives as long as the process
    def _module(self, name: str) -> Any:
        return self.xp.RawModule(code=source(name), options=OPTIONS)
