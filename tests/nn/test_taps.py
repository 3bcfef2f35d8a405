"""Convolutions by taps are convolutions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fairdial.nn.resnet import LastStage, ResNet18  # noqa: E402
from fairdial.nn.taps import TapConv  # noqa: E402


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (4, 4), (5, 3)])
@pytest.mark.parametrize(("side", "stride"), [(3, 1), (3, 2), (1, 2)])
def test_values_and_gradients_are_those_of_torch(size, side, stride):
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, side, stride, side // 2, bias=False).double()
    taps = TapConv(conv)
    x = torch.randn(3, 4, *size, dtype=torch.float64, requires_grad=True)
    z = x.detach().permute(2, 3, 0, 1).requires_grad_()
    y, found = conv(x), taps(z)
    torch.testing.assert_close(found.permute(2, 3, 0, 1), y)
    cotangent = torch.randn_like(y)
    y.backward(cotangent)
    found.backward(cotangent.permute(2, 3, 0, 1))
    torch.testing.assert_close(z.grad.permute(2, 3, 0, 1), x.grad)
    by_tap = taps.weight.grad.permute(1, 2, 0).reshape(conv.weight.shape)
    torch.testing.assert_close(by_tap, conv.weight.grad)


def test_autocast_computes_in_bfloat16_and_returns_float32():
    torch.manual_seed(0)
    conv = nn.Conv2d(16, 16, 3, padding=1, bias=False)
    x = torch.randn(4, 16, 2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        y = TapConv(conv)(x.permute(2, 3, 0, 1)).permute(2, 3, 0, 1)
    assert y.dtype == torch.float32
    assert not torch.equal(y, conv(x))
    torch.testing.assert_close(y, conv(x), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("training", [True, False])
def test_the_last_stage_continues_from_the_third(training):
    torch.manual_seed(0)
    whole = ResNet18({}, stages=(3, 4))
    x = torch.randn(6, 3, 40, 40)
    whole(x)  # statistics other than those at the start
    last = LastStage(whole.state_dict())
    third, fourth = whole.train(training).maps(x)
    for name, buffer in last.layer4.named_buffers():
        if name.endswith("running_mean") and not training:
            assert torch.equal(buffer, whole.layer4.state_dict()[name])
    features = last.train(training)(third)
    torch.testing.assert_close(features, fourth.mean(dim=(2, 3)), rtol=1e-3, atol=1e-4)
