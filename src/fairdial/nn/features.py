"""Pictures to features by a frozen ResNet-18, computed once and kept."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import torch as safetensors
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fairdial._validation import check_count
from fairdial.datasets.picture_cache import cache_folder, open_folder, write_whole
from fairdial.datasets.pictures import Pictures
from fairdial.errors import FairdialWarning, InvalidInputError, warn
from fairdial.nn.fitting import find_device
from fairdial.nn.resnet import ResNet18
from fairdial.nn.rows import PictureRows
from fairdial.progress import Bar, Silent

Features = NDArray[np.float32]

AT_ONCE = 256  # pictures
DRAWN_BY = 0  # seed of the training pictures that are looked at
LEAST_SPREAD = 1e-6  # a feature that varies less is constant
DIGITS = 32  # of a digest in a file's name
LEAST_KEPT = 1000  # pictures: features of fewer are computed anew


class ResNetEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features of a pretrained ResNet-18 that isn't trained further.

    Fitting adapts the statistics of its batch normalisation to the training pictures, without
    looking at labels, and scales the features to mean 0 and variance 1 there. Features are kept in
    the cache folder: all methods on one split of the pictures compute them once.

    Parameters
    ----------
    weights : path, optional
        A local file with torchvision's names of weights, ``.pth`` or ``.safetensors``. None: random
        weights, with a warning.
    stages : tuple of int
        Which stages' averages make the features; both of the last two (768 features) are worth
        more than the last alone on small pictures.
    adapt : int
        How many training pictures, drawn at random, the statistics come from; 0 keeps those of
        the weights' file.
    cache : path, False or None
        Folder in which features are kept, those of a thousand pictures or more; None is the cache
        folder of the pictures; False keeps nothing.
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
        adapt: int = 4096,
        cache: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.weights = weights
        self.stages = stages
        self.adapt = adapt
        self.cache = cache
        self.device = device
        self.verbose = verbose

    @property
    def n_features_out_(self) -> int:
        """How many features a picture has."""
        check_is_fitted(self, "net_")
        return int(self.net_.n_features)

    def fit(self, X: Pictures, y: Any = None) -> Self:  # noqa: ARG002
        """Adapt the net to training pictures, without labels."""
        pictures = _checked(X)
        check_count(self.adapt, "adapt", least=0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(DRAWN_BY)  # of random weights
            net = ResNet18(self.weights, self.stages)
        net = net.to(find_device(self.device)).eval()
        size = min(self.adapt or len(pictures), len(pictures))
        drawn = np.random.default_rng(DRAWN_BY).permutation(len(pictures))[:size]
        sample = pictures[drawn]  # in that order: a batch must be like the rest
        start = _digest(net, sample.places_key(), repr(sample.mean + sample.std), str(self.adapt))

        def adapted() -> Features:
            if self.adapt:
                adapt_statistics(net, sample)
            features = self._features(net, sample, "features of the sample")
            spread = features.std(axis=0)
            scale = np.where(spread > LEAST_SPREAD, spread, 1.0)
            return np.concatenate((_statistics(net), features.mean(axis=0), scale))

        n = net.n_features
        found = self._kept(f"adapted-{start}", (_statistics(net).size + 2 * n,), adapted)
        _put_statistics(net, found[: -2 * n])
        self.net_, self.mean_, self.std_ = net, found[-2 * n : -n].copy(), found[-n:].copy()
        self.key_ = _digest(net, self.mean_.tobytes().hex(), self.std_.tobytes().hex())
        return self

    def transform(self, X: Pictures) -> Features:
        """(n, ``n_features_out_``) features."""
        check_is_fitted(self, "net_")
        pictures = _checked(X)

        def scaled() -> Features:
            features = self._features(self.net_, pictures, "features")
            return np.asarray((features - self.mean_) / self.std_, np.float32)

        if len(pictures) < LEAST_KEPT:
            return scaled()
        told = repr(pictures.mean + pictures.std) + pictures.places_key()
        name = hashlib.sha256((self.key_ + told).encode()).hexdigest()[:DIGITS]
        return self._kept(f"features-{name}", (len(pictures), self.n_features_out_), scaled)

    def to_bytes(self) -> bytes:
        """What was learned, as safetensors; :meth:`put_bytes` gives it back to the last bit."""
        check_is_fitted(self, "net_")
        scaling = {"mean": torch.from_numpy(self.mean_), "std": torch.from_numpy(self.std_)}
        weights = {
            name: t.detach().cpu().contiguous() for name, t in self.net_.state_dict().items()
        }
        return safetensors.save(weights | {f"scaling.{k}": v for k, v in scaling.items()})

    def put_bytes(self, body: bytes) -> Self:
        """Be as fitted as the encoder that :meth:`to_bytes` was called on."""
        found = dict(safetensors.load(body))
        mean, std = (found.pop(f"scaling.{name}").numpy() for name in ("mean", "std"))
        net = ResNet18({}, self.stages)
        if mean.shape != (net.n_features,) or std.shape != mean.shape or not (std > 0).all():
            raise ValueError("another scaling of the features")
        if not all(bool(tensor.isfinite().all()) for tensor in found.values()):
            raise ValueError("weights that aren't finite")
        net.load_state_dict(found)
        self.net_, self.mean_, self.std_ = net.to(find_device(self.device)).eval(), mean, std
        self.key_ = _digest(self.net_, mean.tobytes().hex(), std.tobytes().hex())
        return self

    def _features(self, net: ResNet18, pictures: Pictures, told: str) -> Features:
        batches = -(-len(pictures) // AT_ONCE)
        with Bar(told, batches, ()) if self.verbose else Silent() as shown:
            return run_net(net, pictures, shown.advance)

    def _kept(self, name: str, shape: tuple[int, ...], compute: Callable[[], Features]) -> Features:
        """An array from the cache; computed and put there if it isn't there, or not whole."""
        if self.cache is False:
            return compute()
        folder = open_folder(cache_folder(self.cache) / "resnet")
        path = folder / f"{name}.npy"
        with _locked(folder / f"{name}.lock"):
            found = _read(path, shape)
            if found is None:
                found = compute()
                _write(path, found)
        return found


@torch.no_grad()
def run_net(
    net: ResNet18, pictures: Pictures, advance: Callable[[dict[str, Any]], None] | None = None
) -> Features:
    """(n, f) features of pictures, evaluating; the same whatever else is in the batch."""
    rows = PictureRows(pictures, next(net.parameters()).device)
    features = np.empty((len(pictures), net.n_features), np.float32)
    net.eval()
    for start in range(0, len(pictures), AT_ONCE):
        places = torch.arange(start, min(start + AT_ONCE, len(pictures)))
        both = places.repeat(2) if len(places) == 1 else places  # one alone is rounded otherwise
        features[start : start + AT_ONCE] = net(rows.take(both))[: len(places)].cpu().numpy()
        if advance is not None:
            advance({})
    return features


@torch.no_grad()
def adapt_statistics(net: nn.Module, pictures: Pictures) -> None:
    """Take the statistics of batch normalisation from pictures, in an order by chance.

    They are those of all values that reach a layer, while the layers before it normalise each batch
    by itself.
    """
    rows = PictureRows(pictures, next(net.parameters()).device)
    pools = [_Pool(m) for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    net.train()
    for start in range(0, len(pictures), AT_ONCE):
        places = torch.arange(start, min(start + AT_ONCE, len(pictures)))
        if len(places) > 1 or len(pictures) == 1:
            net(rows.take(places))
    net.eval()
    for pool in pools:
        pool.close()


class _Pool:
    """Mean and variance of everything that a layer of batch normalisation is given."""

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
        """Stop looking, and give the layer what was seen."""
        self._hook.remove()
        self.norm.running_mean.copy_(self.mean)  # type: ignore[union-attr]
        self.norm.running_var.copy_(self.squares / max(self.n - 1, 1))  # type: ignore[union-attr]


def _checked(X: Any) -> Pictures:
    if not isinstance(X, Pictures):
        raise InvalidInputError(f"`X` must be Pictures, got {type(X).__name__}.")
    if len(X) == 0:
        raise InvalidInputError("`X` must hold at least one picture, got 0.")
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


def _digest(net: ResNet18, *told: str) -> str:
    """Names a net, by its weights and what is told besides."""
    digest = hashlib.sha256(repr((net.stages, told)).encode())
    for name, tensor in net.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()[:DIGITS]


def _read(path: Path, shape: tuple[int, ...]) -> Features | None:
    """A kept array; None where there is none, or not a whole one."""
    try:
        found: Features = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == shape and found.dtype == np.float32 else None


def _write(path: Path, values: Features) -> None:
    def fill(stream: IO[bytes]) -> str:
        np.save(stream, np.asarray(values, np.float32), allow_pickle=False)
        return path.name

    try:
        write_whole(path.parent, fill)
    except OSError as error:  # a full disk must not cost what took long to compute
        warn(f"features could not be kept in `cache`: {error}", FairdialWarning)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time computes what others wait for.

    The file goes with the lock: who comes between finds what was computed, or computes it too.
    """
    try:
        import fcntl
    except ImportError:  # not to be had on Windows: then the same is computed twice
        yield
        return
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
