"""Compressed communication in PyTorch: an optimiser that averages compressed gradients, and a DDP hook.

Needs torch: pip install 'mpicomp[torch]'.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"mpicomp.torch needs torch, and it cannot be imported ({error}): pip install 'mpicomp[torch]'."
    ) from None

from mpicomp.torch.hook import Hook, hook
from mpicomp.torch.optimiser import Compressed
from mpicomp.torch.recipe import Recipe, recipe
from mpicomp.torch.saving import load, save

__all__ = ["Compressed", "Hook", "Recipe", "hook", "load", "recipe", "save"]
