"""ResNet-18 with torchvision's weight names, without torchvision.

He et al., Deep residual learning for image recognition, 2016: a stem, four stages of two basic
blocks, and an average over the picture.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fairdial.errors import FairdialWarning, InvalidInputError, warn
from fairdial.nn.taps import TapConv

WIDTHS = (64, 128, 256, 512)  # channels of the stages
IGNORED = ("fc.",)  # the classifier of ImageNet's classes
OFFICIAL = "https://download.pytorch.org/models/resnet18-f37072fd.pth"


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, c, h, w) to (n, c', h', w')."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return functional.relu(self.bn2(self.conv2(y)).add_(shortcut), inplace=True)


class ResNet18(nn.Module):
    """ResNet-18, from pictures to features.

    Parameters
    ----------
    weights : path or dict of Tensor, optional
        A local file with torchvision's weight names: ``.pth`` or ``.safetensors``; its ``fc`` is
        ignored. None: random weights, with a warning, since they need many more pictures. An empty
        dict: random weights, to be replaced.
    stages : tuple of int
        The stages whose averages are the features: (4,) gives the 512 of the usual ResNet; (3, 4)
        adds the 256 of the third, which work better than the last on small pictures.

    Examples
    --------
    >>> import torch
    >>> from fairdial.nn.resnet import ResNet18
    >>> net = ResNet18(weights=ResNet18(weights={}).state_dict(), stages=(3, 4)).eval()
    >>> net(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 768])
    """

    def __init__(
        self,
        weights: str | os.PathLike[str] | Mapping[str, Tensor] | None = None,
        stages: tuple[int, ...] = (4,),
    ) -> None:
        super().__init__()
        self.stages = _checked_stages(stages)
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], 1)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], 2)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], 2)
        self.layer4 = _stage(WIDTHS[2], WIDTHS[3], 2)
        _start(self)
        if weights is None:
            warn(
                "ResNet-18 starts with random weights; set `weights` to a local file of pretrained "
                f"weights, such as {OFFICIAL}",
                FairdialWarning,
            )
        elif not isinstance(weights, Mapping) or weights:
            load_weights(self, weights)

    def spec(self) -> dict[str, Any]:
        """Return the arguments of :meth:`bare` that make such a net."""
        return {"stages": self.stages}

    @classmethod
    def bare(cls, stages: tuple[int, ...]) -> ResNet18:
        """Return a net whose weights are loaded later."""
        return cls({}, stages)

    @property
    def n_features(self) -> int:
        """Number of features of a picture."""
        return sum(WIDTHS[stage - 1] for stage in self.stages)

    def forward(self, x: Tensor) -> Tensor:
        """Map normalized pictures (n, 3, h, w) to features (n, n_features)."""
        found = [m.mean(dim=(2, 3)) for m in self.maps(x)]
        return torch.cat(found, dim=1) if len(found) > 1 else found[0]

    def maps(self, x: Tensor) -> list[Tensor]:
        """Map normalized pictures (n, 3, h, w) to the feature maps (n, c, h', w') of the stages."""
        x = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        x = functional.max_pool2d(x, 3, 2, 1)
        found = []
        for stage in range(1, max(self.stages) + 1):
            x = getattr(self, f"layer{stage}")(x)
            if stage in self.stages:
                found.append(x)
        return found


class LastStage(nn.Module):
    """ResNet-18's last stage, from the feature maps of the third to 512 features.

    The trunk of a network whose encoder computes those maps once, with the layers before it frozen:
    ``ResNetEncoder(weights, stages=(3,), maps=True)``.

    Parameters
    ----------
    weights : path or dict of Tensor, optional
        As for :class:`ResNet18`, of the whole ResNet.

    Examples
    --------
    >>> import torch
    >>> from fairdial.nn.resnet import LastStage, ResNet18
    >>> weights = ResNet18({}).state_dict()
    >>> LastStage(weights)(torch.zeros(2, 256, 4, 4)).shape
    torch.Size([2, 512])
    """

    def __init__(
        self, weights: str | os.PathLike[str] | Mapping[str, Tensor] | None = None
    ) -> None:
        super().__init__()
        blocks = ResNet18(weights).layer4
        self.layer4 = nn.Sequential(*(_TapBlock(b) for b in blocks if isinstance(b, BasicBlock)))

    def spec(self) -> dict[str, Any]:
        """Return the arguments of :meth:`bare` that make such a net."""
        return {}

    @classmethod
    def bare(cls) -> LastStage:
        """Return a net whose weights are loaded later."""
        return cls({})

    def forward(self, x: Tensor) -> Tensor:
        """Map feature maps (n, 256, h, w) to features (n, 512)."""
        return self.layer4(x.permute(2, 3, 0, 1)).mean(dim=(0, 1))  # type: ignore[no-any-return]


class _TapBlock(nn.Module):
    """A basic block on position-major maps (h, w, n, c)."""

    def __init__(self, like: BasicBlock) -> None:
        super().__init__()
        self.conv1, self.bn1 = TapConv(like.conv1), like.bn1
        self.conv2, self.bn2 = TapConv(like.conv2), like.bn2
        self.downsample: nn.ModuleList | None = None
        if isinstance(like.downsample, nn.Sequential):
            conv, norm = like.downsample
            assert isinstance(conv, nn.Conv2d)
            self.downsample = nn.ModuleList((TapConv(conv), norm))

    def forward(self, x: Tensor) -> Tensor:
        """Map (h, w, n, c) to (h', w', n, c')."""
        shortcut = x
        if self.downsample is not None:
            conv, norm = self.downsample
            shortcut = _normalize(norm, conv(x))
        y = functional.relu(_normalize(self.bn1, self.conv1(x)), inplace=True)
        return functional.relu(_normalize(self.bn2, self.conv2(y)).add_(shortcut), inplace=True)


def _normalize(norm: nn.Module, x: Tensor) -> Tensor:
    """Apply batch normalization to position-major maps (h, w, n, c)."""
    rows = x.flatten(0, 2)[:, :, None, None]  # (hwn, c, 1, 1)
    return norm(rows).view(x.shape)  # type: ignore[no-any-return]


def _checked_stages(stages: Any) -> tuple[int, ...]:
    chosen = tuple(stages) if isinstance(stages, (tuple, list)) else ()
    if not chosen or sorted(set(chosen)) != list(chosen) or not set(chosen) <= {1, 2, 3, 4}:
        raise InvalidInputError(
            "stages", "be some of (1, 2, 3, 4) in rising order", given=repr(stages)
        )
    return chosen


def _stage(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(n_in, n_out, stride), BasicBlock(n_out, n_out, 1))


def _start(net: nn.Module) -> None:
    """Draw weights of convolutions for rectified units (He et al., 2015)."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def load_weights(net: ResNet18, source: str | os.PathLike[str] | Mapping[str, Tensor]) -> None:
    """Load pretrained weights into a net.

    Raises
    ------
    InvalidInputError
        The file is missing, can't be read, or doesn't hold exactly the weights of this net.
    """
    if not isinstance(source, str | os.PathLike | Mapping):
        raise InvalidInputError("weights", "be the path of a local file", given=repr(source))
    origin = "the given weights" if isinstance(source, Mapping) else Path(source).name
    found = source if isinstance(source, Mapping) else _read_weights(Path(source))
    given = {name: t for name, t in found.items() if not name.startswith(IGNORED)}
    own = net.state_dict()
    eligible = {name for name in own if not name.endswith("num_batches_tracked")}
    missing, unknown = sorted(eligible - set(given)), sorted(set(given) - set(own))
    wrong = [name for name in eligible & set(given) if given[name].shape != own[name].shape]
    if missing or unknown or wrong:
        what = missing or unknown or sorted(wrong)
        problem = "lacks" if missing else "also holds" if unknown else "has other shapes of"
        raise InvalidInputError(
            "weights",
            "hold ResNet-18's weights by torchvision's names",
            hint=f"{origin} {problem} {', '.join(what[:3])}{' ...' if len(what) > 3 else ''}.",
        )
    broken = sorted(name for name in eligible if not bool(given[name].isfinite().all()))
    if broken:
        raise InvalidInputError(
            "weights", "be finite", given=f"NaN or infinity in {broken[0]} of {origin}"
        )
    net.load_state_dict(given, strict=False)


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise InvalidInputError("weights", "be a local file", given=f"{path}, which doesn't exist")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever the readers raise for a file that isn't theirs
        raise InvalidInputError(
            "weights",
            "be a file of weights, .pth or .safetensors",
            given=f"{path.name}, which can't be read ({type(error).__name__})",
        ) from error
    if not isinstance(found, Mapping) or not all(isinstance(t, Tensor) for t in found.values()):
        raise InvalidInputError("weights", "hold tensors by name", given=f"others in {path.name}")
    return dict(found)
