"""Models whose parameters are on a device: a GPU, or a CPU that plays one and has torch's tensors.

On the latter the arithmetic is numpy's and torch's own, so a training there is the training on the host.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch: pip install -e '.[torch]'")

import torch

from mpicomp import EF21SGDM, MARINA, ConfigError, RandK, TopK
from mpicomp.loops import stepping
from mpicomp.torch import Compressed, load, save
from mpicomp.torch.optimiser import Tensors
from tests.support.cuda_host import Host
from tests.support.cuda_host.arrays import DeviceArray
from tests.torch.models import batch, network

TOPK = EF21SGDM(TopK(k=0.2), eta=0.3)


@pytest.fixture
def device(cuda, monkeypatch):
    """``cuda``, as what ``device="cuda"`` opens; torch finds the memory of the CPU that plays it."""
    monkeypatch.setattr(stepping, "open_device", {"cpu": None, "cuda": cuda}.get)
    if isinstance(cuda.device, Host):
        monkeypatch.setattr(DeviceArray, "__dlpack_device__", lambda self: (1, 0))
        monkeypatch.setattr(DeviceArray, "__dlpack__", lambda self, **asked: self.memory.__dlpack__(**asked))
    elif not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    return cuda


def place(device):
    """Where torch has the device's memory."""
    return "cpu" if isinstance(device.device, Host) else f"cuda:{device.dlpack[1]}"


def loss(model, k):
    X, labels = (t.to(next(model.parameters()).device) for t in batch(0, k))
    return torch.nn.functional.cross_entropy(model(X), labels)


def values(model):
    return torch.cat([p.detach().reshape(-1).cpu().double() for p in model.parameters()]).numpy()


def assert_same(device, there, here):
    if isinstance(device.device, Host):
        assert there.tobytes() == here.tobytes()
    else:
        np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-5)


def trained(model, steps, method=TOPK, **options):
    opt = Compressed(torch.optim.SGD(model.parameters(), lr=0.1), method, module=model, **options)
    for k in range(steps):

        def closure(k=k):
            opt.zero_grad()
            found = loss(model, k)
            found.backward()
            return found

        opt.step(closure)
    return opt


OPTIONS = [
    {},
    {"sync_every": 3},
    {"server": "sharded", "blocks": 3, "overlap": True},
    {"method": MARINA(RandK(k=5), p=0.3)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_training_on_the_device_is_that_of_the_host(device, options, monkeypatch):
    """And no vector of gradients or parameters becomes one of the host's."""
    here, there = network(normed=True), network(normed=True).to(place(device))
    one = trained(here, 7, **options)
    vectors, vector = [], Tensors.vector
    monkeypatch.setattr(Tensors, "vector", lambda *args: vectors.append(vector(*args)) or vectors[-1])
    two = trained(there, 7, device="cuda", **options)
    assert_same(device, values(there), values(here))
    assert vectors
    assert all(isinstance(v, device.xp.ndarray) for v in vectors)
    if isinstance(device.device, Host):
        assert two.ledger.up_bytes == one.ledger.up_bytes


@pytest.mark.parametrize("every", [1, 3])
def test_saved_and_restored_is_uninterrupted(device, every, tmp_path):
    """By all ranks in a folder, and rank by rank in state_dict; between two exchanges of local steps too."""
    models = [network().to(place(device)) for _ in range(3)]
    one, two, three = (
        trained(m, steps, sync_every=every, device="cuda") for m, steps in zip(models, (4, 0, 0), strict=True)
    )
    save(tmp_path / "training", one, models[0])
    load(tmp_path / "training", two, models[1])
    models[2].load_state_dict(models[0].state_dict())
    three.load_state_dict(one.state_dict())
    for k in range(4, 9):
        for opt, model in zip((one, two, three), models, strict=True):
            opt.zero_grad()
            loss(model, k).backward()
            opt.step()
    assert values(models[1]).tobytes() == values(models[0]).tobytes()
    assert values(models[2]).tobytes() == values(models[0]).tobytes()


def test_parameters_elsewhere_are_refused(device, monkeypatch):
    monkeypatch.setattr(device, "dlpack", (2, 7))
    with pytest.raises(ConfigError, match=r"parameters are on .*; allowed: cuda:7, the GPU of this rank"):
        trained(network(), 0, device="cuda")
