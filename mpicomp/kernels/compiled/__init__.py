"""The kernels compiled by numba: what ``definition`` has, each from the module of the same name here.

Import by ``loading`` alone.
"""

import importlib
import inspect

from mpicomp.kernels import definition

globals().update(
    {
        name: getattr(importlib.import_module(f"{__name__}.{f.__module__.rpartition('.')[2]}"), name)
        for name, f in inspect.getmembers(definition, inspect.isfunction)
    }
)
