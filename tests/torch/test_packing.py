"""Arrays of a user's loop as one vector: signs that torch has yet to carry out, and masks."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch
from torch.masked import masked_tensor

import mpicomp
from mpicomp.base.errors import ConfigError, DivergedError
from mpicomp.loops.packing import Packing

G = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], dtype=torch.float64)
FLAT = G.numpy().ravel()


def test_pending_signs_are_carried_out():
    pending = {
        "neg": torch._neg_view(-G),
        "of a conjugate": torch.complex(G, -G).conj().imag,
        "transposed": torch._neg_view(-G.T.contiguous()).T,
        "with a gradient": torch._neg_view(-G).clone().requires_grad_(),
    }
    assert all(name == "with a gradient" or tensor.is_neg() for name, tensor in pending.items())
    packing = Packing(G)
    for name, tensor in pending.items():
        assert packing.pack(tensor).tolist() == FLAT.tolist(), name
    with pytest.raises(ConfigError, match=r"type complex128 in part 'x'; allowed: floats"):
        packing.pack(torch.complex(G, G).conj())


def test_a_tensor_that_cannot_be_read_is_refused_in_one_line():
    for tensor, why in (
        (G.to_sparse(), "layout other than torch.strided"),
        (G.to("meta"), "on meta"),
        (G.to(torch.float8_e4m3fn), "Unsupported dtype"),
    ):
        with pytest.raises(
            ConfigError, match=rf"cannot be read: .*{why}.* dense floats in the host's"
        ) as error:
            Packing(tensor)
        assert "\n" not in str(error.value) and ".." not in str(error.value)


def test_a_result_beyond_the_tensors_type_is_refused():
    packing = Packing({"a": torch.zeros(2, dtype=torch.float16), "b": torch.zeros(2, dtype=torch.bfloat16)})
    assert packing.unpack(np.float32([65504, 1, 1, 1]))["a"].tolist() == [65504, 1]
    with pytest.raises(DivergedError, match=r"in part 'a' has a magnitude of 7e\+04, which torch.float16"):
        packing.unpack(np.float32([7e4, 1, 1, 1]))
    with pytest.raises(DivergedError, match=r"magnitude of 3.4e\+38, which torch.bfloat16"):
        packing.unpack(np.float32([1, 1, 3.4e38, 1]))


def test_an_aggregator_averages_a_tensor_with_the_neg_bit():
    """Exact: one worker, nothing compressed."""
    agg = mpicomp.Aggregator(mpicomp.GD(values="f8"), like=G)
    assert torch.equal(agg(torch._neg_view(-G)), G)
    agg.close()


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_masks_are_refused_in_each_part():
    packing = Packing({"a": G, "b": np.zeros(3)})
    for part, array in {"a": masked_tensor(G, G > 0), "b": np.ma.array(np.ones(3), mask=[0, 0, 1])}.items():
        with pytest.raises(
            ConfigError, match=f"the gradient in part '{part}' has a mask, which would be ignored"
        ):
            packing.pack({"a": G, "b": np.zeros(3)} | {part: array})
        with pytest.raises(ConfigError, match=f"like in part '{part}' has a mask"):
            Packing({"a": G, "b": np.zeros(3)} | {part: array})
