"""Tensors as data, starts and values: exact values, or one clear line; signs that torch still owes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch
from torch.masked import masked_tensor

from mpicomp.base.errors import ConfigError
from mpicomp.data import ClassRows
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from tests.data.test_array_layouts import MASK, A, Y, dense, misread, misrefused, sparse
from tests.problems.test_own_objectives import METHODS, Bowl, D, run

T = torch.tensor(A)

READ = {
    "a list of tensors": list(T),
    "tensor": T,
    "tensor, transposed": T.T.contiguous().T,
    "tensor with a gradient": torch.nn.Parameter(T),
    "bfloat16": T.bfloat16(),
    "half": T.half().requires_grad_(),
    "bool tensor": (T > 0, A > 0),
    "the neg bit": (torch._neg_view(T), -A),
    "the neg bit of a conjugate": (torch.complex(T, T).conj().imag, -A),
    "expanded": (T[:1].expand(4, 3), A[[0, 0, 0, 0]]),
}

REFUSED = {
    "the conj bit": (torch.complex(T, T).conj(), "X is of type complex128"),
    "float8": (T.to(torch.float8_e4m3fn), "X, a Tensor, cannot be read as an array: "),
    "sparse tensor": (T.to_sparse(), "Use Tensor.to_dense() first."),
    "meta tensor": (T.to("meta"), "X, a Tensor, cannot be read as an array: "),
    "tensor of complex": (torch.complex(T, T), "X is of type complex128"),
}


@pytest.mark.parametrize("kind", [dense, sparse])
@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_tensors_are_read_exactly_or_refused_in_one_line(kind):
    assert not misread(kind, READ)
    assert not misrefused(kind, REFUSED | {"a masked tensor": (masked_tensor(T, T != 0.5), MASK)})


def test_labels_in_tensors_are_classes():
    for y, classes in (
        (torch.tensor([7, -1, 7, 7]).bfloat16(), [1, 0, 1, 1]),
        (torch._neg_view(torch.tensor([7.0, -1, 7, 7])), [0, 1, 0, 0]),
        (torch.tensor(Y), Y.tolist()),
    ):
        assert ClassRows.of((A, y)).labels.tolist() == classes


@pytest.mark.parametrize("problem", [LocalImages, FullImages])
def test_images_in_a_tensor_are_those_of_the_array(problem):
    images = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    assert problem(torch.tensor(images)) == problem(images)


def test_a_start_in_a_tensor_is_that_of_the_array():
    start = np.linspace(1, 2, D)
    plain = run(Bowl, METHODS[0], x0=start).iterates_sha256
    for given in (torch.tensor(start), torch._neg_view(torch.tensor(-start))):
        assert run(Bowl, METHODS[0], x0=given).iterates_sha256 == plain


def test_a_value_is_a_tensor_without_axes():
    class Made(Bowl):
        def value(self, x):
            return torch.tensor(0.25)

    class Gives(Bowl):
        def value(self, x):
            return torch.tensor([0.25])

    assert run(Made, METHODS[0]).rows[-1].f == 0.25
    said = r"value returned a Tensor of shape torch.Size\(\[1\]\); expected one real number"
    with pytest.raises(ConfigError, match=said):
        run(Gives, METHODS[0])
