"""All compiled kernels: what ``definition`` has, each from the module of the same name here."""

import importlib
import inspect

from mpicomp.kernels import definition

globals().update(
    {
        name: getattr(importlib.import_module(f"{__package__}.{f.__module__.rpartition('.')[2]}"), name)
        for name, f in inspect.getmembers(definition, inspect.isfunction)
    }
)
