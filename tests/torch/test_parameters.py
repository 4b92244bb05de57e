"""Parameters of every kind: as in torch, or refused in one line."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from mpicomp import DCGD, EFSGD, ConfigError, Identity, Layered, TopK
from mpicomp.torch import Compressed
from mpicomp.torch.parameters import named


class Own(torch.Tensor):
    """A subclass as some libraries have them, for functions of their own."""


class With(nn.Module):
    """A layer, and a parameter p that a loss is made of."""

    def __init__(self, p, trained=True, loss=lambda p: p.square().sum()):
        super().__init__()
        self.layer, self.loss = nn.Linear(3, 2), loss
        self.p = p if isinstance(p, nn.Parameter) else nn.Parameter(p, requires_grad=trained)

    def forward(self, x):
        return self.layer(x).sum() + self.loss(self.p)


def unused(p):
    return 0.0


def views():
    """Two parameters in one memory, side by side."""
    model, memory = With(torch.ones(2)), torch.arange(6.0)
    model.p, model.q = nn.Parameter(memory[::2]), nn.Parameter(memory[1::2])
    return model


def tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


def inferred():
    with torch.inference_mode():
        return torch.ones(3)


def ones():
    return torch.ones(2, 3)


AS_IN_TORCH = {
    "transposed": lambda: With(ones().t()),
    "channels last": lambda: With(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "a number": lambda: With(torch.tensor(2.0)),
    "float16": lambda: With(ones().half()),
    "bfloat16": lambda: With(ones().bfloat16()),
    "float64": lambda: With(ones().double()),
    "negative bit": lambda: With(torch.complex(ones(), ones()).conj().imag),
    "gradient with the bit": lambda: With(ones(), loss=lambda p: torch.complex(p, p).conj().imag.sum()),
    "subclass": lambda: With(ones().as_subclass(Own)),
    "no gradient": lambda: With(ones(), loss=unused),
    "views": views,
    "tied": tied,
    "weight norm": lambda: weight_norm(nn.Linear(3, 3)),
    "spectral norm": lambda: spectral_norm(nn.Linear(3, 3)),
    "frozen float8": lambda: With(ones().to(torch.float8_e5m2), False, unused),
    "frozen integers": lambda: With(ones().int(), False, unused),
    "frozen complex": lambda: With(ones().cfloat().conj(), False, unused),
    "frozen expanded": lambda: With(torch.ones(1).expand(3), False),
    "frozen sparse": lambda: With(torch.eye(3).to_sparse(), False, lambda p: p.to_dense().sum()),
    "frozen inferred": lambda: With(inferred(), False),
    "frozen quantised": lambda: With(torch.quantize_per_tensor(ones(), 0.1, 0, torch.qint8), False, unused),
}


def trained(make, compressed, fused=False):
    torch.manual_seed(0)
    model = make()
    opt = torch.optim.SGD(model.parameters(), lr=0.125, fused=fused)
    if compressed:
        opt = Compressed(opt, DCGD(Identity("f8")), module=model)
    for _ in range(2):
        opt.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        opt.step()
    dense = [p.dequantize() if p.is_quantized else p.to_dense() for p in model.parameters()]
    return [p.detach().to(torch.complex64).tolist() for p in dense]


@pytest.mark.filterwarnings("ignore:.*(beta state|deprecated)")  # torch's, of its kinds
def test_parameters_of_these_kinds_train_as_in_torch():
    """Bit for bit."""
    off = [name for name, make in AS_IN_TORCH.items() if trained(make, True) != trained(make, False)]
    assert off == []


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_a_fused_step_takes_gradients_in_the_memory_order_of_the_parameters(shape):
    """Bit for bit: it takes the entries of parameter and gradient in pairs, as they lie in memory."""
    order = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    numbers = torch.arange(float(torch.Size(shape).numel())).reshape(shape)

    def make():
        return With(numbers.to(memory_format=order))

    assert trained(make, True, fused=True) == trained(make, False)


def test_parameters_that_change_shape_or_type_later():
    """Other shapes are refused; of another type the range counts."""
    model = With(ones())
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), DCGD(Identity()), module=model, workers=2)
    model.half()
    for i, large in enumerate((6e4, -6e4)):
        model.p.grad = torch.full_like(model.p, large)
        opt.collect(i)
    assert opt.aggregate() and not model.p.grad.any()
    model.p.data = torch.ones(2, 4)
    model.p.grad = torch.ones(2, 4)
    with pytest.raises(ConfigError, match="have changed their shapes: make Compressed"):
        opt.collect(0)


REFUSED = {
    "'p' is torch.complex64": lambda: With(ones().cfloat()),
    "'p' is torch.float8_e4m3fn": lambda: With(ones().to(torch.float8_e4m3fn)),
    "entries of 'p' are the same memory": lambda: With(torch.ones(1).expand(3)),
    "entries of 'p' are the same memory, as after expand or in views; allowed": lambda: With(
        torch.arange(6.0).unfold(0, 3, 1)
    ),
    "entries of 'p' and 'layer.weight' are the same memory": lambda: overlapping(),
    "parameter 'p' of shape (0,) has no entries; allowed: one or more. requires_grad_(False)": lambda: With(
        torch.empty(0)
    ),
    "'p' is on the meta device": lambda: With(torch.empty(3, device="meta")),
    "parameter 'p' is on the meta device": lambda: With(torch.empty(3, device="meta"), False),
    "'p' has no shape yet: call the model once": lambda: With(nn.UninitializedParameter()),
    "parameter 'p' has no shape yet": lambda: With(nn.UninitializedParameter(requires_grad=False)),
    "'p' is a Parameter of layout torch.sparse_coo": lambda: With(torch.eye(3).to_sparse()),
    "'p' is a MaskedTensor of layout torch.strided": lambda: With(
        torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
    ),
}


def overlapping():
    model = With(ones())
    model.p = nn.Parameter(model.layer.weight.detach()[0])
    return model


@pytest.mark.filterwarnings("ignore:.*(beta state|prototype stage)")  # torch's, of its kinds
def test_parameters_of_these_kinds_are_refused_in_one_line():
    off = []
    for said, make in REFUSED.items():
        model = make()
        try:
            Compressed(torch.optim.SGD(model.parameters(), lr=0.1), DCGD(Identity()), module=model)
            off.append(said)
        except ConfigError as error:
            if said not in str(error) or "\n" in str(error):
                off.append(f"{said}: {error}")
    assert off == []


@pytest.mark.parametrize(
    "frozen",
    [
        nn.UninitializedParameter(requires_grad=False),
        nn.Parameter(torch.empty(3, device="meta"), requires_grad=False),
    ],
)
def test_frozen_parameters_without_values_need_none(frozen):
    """Ranks compare the others at the start."""
    p = nn.Parameter(torch.ones(3))
    opt = Compressed(torch.optim.SGD([p, frozen], lr=1.0), DCGD(Identity()))
    p.grad = torch.ones(3)
    opt.step()
    assert p.tolist() == [0, 0, 0]


def test_a_sparse_gradient_is_refused():
    model = With(ones(), loss=lambda p: nn.functional.embedding(torch.tensor([1]), p, sparse=True).sum())
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), DCGD(Identity()), module=model, workers=2)
    model(torch.ones(4, 3)).backward()
    with pytest.raises(ConfigError, match="the gradient of 'p' is sparse; allowed: dense ones"):
        opt.collect(0)


def test_names_that_the_optimiser_was_given():
    """For Layered's patterns, and in errors; group and number where a group has none or two are the same."""
    model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    first, second = ([*part.named_parameters()] for part in model)
    cases = {
        ("0.weight", "0.bias", "1.weight", "1.bias"): [{"params": [*model.named_parameters()]}],
        ("group0.0", "group0.1", "group1.0", "group1.1"): [{"params": first}, {"params": second}],
    }
    for names, groups in cases.items():
        assert tuple(named(torch.optim.SGD(groups, lr=0.1), None)) == names
    optimiser = torch.optim.SGD(model.named_parameters(), lr=0.1)
    assert [*named(optimiser, model[1])] == ["weight", "bias", "0.weight", "0.bias"]
    whole = Layered({"1.*": Identity()}, default=TopK(k=1))
    opt = Compressed(optimiser, EFSGD(whole))
    model(torch.ones(1, 3)).sum().backward()
    opt.step()
    with pytest.raises(ConfigError, match=r"Layered: '2\.\*' matches no part; the parts are .*1\.bias"):
        Compressed(optimiser, EFSGD(Layered({"2.*": Identity()}, default=TopK(k=1))))
    optimiser.param_groups[0]["params"].append(nn.Parameter(torch.ones(2)))  # without a name
    assert [*named(optimiser, None)] == [f"group0.{j}" for j in range(5)]


def test_a_name_of_the_module_that_another_parameter_would_have_is_refused():
    model = nn.Module()
    model.group0 = nn.ParameterList([torch.ones(2)])
    optimiser = torch.optim.SGD([nn.Parameter(torch.ones(2)), *model.parameters()], lr=0.1)
    with pytest.raises(ConfigError, match=r"would be named 'group0\.0', as one of the module's is"):
        Compressed(optimiser, EFSGD(TopK(k=1)), module=model)


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="needs torch 2.10")
def test_gradients_of_a_type_of_their_own():
    """The mean is not rounded to the parameter's type."""
    p = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    p.grad_dtype = torch.float32
    opt = Compressed(torch.optim.SGD([p], lr=1.0), DCGD(Identity()))
    given = torch.tensor([1.0, 1.001, 2.003, -3.0])
    p.grad = given.clone()
    opt.aggregate()
    assert p.grad.dtype == torch.float32 and torch.equal(p.grad, given)
    opt.step()
