"""The kernels compiled by numba.  To import a module here compiles its kernels: only ``loading`` does so.

``PARTS`` are modules that two processes may compile at the same time: no module of either part imports one of
the other.  Both take about equally long.  Modules in neither part may import from both.
"""

PARTS = (
    (
        "vectors",
        "selection",
        "tiles",
        "reductions",
        "shortfloats",
        "values",
        "positions",
        "ans",
        "lowrank",
        "mixtures",
    ),
    (
        "packing",
        "philox",
        "powers",
        "permutation",
        "natural",
        "dithering",
        "steps",
        "widths",
        "block_floats",
        "hadamard",
        "rotated",
    ),
)
