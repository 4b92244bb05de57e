"""Each source of the CUDA kernels compiles for two generations of GPUs, where NVRTC or nvcc is there."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from mpicomp.kernels.cuda.gpu import OPTIONS, source
from tests.support.cuda_host import MODULES


def nvrtc() -> ctypes.CDLL | None:
    """NVRTC, from NVIDIA's wheel or the system."""
    import sysconfig

    wheels = sorted(Path(sysconfig.get_path("platlib")).glob("nvidia/*/lib/libnvrtc.so.*"))
    for name in (*map(str, wheels), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compiled(module: str, options: list[str], folder: Path) -> str:
    """The PTX of a module, by NVRTC or else by nvcc."""
    library, nvcc = nvrtc(), shutil.which("nvcc")
    if library is not None:
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        made = (ctypes.byref(program), source(module).encode(), module.encode(), 0, None, None)
        assert library.nvrtcCreateProgram(*made) == 0
        array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        failed = library.nvrtcCompileProgram(program, len(options), array)
        read = ("ProgramLog", "ProgramLogSize") if failed else ("PTX", "PTXSize")
        getattr(library, f"nvrtcGet{read[1]}")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{read[0]}")(program, text)
        library.nvrtcDestroyProgram(ctypes.byref(program))
        assert not failed, text.value.decode()
        return text.value.decode()
    if nvcc is not None:
        path = folder / f"{module}.cu"
        path.write_text(source(module))
        subprocess.run([nvcc, *options, "-ptx", str(path), "-o", str(folder / "out.ptx")], check=True)
        return (folder / "out.ptx").read_text()
    pytest.skip("neither NVRTC (pip install nvidia-cuda-nvrtc) nor nvcc")


@pytest.mark.parametrize("generation", ["80", "90"])
@pytest.mark.parametrize("module", MODULES)
def test_the_sources_compile(module, generation, tmp_path):
    """For both, with what CuPy adds of its own (-ftz=true), and so that neither option changes a bit.

    Nothing may flush subnormal float32, and a product is added to without rounding only where an
    fma is written, which is nowhere (divisions and roots are instructions of their own).
    """
    ptx = compiled(module, [*OPTIONS, "-ftz=true", f"-arch=compute_{generation}"], tmp_path)
    assert ".entry" in ptx
    assert ".ftz" not in ptx
    assert "fma." not in ptx
