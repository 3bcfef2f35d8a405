"""Features of pictures from a frozen ResNet-18, computed once and cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from safetensors import torch as safetensors
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fairdial._validation import check_count
from fairdial.datasets.pictures import Pictures
from fairdial.errors import InvalidInputError
from fairdial.nn.data import PictureInputs, find_device
from fairdial.nn.feature_cache import Features, cached
from fairdial.nn.resnet import ResNet18
from fairdial.progress import Bar, Silent

BATCH = 256  # pictures
SEED = 0  # for random weights, and for drawing the pictures that statistics come from
MIN_STD = 1e-6  # features with a smaller one count as constant
DIGITS = 32  # of a digest in a file name
MIN_CACHED = 1000  # pictures; features of fewer aren't cached


class ResNetEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features of a pretrained ResNet-18 that isn't trained further.

    Fitting adapts its batch normalization statistics to the training pictures, without labels, and
    scales the features to mean 0 and variance 1 there. Features are cached on disk, so all methods
    on one split of the pictures compute them once.

    Parameters
    ----------
    weights : path, optional
        A local file with torchvision's weight names, ``.pth`` or ``.safetensors``. None: random
        weights, with a warning.
    stages : tuple of int
        The stages whose averages are the features; on small pictures, the last two (768 features)
        are better than the last only.
    maps : bool
        Return the feature maps of one stage instead of averages, as float16 and unscaled, for a
        trunk that continues from there: :class:`~fairdial.nn.resnet.LastStage` after
        ``stages=(3,)``.
    adapt : int
        Number of training pictures, drawn at random, that the statistics come from; 0 keeps those
        of the file.
    cache : path, False or None
        Folder for the features of a thousand pictures or more; None is the cache folder of the
        pictures; False caches nothing.
    device : str
        "auto", "cpu", "cuda", ...
    verbose : bool
        Show a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.datasets import Pictures
    >>> from fairdial.nn.features import ResNetEncoder
    >>> from fairdial.nn.resnet import ResNet18
    >>> noise = np.random.default_rng(0).integers(0, 256, (8, 3, 32, 32), dtype=np.uint8)
    >>> encoder = ResNetEncoder(ResNet18({}).state_dict(), cache=False).fit(Pictures(noise))
    >>> encoder.transform(Pictures(noise)).shape
    (8, 768)
    """

    def __init__(
        self,
        weights: Any = None,
        *,
        stages: tuple[int, ...] = (3, 4),
        maps: bool = False,
        adapt: int = 4096,
        cache: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.weights = weights
        self.stages = stages
        self.maps = maps
        self.adapt = adapt
        self.cache = cache
        self.device = device
        self.verbose = verbose

    @property
    def n_features_out_(self) -> int:
        """Number of features of a picture, or of channels of its maps."""
        check_is_fitted(self, "net_")
        return int(self.net_.n_features)

    def fit(self, X: Pictures, y: Any = None) -> Self:  # noqa: ARG002
        """Adapt the net to training pictures, without labels."""
        pictures = _checked(X)
        check_count(self.adapt, "adapt", least=0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            net = ResNet18(self.weights, self.stages)
        if self.maps and len(net.stages) > 1:
            raise InvalidInputError("stages", "be one stage with `maps`", given=repr(self.stages))
        net = self._placed(net)
        size = min(self.adapt or len(pictures), len(pictures))
        drawn = np.random.default_rng(SEED).permutation(len(pictures))[:size]
        sample = pictures[drawn]  # in random order, so that batches are alike
        settings = str(self.adapt) + ("maps" if self.maps else "")
        start = _digest(net, sample.places_key(), repr(sample.mean + sample.std), settings)

        n = net.n_features

        def adapted() -> Features:
            if self.adapt:
                adapt_statistics(net, sample)
            if self.maps:
                return np.concatenate((_statistics(net), np.zeros(n), np.ones(n)))
            features = self._features(net, sample, "features of the sample")
            spread = features.std(axis=0)
            scale = np.where(spread > MIN_STD, spread, 1.0)
            return np.concatenate((_statistics(net), features.mean(axis=0), scale))

        found = self._cached(f"adapted-{start}", (_statistics(net).size + 2 * n,), adapted)
        _put_statistics(net, found[: -2 * n])
        self.net_, self.mean_, self.std_ = net, found[-2 * n : -n].copy(), found[-n:].copy()
        self.key_ = _digest(net, self.mean_.tobytes().hex(), self.std_.tobytes().hex())
        return self

    def transform(self, X: Pictures) -> Features:
        """Return the features (n, ``n_features_out_``), or maps (n, ``n_features_out_``, h, w)."""
        check_is_fitted(self, "net_")
        pictures = _checked(X)

        def scaled() -> Features:
            features = self._features(self.net_, pictures, "features")
            if self.maps:
                return features
            return np.asarray((features - self.mean_) / self.std_, np.float32)

        if len(pictures) < MIN_CACHED:
            return scaled()
        source = repr(pictures.mean + pictures.std) + pictures.places_key()
        shape, dtype = _shape(self.net_, pictures, self.maps)
        name = hashlib.sha256((self.key_ + source).encode()).hexdigest()[:DIGITS]
        return self._cached(f"{'maps' if self.maps else 'features'}-{name}", shape, scaled, dtype)

    def to_bytes(self) -> bytes:
        """Return what was learned as safetensors, for :meth:`put_bytes`."""
        check_is_fitted(self, "net_")
        scaling = {"mean": torch.from_numpy(self.mean_), "std": torch.from_numpy(self.std_)}
        weights = {
            name: t.detach().cpu().contiguous() for name, t in self.net_.state_dict().items()
        }
        return safetensors.save(weights | {f"scaling.{k}": v for k, v in scaling.items()})

    def put_bytes(self, body: bytes) -> Self:
        """Restore what was learned from :meth:`to_bytes`, to the last bit."""
        found = dict(safetensors.load(body))
        mean, std = (found.pop(f"scaling.{name}").numpy() for name in ("mean", "std"))
        net = ResNet18({}, self.stages)
        if mean.shape != (net.n_features,) or std.shape != mean.shape or not (std > 0).all():
            raise ValueError("another scaling of the features")
        if not all(bool(tensor.isfinite().all()) for tensor in found.values()):
            raise ValueError("weights that aren't finite")
        net.load_state_dict(found)
        self.net_, self.mean_, self.std_ = self._placed(net), mean, std
        self.key_ = _digest(self.net_, mean.tobytes().hex(), std.tobytes().hex())
        return self

    def _placed(self, net: ResNet18) -> ResNet18:
        """Return the net on its device, ready to evaluate."""
        if self.maps:  # faster, with other rounding than the features of earlier versions
            net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net.to(find_device(self.device)).eval()

    def _features(self, net: ResNet18, pictures: Pictures, title: str) -> Features:
        batches = -(-len(pictures) // BATCH)
        with Bar(title, batches, ()) if self.verbose else Silent() as shown:
            return run_net(net, pictures, shown.advance, maps=self.maps)

    def _cached(
        self,
        key: str,
        shape: tuple[int, ...],
        compute: Callable[[], Features],
        dtype: type = np.float32,
    ) -> Features:
        if self.cache is False:
            return compute()
        return cached(self.cache, key, shape, compute, subfolder="resnet", dtype=dtype)


@torch.no_grad()
def run_net(
    net: ResNet18,
    pictures: Pictures,
    advance: Callable[[dict[str, Any]], None] | None = None,
    *,
    maps: bool = False,
) -> Features:
    """Return the features (n, f) of pictures in evaluation mode, independent of the batch.

    With ``maps``, the maps (n, f, h, w) of the net's only stage in float16.
    """
    rows = PictureInputs(pictures, next(net.parameters()).device)
    features: Features = np.empty(*_shape(net, pictures, maps))
    net.eval()
    for start in range(0, len(pictures), BATCH):
        places = torch.arange(start, min(start + BATCH, len(pictures)))
        both = (
            places.repeat(2) if len(places) == 1 else places
        )  # a single one is rounded differently
        found = net.maps(rows.take(both))[0] if maps else net(rows.take(both))
        features[start : start + BATCH] = found[: len(places)].cpu().numpy()
        if advance is not None:
            advance({})
    return features


@torch.no_grad()
def _shape(net: ResNet18, pictures: Pictures, maps: bool) -> tuple[tuple[int, ...], type]:
    """Return the shape and precision of pictures' features, or of the maps of the last stage."""
    if not maps:
        return (len(pictures), net.n_features), np.float32
    x = PictureInputs(pictures, next(net.parameters()).device).take(torch.tensor([0, 0]))
    return (len(pictures), *net.eval().maps(x)[-1].shape[1:]), np.float16


@torch.no_grad()
def adapt_statistics(net: nn.Module, pictures: Pictures) -> None:
    """Set batch normalization statistics from pictures in random order.

    They describe all values that reach a layer while the layers before it normalize each batch on
    its own.
    """
    rows = PictureInputs(pictures, next(net.parameters()).device)
    pools = [_Pool(m) for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    net.train()
    for start in range(0, len(pictures), BATCH):
        places = torch.arange(start, min(start + BATCH, len(pictures)))
        if len(places) > 1 or len(pictures) == 1:
            net(rows.take(places))
    net.eval()
    for pool in pools:
        pool.close()


class _Pool:
    """Mean and variance of everything that reaches a batch normalization layer."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        self.norm, self.n = norm, 0
        self.mean = torch.zeros(norm.num_features, dtype=torch.float64)
        self.squares = torch.zeros_like(self.mean)  # of deviations from the mean
        self._hook = norm.register_forward_pre_hook(self._look)

    def _look(self, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        var, mean = (m.double().cpu() for m in torch.var_mean(given[0], (0, 2, 3), correction=0))
        n = given[0].numel() // given[0].shape[1]
        total, apart = self.n + n, mean - self.mean
        self.squares += n * var + apart**2 * (self.n * n / total)
        self.mean += apart * (n / total)
        self.n = total

    def close(self) -> None:
        """Stop watching, and set the layer's statistics."""
        self._hook.remove()
        self.norm.running_mean.copy_(self.mean)  # type: ignore[union-attr]
        self.norm.running_var.copy_(self.squares / max(self.n - 1, 1))  # type: ignore[union-attr]


def _checked(X: Any) -> Pictures:
    if not isinstance(X, Pictures):
        raise InvalidInputError("X", "be Pictures", given=type(X).__name__)
    if len(X) == 0:
        raise InvalidInputError("X", "hold at least one picture", given=0)
    return X


def _norms(net: nn.Module) -> list[Tensor]:
    return [b for name, b in net.named_buffers() if name.endswith(("running_mean", "running_var"))]


def _statistics(net: nn.Module) -> Features:
    return np.concatenate([buffer.cpu().numpy() for buffer in _norms(net)])


def _put_statistics(net: nn.Module, values: Features) -> None:
    start = 0
    for buffer in _norms(net):
        part = values[start : start + len(buffer)]
        buffer.copy_(torch.from_numpy(np.array(part)))
        start += len(buffer)


def _digest(net: ResNet18, *others: str) -> str:
    """Return a digest of a net's weights and other texts."""
    digest = hashlib.sha256(repr((net.stages, others)).encode())
    for name, tensor in net.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()[:DIGITS]
