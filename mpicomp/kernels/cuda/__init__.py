"""The kernels on a CUDA device: sources (``*.cu``), how they are launched, and CuPy, which launches them.

The numpy definitions hold byte for byte.  ``arithmetic.cuh`` has what is computed for one coordinate,
``warp.cuh`` what the threads of a warp do together; each source file is one module, compiled by NVRTC
when it is first used and kept on disk by CuPy.  ``launch.Kernels`` is the same list of functions as
the other backends have; ``gpu.Gpu`` alone imports CuPy.
"""
