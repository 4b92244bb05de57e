"""The device as CuPy reaches it; nothing else in the package imports CuPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from mpicomp.errors import ConfigError

OPTIONS = ("-std=c++17", "-fmad=false")  # no contraction: one IEEE operation at a time, as on every backend


def source(name: str) -> str:
    """The text of module ``name`` with its headers in it, so that whoever caches it sees all of it."""
    folder = Path(__file__).parent
    lines = (folder / f"{name}.cu").read_text().split("\n")
    return "\n".join(
        (folder / line.split('"')[1]).read_text() if line.startswith("#include") else line for line in lines
    )


class Gpu:
    """The current CUDA device.  Everything goes to CuPy's current stream; only ``number`` waits for it.

    Raises ``ConfigError`` where CuPy or a device is missing.
    """

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise ConfigError(
                f"no CuPy here ({error}); install mpicomp[cuda12] or mpicomp[cuda13], "
                "or run with --device cpu."
            ) from None
        try:
            attributes = cupy.cuda.Device().attributes
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ConfigError(f"no CUDA device here ({error}); run with --device cpu.") from None
        self.xp: Any = cupy
        self.multiprocessors = int(attributes["MultiProcessorCount"])
        self._kernel = cache(self._compile)

    def launch(self, module: str, kernel: str, grid: int, block: int, *args: Any) -> None:
        """Run ``kernel`` on grid x block threads.  Args: device arrays, ints (64 bits), floats (double)."""
        if grid:
            self._kernel(module, kernel)((grid,), (block,), args)

    def number(self, a: Any, i: int) -> float:
        """Element i of a device array, on the host, once the stream has come that far."""
        return a[i].get().item()

    def _compile(self, module: str, kernel: str) -> Any:
        return self._module(module).get_function(kernel)

    @cache  # noqa: B019 - a Gpu lives as long as the process
    def _module(self, name: str) -> Any:
        return self.xp.RawModule(code=source(name), options=OPTIONS)
