"""ResNet-18: torchvision's names and arithmetic, weights from local files only."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from torch.nn import functional  # noqa: E402

from fairdial.errors import FairdialWarning, InvalidInputError  # noqa: E402
from fairdial.nn.resnet import ResNet18  # noqa: E402

NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


@pytest.fixture(scope="module")
def net() -> ResNet18:
    torch.manual_seed(0)
    found = ResNet18({}, stages=(3, 4))
    found.train()
    with torch.no_grad():  # statistics that aren't 0 and 1
        found(torch.randn(8, 3, 32, 32))
    return found.eval()


@pytest.fixture(scope="module")
def weights(net: ResNet18) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def torchvision_names() -> set[str]:
    names = {"conv1.weight"} | {f"bn1.{part}" for part in NORM}
    for stage in range(1, 5):
        for block in range(2):
            place = f"layer{stage}.{block}"
            for i in (1, 2):
                names |= {f"{place}.conv{i}.weight"} | {f"{place}.bn{i}.{part}" for part in NORM}
            if stage > 1 and block == 0:
                names |= {f"{place}.downsample.0.weight"}
                names |= {f"{place}.downsample.1.{part}" for part in NORM}
    return names


def test_weights_have_torchvisions_names_and_number(net):
    assert set(net.state_dict()) == torchvision_names()
    assert sum(p.numel() for p in net.parameters()) == 11_689_512 - 513_000  # without the fc


def by_hand(w: dict[str, torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    """The four stages' outputs, written out from the paper of 2016."""

    def norm(x: torch.Tensor, place: str) -> torch.Tensor:
        parts = (w[f"{place}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        mean, var, weight, bias = (p[:, None, None] for p in parts)
        return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias

    x = norm(functional.conv2d(x, w["conv1.weight"], stride=2, padding=3), "bn1").relu()
    x = functional.max_pool2d(functional.pad(x, (1, 1, 1, 1), value=-torch.inf), 3, 2)
    found = []
    for stage in range(1, 5):
        for block in range(2):
            place, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = functional.conv2d(x, w[f"{place}.conv1.weight"], stride=stride, padding=1)
            y = functional.conv2d(
                norm(y, f"{place}.bn1").relu(), w[f"{place}.conv2.weight"], padding=1
            )
            y = norm(y, f"{place}.bn2")
            if stride == 2:
                shortcut = functional.conv2d(x, w[f"{place}.downsample.0.weight"], stride=2)
                x = norm(shortcut, f"{place}.downsample.1")
            x = (x + y).relu()
        found.append(x)
    return found


@pytest.mark.parametrize("side", [32, 45])
def test_the_net_is_the_one_of_the_paper(net, weights, side):
    x = torch.randn(3, 3, side, side)
    stages = by_hand(weights, x)
    expected = torch.cat([stage.mean(dim=(2, 3)) for stage in stages[2:]], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(net(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("stages", "width"), [((4,), 512), ((3, 4), 768), ((1, 2, 3, 4), 960)])
def test_features_are_the_averages_of_the_chosen_stages(weights, stages, width):
    net = ResNet18(weights, stages=stages).eval()
    x = torch.randn(2, 3, 32, 32)
    expected = [by_hand(weights, x)[stage - 1].mean(dim=(2, 3)) for stage in stages]
    with torch.no_grad():
        found = net(x)
    assert found.shape == (2, width) == (2, net.n_features)
    torch.testing.assert_close(found, torch.cat(expected, dim=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stages", [(), (4, 3), (3, 3), (0,), (5,), 4, "34"])
def test_invalid_stages_are_refused(stages):
    with pytest.raises(InvalidInputError, match="`stages`"):
        ResNet18({}, stages=stages)


@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_weights_come_from_a_local_file_without_its_classifier(tmp_path, net, weights, ending):
    file = tmp_path / f"resnet18{ending}"
    given = weights | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    if ending == ".pth":
        torch.save(given, file)
    else:
        save_file(given, file)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(ResNet18(file, stages=(3, 4)).eval()(x), net(x))


def test_old_files_without_counts_of_batches_are_read(weights):
    given = {k: v for k, v in weights.items() if not k.endswith("num_batches_tracked")}
    found = ResNet18(given).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in given.items())


def test_without_weights_there_is_a_warning():
    with pytest.warns(FairdialWarning, match="random weights"):
        ResNet18()


def broken(weights: dict[str, torch.Tensor], how: str) -> dict[str, torch.Tensor]:
    changed = dict(weights)
    if how == "lacks":
        del changed["layer3.0.bn1.weight"]
    elif how == "also holds":
        changed["layer5.0.conv1.weight"] = torch.zeros(1)
    else:
        changed["conv1.weight"] = torch.zeros(64, 1, 7, 7)
    return changed


@pytest.mark.parametrize("how", ["lacks", "also holds", "has other shapes of"])
def test_the_weights_of_another_net_are_refused(weights, how):
    with pytest.raises(InvalidInputError, match=how):
        ResNet18(broken(weights, how))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(weights, bad):
    corrupt = weights["layer2.0.bn1.running_var"].clone()
    corrupt[3] = bad
    with pytest.raises(InvalidInputError, match=r"finite.*layer2.0.bn1.running_var"):
        ResNet18(weights | {"layer2.0.bn1.running_var": corrupt})


def test_a_missing_or_unreadable_file_is_refused(tmp_path):
    for nothing in ("", 3, False):
        with pytest.raises(InvalidInputError, match=r"`weights`"):
            ResNet18(nothing)
    with pytest.raises(InvalidInputError, match="`weights`"):
        ResNet18(tmp_path / "none.pth")
    for name in ("bad.pth", "bad.safetensors"):
        (tmp_path / name).write_bytes(b"no weights at all")
        with pytest.raises(InvalidInputError, match=f"`weights`.*{name}"):
            ResNet18(tmp_path / name)
    torch.save({"conv1.weight": "text"}, tmp_path / "text.pth")
    with pytest.raises(InvalidInputError, match="`weights`"):
        ResNet18(tmp_path / "text.pth")


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("ran"),)  # type: ignore[return-value]


def test_code_in_a_file_of_weights_is_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Malicious()))
    torch.save({"conv1.weight": Malicious()}, tmp_path / "evil2.pth")
    for name in ("evil.pth", "evil2.pth"):
        with pytest.raises(InvalidInputError, match="`weights`"):
            ResNet18(tmp_path / name)
    assert not (tmp_path / "ran").exists()
