"""Frozen features: adapted without labels, computed once, the same for a picture everywhere."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from fairdial import FairBayes, Network  # noqa: E402
from fairdial.datasets import Pictures  # noqa: E402
from fairdial.errors import InvalidInputError  # noqa: E402
from fairdial.nn import features as module  # noqa: E402
from fairdial.nn.data import PictureInputs  # noqa: E402
from fairdial.nn.features import ResNetEncoder, adapt_statistics, run_net  # noqa: E402
from fairdial.nn.resnet import ResNet18  # noqa: E402

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 3, 16, 16), dtype=np.uint8)
PICTURES = Pictures(PIXELS)
WEIGHTS = ResNet18({}).state_dict()


def encoder(**settings) -> ResNetEncoder:
    return ResNetEncoder(WEIGHTS, **({"cache": False} | settings))


def test_pictures_are_normalized_by_their_mean_and_std():
    part = Pictures(PIXELS, [5, 3], mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    rows = PictureInputs(part, torch.device("cpu"))
    expected = PIXELS[[3, 5]] / 255.0
    expected = (expected - np.reshape([0.1, 0.2, 0.3], (3, 1, 1))) / np.reshape(
        [0.5, 0.6, 0.7], (3, 1, 1)
    )
    assert len(rows) == 2
    np.testing.assert_allclose(rows.take(torch.tensor([1, 0])).numpy(), expected, atol=1e-6)


def test_statistics_are_those_of_all_pictures_however_they_are_cut_into_batches(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 8)
    net = ResNet18(WEIGHTS)
    adapt_statistics(net, PICTURES)
    x = PictureInputs(PICTURES, torch.device("cpu")).take(torch.arange(20))
    with torch.no_grad():
        out = net.conv1(x)
    mean, var = out.mean(dim=(0, 2, 3)), out.var(dim=(0, 2, 3))
    torch.testing.assert_close(net.bn1.running_mean, mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.bn1.running_var, var, rtol=1e-4, atol=1e-5)
    assert not net.training
    assert net.bn1.momentum == 0.1
    assert all(torch.equal(net.state_dict()[k], v) for k, v in WEIGHTS.items() if "conv" in k)


def test_the_order_of_the_training_pictures_does_not_matter_to_their_spread(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 8)
    bright = np.argsort(PIXELS.mean(axis=(1, 2, 3)))
    sorted_, drawn = (encoder().fit(PICTURES[places]).net_ for places in (bright, bright[::-1]))
    one, other = sorted_.bn1.running_var, drawn.bn1.running_var
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_features_are_standardized_on_the_training_pictures():
    found = encoder().fit(PICTURES).transform(PICTURES)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(found.std(axis=0), 1.0, atol=1e-3)


def test_a_pictures_features_do_not_depend_on_the_others(monkeypatch):
    fitted = encoder().fit(PICTURES)
    whole = fitted.transform(PICTURES)
    for places in ([7], [7, 3, 19], list(range(15, -1, -1))):
        assert np.array_equal(fitted.transform(PICTURES[places]), whole[places])
    monkeypatch.setattr(module, "BATCH", 19)  # 20 = 19 + 1: a last batch of one
    assert np.array_equal(fitted.transform(PICTURES), whole)


def test_only_training_pictures_decide_what_the_encoder_is():
    first, second = encoder().fit(PICTURES[:10]), encoder().fit(PICTURES[:10])
    assert first.key_ == second.key_
    assert encoder().fit(PICTURES[10:]).key_ != first.key_
    assert not np.array_equal(
        encoder().fit(PICTURES[10:]).transform(PICTURES), first.transform(PICTURES)
    )


def test_without_adaptation_the_statistics_stay_those_of_the_file():
    fitted = encoder(adapt=0).fit(PICTURES)
    raw = run_net(ResNet18(WEIGHTS, stages=(3, 4)), PICTURES)
    expected = (raw - raw.mean(axis=0)) / np.where(raw.std(axis=0) > 1e-6, raw.std(axis=0), 1.0)
    np.testing.assert_allclose(fitted.transform(PICTURES), expected, atol=1e-3)


def test_adapt_limits_the_number_of_pictures():
    few = encoder(adapt=8).fit(PICTURES)
    drawn = np.random.default_rng(0).permutation(20)[:8]
    again = encoder(adapt=8).fit(PICTURES[drawn]).net_  # in another order: other sums
    for one, other in zip(few.net_.buffers(), again.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert few.key_ != encoder().fit(PICTURES).key_


@pytest.fixture
def keep_all(monkeypatch):
    monkeypatch.setattr(module, "MIN_CACHED", 1)


@pytest.mark.usefixtures("keep_all")
def test_features_are_computed_once_and_then_read(tmp_path, monkeypatch):
    first = encoder(cache=tmp_path).fit(PICTURES)
    found = first.transform(PICTURES[:10])

    def never(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(module, "run_net", never)
    again = clone(first).fit(PICTURES)
    assert np.array_equal(again.transform(PICTURES[:10]), found)
    with pytest.raises(AssertionError, match="computed again"):
        again.transform(PICTURES[10:20])  # other pictures
    other = Pictures(PIXELS, np.arange(10), mean=(0.0, 0.0, 0.0))
    with pytest.raises(AssertionError, match="computed again"):
        again.transform(other)  # the same pixels, normalized differently
    with pytest.raises(AssertionError, match="computed again"):
        encoder(cache=tmp_path, stages=(4,)).fit(PICTURES)


def test_only_many_pictures_are_cached_in_a_file_with_usual_permissions(tmp_path, monkeypatch):
    fitted = encoder(cache=tmp_path).fit(PICTURES)
    (adapted,) = (tmp_path / "resnet").iterdir()
    monkeypatch.setattr(module, "MIN_CACHED", 10)
    for place in range(9):
        fitted.transform(PICTURES[: place + 1])
    assert list((tmp_path / "resnet").iterdir()) == [adapted]
    old, new = adapted.with_name("killed.part"), adapted.with_name("writing.part")
    for part in (old, new):
        part.touch()
    os.utime(old, (time.time() - 4000,) * 2)
    fitted.transform(PICTURES[:10])
    (tmp_path / "usual").touch()
    found = set((tmp_path / "resnet").iterdir()) - {adapted, new}
    assert [path.suffix for path in found] == [".npy"]
    assert {path.stat().st_mode for path in (adapted, *found)} == {
        (tmp_path / "usual").stat().st_mode
    }


@pytest.mark.parametrize("cache", [True, 3, "/dev/null/x"])
def test_a_cache_must_be_a_folder(cache):
    with pytest.raises(InvalidInputError, match="`cache`"):
        encoder(cache=cache).fit(PICTURES)


@pytest.mark.usefixtures("keep_all")
def test_changed_pixels_have_their_own_features(tmp_path):
    pixels = PIXELS.copy()
    pictures = Pictures(pixels)
    fitted = encoder(cache=tmp_path).fit(pictures)
    before = np.array(fitted.transform(pictures))
    pixels[:] = 255 - pixels
    assert not np.array_equal(fitted.transform(pictures), before)


def test_the_default_cache_is_the_pictures_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRDIAL_CACHE", str(tmp_path))
    encoder(cache=None).fit(PICTURES)
    assert len(list((tmp_path / "resnet").glob("adapted-*.npy"))) == 1


@pytest.mark.parametrize("X", [PIXELS, PICTURES[[]], None])
def test_only_pictures_are_encoded(X):
    with pytest.raises(InvalidInputError, match="`X`"):
        encoder().fit(X)


def test_a_constant_feature_stays_finite():
    same = Pictures(np.full((6, 3, 16, 16), 7, np.uint8))
    assert np.isfinite(encoder().fit(same).transform(same)).all()


LIGHT = np.arange(40) % 2
SHADES = Pictures(
    (np.tile(PIXELS, (2, 1, 1, 1)) // 4 + 100 * LIGHT[:, None, None, None]).astype(np.uint8)
)
GROUPS = np.array(["a", "b"])[(np.arange(40) // 2) % 2]


@pytest.mark.parametrize("kind", ["network", "pipeline"])
def test_estimators_take_pictures_through_the_encoder(kind):
    if kind == "network":
        inside = Network(encoder=encoder(), members=1, epochs=15, hidden=(16,))
    else:
        inside = make_pipeline(encoder(), LogisticRegression())
    model = FairBayes(inside, min_count=1, random_state=0, tolerance=1.0)
    model.fit(SHADES, LIGHT, sensitive_features=GROUPS)
    assert model.score(SHADES, LIGHT, sensitive_features=GROUPS) > 0.9


def test_pictures_need_a_trunk_or_an_encoder():
    with pytest.raises(InvalidInputError, match="`network`"):
        FairBayes(Network(), min_count=1).fit(SHADES, LIGHT, sensitive_features=GROUPS)


def test_maps_are_those_of_the_adapted_net_whether_they_are_cached_or_not(tmp_path, monkeypatch):
    alone = encoder(stages=(3,), maps=True).fit(PICTURES)
    maps = alone.transform(PICTURES)
    assert maps.dtype == np.float16
    averages = encoder(stages=(3,)).fit(PICTURES)
    scaled = (maps.astype(np.float64).mean(axis=(2, 3)) - averages.mean_) / averages.std_
    np.testing.assert_allclose(scaled, averages.transform(PICTURES), atol=0.02)
    monkeypatch.setattr(module, "MIN_CACHED", 2)
    stored = encoder(stages=(3,), maps=True, cache=tmp_path).fit(PICTURES)
    for _ in range(2):  # computed, then read
        assert np.array_equal(stored.transform(PICTURES), maps)
    assert not np.array_equal(encoder(stages=(3,), cache=tmp_path).fit(PICTURES).mean_, 0 * maps[0])
    assert encoder(stages=(3,), maps=True).put_bytes(stored.to_bytes()).key_ == stored.key_
    with pytest.raises(InvalidInputError, match="`stages`"):
        encoder(maps=True).fit(PICTURES)
