"""A model with a buffer of every kind, which each step of a worker changes."""

from __future__ import annotations

import torch
from torch import nn

from mpicomp.torch import Compressed
from tests.torch.loops import TOPK


def _quantised(x, axis):
    if axis is None:
        return torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)
    return torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.tensor([1, 0]), 0, torch.qint8)


# From a matrix of shape (2, 3) whose entries are integers, a new tensor.
KINDS = {
    "float64": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16(),
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "uint16": lambda x: x.abs().to(torch.uint16),
    "bool": lambda x: x > 0,
    "complex": lambda x: torch.complex(x, -x),
    "conj": lambda x: torch.complex(x, -x).conj(),
    "neg": lambda x: torch.complex(x, -x).conj().imag,
    "transposed": lambda x: x.t(),
    "number": lambda x: x.sum(),
    "empty": lambda x: x[:0],
    "one_expanded": lambda x: x[0, :1].expand(5),
    "rows_expanded": lambda x: x[0].expand(4, 3),
    "windows": lambda x: x.reshape(-1).unfold(0, 3, 1),
    "coo": lambda x: x.relu().to_sparse(),
    "csr": lambda x: x.relu().to_sparse_csr(),
    "quantised": lambda x: _quantised(x, None),
    "quantised_rows": lambda x: _quantised(x, 0),
    "nested": lambda x: torch.nested.nested_tensor([x[0], x[0, :1]]),
    "jagged": lambda x: torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged),
}


class Kinds(nn.Module):
    """Buffers of all kinds: also a view of another, one that two modules share, and some that come later."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.a, self.b = nn.Module(), nn.Module()
        for name, kind in KINDS.items():
            self.register_buffer(f"as_{name}", kind(torch.zeros(2, 3)))
        self.register_buffer("whole", torch.zeros(2, 3))
        self.register_buffer("view", self.whole[1])
        self.a.register_buffer("common", torch.zeros(3))
        self.b.register_buffer("common", self.a.common)
        self.register_buffer("set_later", None)
        self.register_buffer("mask", torch.ones(1, 1).tril())
        with torch.inference_mode():
            self.register_buffer("inferred", torch.zeros(3))

    def change(self, worker, step):
        """What the step of ``worker`` makes of the buffers: of those that stand there, and of its number."""
        if step == 0:  # each worker starts from the buffers of the step's start
            assert self.set_later is None and not hasattr(self, "registered_later")
        x = torch.arange(-2.0, 4.0).reshape(2, 3) * (1 + worker + step % 2)
        for name, kind in KINDS.items():
            setattr(self, f"as_{name}", kind(x))
        self.whole += x
        self.a.common.add_(1 + worker)
        length = 2 + step + 2 * worker if worker != 2 else 1  # worker 2's mask never grows
        if length > self.mask.shape[0]:
            self.mask = torch.ones(length, length).tril()
        self.inferred = self.inferred + 1 + worker
        if self.set_later is None:
            self.set_later = x[0] + worker
        if not hasattr(self, "registered_later"):
            self.register_buffer("registered_later", x[1] + worker, persistent=False)

    def forward(self, x):
        return self.norm(self.layer(x))


def plain(tensor):
    """The entries, in a form that compares."""
    if tensor is None:
        return None
    if tensor.is_nested:
        return [one.tolist() for one in tensor.unbind()]
    scales = ()
    if tensor.is_quantized:
        per_tensor = tensor.qscheme() == torch.per_tensor_affine
        scales = (tensor.q_scale(),) if per_tensor else tuple(tensor.q_per_channel_scales().tolist())
        tensor = tensor.int_repr()
    if tensor.layout is not torch.strided:
        scales, tensor = (str(tensor.layout),), tensor.to_dense()
    entries = tensor.double() if tensor.dtype == torch.float8_e4m3fn else tensor
    return str(tensor.dtype), tuple(tensor.shape), entries.tolist(), scales


def contents(module):
    return {name: plain(tensor) for name, tensor in module.named_buffers(remove_duplicate=False)}


def of_workers(model, workers, steps=3):
    """Steps and names of the buffers that differ from those that worker 0 alone makes; and the optimiser."""
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), TOPK, module=model, workers=workers)
    alone, off = Kinds(), []
    torch.manual_seed(0)
    for k in range(steps):
        x = torch.randn(5, 6)
        for i in opt.hosted:
            opt.zero_grad()
            model(x + i).sum().backward()
            model.change(i, k)
            opt.collect(i)
        opt.step()
        alone.change(0, k)
        ours, theirs = contents(model), contents(alone)
        off += sorted(ours.keys() ^ theirs.keys())
        off += [
            (k, name)
            for name in ours.keys() & theirs
            if not name.startswith("norm.") and ours[name] != theirs[name]
        ]
    return off, opt
