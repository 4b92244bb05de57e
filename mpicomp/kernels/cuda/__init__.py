"""The kernels on a CUDA device: sources (``*.cu``), how they are launched, and CuPy, which launches them.

The numpy definitions hold byte for byte.  ``arithmetic.cuh`` has what is computed for one coordinate,
``warp.cuh`` what the threads of a warp do together; each source file is one module, compiled by NVRTC
when it is first used and kept on disk by CuPy.  ``gpu.Gpu`` alone imports CuPy.
"""

from __future__ import annotations

from mpicomp.kernels.cuda.draws import Draws
from mpicomp.kernels.cuda.launch import Device
from mpicomp.kernels.cuda.levels import Levels
from mpicomp.kernels.cuda.natural import Natural
from mpicomp.kernels.cuda.positions import Positions
from mpicomp.kernels.cuda.sign import Signs
from mpicomp.kernels.cuda.steps import Steps
from mpicomp.kernels.cuda.values import Values
from mpicomp.kernels.cuda.widths import Widths


class Kernels(Draws, Positions, Values, Signs, Natural, Levels, Steps, Widths):
    """The kernels on one device.

    Under the names that ``definition`` has, and in two ways more: index sets and values are coded whole,
    and so are messages with one norm at their head, for which the host waits once, at the end.
    """


__all__ = ["Device", "Kernels"]
