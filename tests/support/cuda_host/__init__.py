"""A CPU that plays the device: the kernels' own sources, built by a C++ compiler over ``emulate.hpp``."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import mpicomp
from mpicomp.kernels.cuda import Cuda
from mpicomp.kernels.cuda.gpu import source
from mpicomp.kernels.cuda.launch import NULL
from tests.support.cuda_host.arrays import DeviceArray, Library, Stream, below, expit, put

COMPILER = shutil.which("g++") or shutil.which("clang++")
MODULES = sorted(p.stem for p in (Path(source.__code__.co_filename).parent).glob("*.cu"))


# What a kernel's parameters may be: numbers of 64 bits, addresses of arrays of these types, or of a struct.
NUMBERS = {"i64": int, "double": float}
ARRAYS = {
    "u8*": "u1", "u16*": "u2", "u32*": "u4", "u64*": "u8", "i64*": "i8", "float*": "f4", "double*": "f8",
}  # fmt: skip


def build(compiler: str, folder: Path) -> Path:
    """The kernels as a library of the host's, in ``folder``, and beside it their text without macros."""
    text = "\n".join(f"namespace {name} {{\n{source(name)}\n}}" for name in MODULES)
    unit, plain, library = (folder / f"kernels.{ending}" for ending in ("cpp", "ii", "so"))
    unit.write_text(f'#include "{Path(__file__).parent / "emulate.hpp"}"\n{text}\n')
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-w"]
    flags += [
        "-fsanitize=alignment",
        "-fsanitize-undefined-trap-on-error",
    ]  # a device's loads are that strict
    subprocess.run([compiler, "-E", "-P", str(unit), "-o", str(plain)], check=True)
    subprocess.run([compiler, *flags, str(plain), "-o", str(library)], check=True)
    return library


def signatures(plain: str) -> dict[str, list[str]]:
    """The types of each kernel's parameters, without const."""
    found = re.findall(r'extern "C"\s+void\s+(\w+)\s*\(([^)]*)\)', plain)
    return {
        kernel: [re.sub(r"\bconst\b|\w+$|\s", "", one.strip()) for one in parameters.split(",")]
        for kernel, parameters in found
    }


def fits(argument: Any, parameter: str) -> bool:
    """Whether CuPy would hand ``argument`` over as what the kernel takes: it looks at no signature."""
    if parameter in NUMBERS:
        return type(argument) is NUMBERS[parameter]
    if not isinstance(argument, np.ndarray):
        return argument is NULL
    return argument.flags.c_contiguous and argument.dtype == ARRAYS.get(parameter, argument.dtype)


class Host:
    """What ``Cuda`` asks of a device, by the emulation and arrays as strict as CuPy's."""

    xp = Library()
    multiprocessors = 1
    dlpack = (1, 0)  # the CPU's memory

    def __init__(self, library: Path) -> None:
        self.notes = self.pointer = np.zeros(4, np.uint64)
        self._library = ctypes.CDLL(str(library))
        self._signatures = signatures(library.with_suffix(".ii").read_text())

    def launch(self, module: str, kernel: str, grid: int, block: int, *args: Any) -> None:
        if not grid:
            return
        if any(isinstance(a, np.ndarray) and a is not self.pointer for a in args):
            raise TypeError("an array of the host among the arguments of a kernel")
        Stream.busy = True
        args = tuple(below(a) if isinstance(a, DeviceArray) else a for a in args)
        for argument, parameter in zip(args, self._signatures[kernel], strict=True):
            if not fits(argument, parameter):
                raise TypeError(f"{kernel}: {argument!r} where it takes {parameter}")
        whole = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args if not isinstance(a, float)]
        real = [a for a in args if isinstance(a, float)]
        self._library.emulate(
            self._library[kernel],
            grid,
            block,
            (ctypes.c_uint64 * 20)(*(int(a) & 0xFFFFFFFFFFFFFFFF for a in whole)),
            (ctypes.c_double * 4)(*real),
        )

    def wait(self) -> None:
        Stream.busy = False

    def put(self, a: Any) -> Any:
        return put(a)

    def expit(self, x: Any) -> Any:
        return expit(x)

    def host(self, a: Any) -> Any:
        return a.get()


def play(host: Host) -> None:
    """Let ``host`` be what runs with ``device="cuda"`` open, from now on."""
    mpicomp.run.__globals__["open_device"] = {"cpu": None, "cuda": Cuda(host)}.get
