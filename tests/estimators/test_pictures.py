"""Every method trains a ResNet-18 on pictures end to end."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fairdial import EPO, GFB, YOTO, FairBayes, FairBiNN, Network, paper_settings  # noqa: E402
from fairdial.datasets import Pictures  # noqa: E402
from fairdial.errors import InvalidInputError, ModelFileError  # noqa: E402
from fairdial.io.load import load  # noqa: E402
from fairdial.nn.data import PictureInputs  # noqa: E402
from fairdial.nn.features import ResNetEncoder  # noqa: E402
from fairdial.nn.nets import ModuleStack  # noqa: E402
from fairdial.nn.partition import fairness_names  # noqa: E402
from fairdial.nn.resnet import LastStage, ResNet18  # noqa: E402
from fairdial.nn.scorer import in_float64, score_rows, score_runs, trunk_features  # noqa: E402

RNG = np.random.default_rng(0)
N = 64
LIGHT = np.arange(N) % 2
GROUPS = np.array(["a", "b"])[(np.arange(N) // 2) % 2]
PIXELS = RNG.integers(0, 60, (N, 3, 16, 16)) + 120 * LIGHT[:, None, None, None]
PICTURES = Pictures(PIXELS.astype(np.uint8))
torch.manual_seed(0)
TRUNK = ResNet18({})
QUICK = {
    "epochs": 2,
    "epoch": "short",  # no more steps than batches
    "batch_size": 8,
    "average": None,
    "members": 1,
    "head": 8,
}


def network(**settings) -> Network:
    return Network(**({"trunk": TRUNK} | QUICK | settings))


METHODS = {
    "FairBayes": lambda: FairBayes(network(), min_count=1, random_state=0),
    "GFB": lambda: GFB(network=network(), warm_epochs=0, min_count=1, random_state=0),
    "EPO": lambda: EPO(network=network(epochs=1), n_settings=2, min_count=1, random_state=0),
    "FairBiNN": lambda: FairBiNN(
        network=network(epochs=1), n_settings=2, widen=0, min_count=1, random_state=0
    ),
    "YOTO": lambda: YOTO(network=network(), targets=2, min_count=1, random_state=0),
}


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_the_whole_net(name):
    model = METHODS[name]().fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    net = model.net_ if hasattr(model, "net_") else model.nets_[0]
    assert isinstance(net.trunk, ModuleStack)
    assert len(net.trunk.nets) == 2
    for trained in net.trunk.nets:  # one for each group
        changed = [
            name
            for name, p in trained.named_parameters()
            if not torch.equal(p, TRUNK.state_dict()[name])
        ]
        if name == "FairBiNN":
            assert any(n.startswith("layer4") for n in changed)
        assert len(changed) == len(list(TRUNK.parameters()))
    decisions = model.predict(PICTURES, sensitive_features=GROUPS, tolerance=1.0)
    alone = [
        model.predict(PICTURES[[i]], sensitive_features=GROUPS[[i]], tolerance=1.0)[0]
        for i in range(4)
    ]
    assert decisions[:4].tolist() == alone


def last_stage() -> dict[str, object]:
    encoder = ResNetEncoder(TRUNK.state_dict(), stages=(3,), maps=True, cache=False)
    return {"trunk": LastStage(TRUNK.state_dict()), "encoder": encoder}


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_the_last_stage_on_maps_of_the_third(name):
    model = METHODS[name]()
    place = "estimator" if name == "FairBayes" else "network"
    parts = last_stage()
    model.set_params(**{f"{place}__{part}": value for part, value in parts.items()})
    model.fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    net = model.net_ if hasattr(model, "net_") else model.nets_[0]
    assert model.encoder_.transform(PICTURES).shape == (N, 256, 1, 1)
    start = parts["trunk"].state_dict()
    for trained in net.trunk.nets:  # a single point meets only the middle tap
        weights = {n: p for n, p in trained.named_parameters() if n.endswith("conv1.weight")}
        assert weights
        assert not any(torch.equal(p[4], start[n][4]) for n, p in weights.items())
    if name == "FairBiNN":
        fair = fairness_names(net)
        assert all(n.startswith("trunk.") for n in fair)
        assert len(fair) == len(list(net.trunk.parameters()))
    if name == "YOTO":
        assert len(net.film.out) == 1  # the head's hidden layer
    decisions = model.predict(PICTURES, sensitive_features=GROUPS, tolerance=1.0)
    assert set(decisions) <= {0, 1}


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
@pytest.mark.parametrize("kind", [FairBayes, GFB], ids=lambda kind: kind.__name__)
def test_bfloat16_is_for_training_the_trunk_alone(kind):
    place = "estimator" if kind is FairBayes else "network"
    larger = Pictures(PIXELS.astype(np.uint8).repeat(2, axis=2).repeat(2, axis=3))

    def fitted(precision):
        net = network(precision=precision, epochs=1, learning_rate=1e-4)
        model = kind(**{place: net}, min_count=1, random_state=0)
        return model.fit(larger, LIGHT, sensitive_features=GROUPS)

    fine, coarse = fitted("float32"), fitted("bfloat16")
    assert {p.dtype for p in coarse.net_.parameters()} == {torch.float32}
    pairs = list(zip(fine.net_.parameters(), coarse.net_.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in pairs)
    stack, rows = coarse.net_.trunk, torch.randn(2, 4, 3, 32, 32)
    with torch.no_grad():
        exact, rough = (ModuleStack(stack.nets, r).train()(rows) for r in (False, True))
        assert exact.dtype == rough.dtype == torch.float32
        assert not torch.equal(exact, rough)
        assert float(torch.corrcoef(torch.stack((exact.ravel(), rough.ravel())))[0, 1]) > 0.95
        assert torch.equal(*(ModuleStack(stack.nets, r).eval()(rows) for r in (False, True)))


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
def test_bfloat16_is_refused_where_its_gradients_would_be_wrong():
    with pytest.raises(InvalidInputError, match="`precision`"):
        FairBayes(network(precision="bfloat16"), min_count=1).fit(
            PICTURES, LIGHT, sensitive_features=GROUPS
        )


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
def test_a_pictures_score_is_the_same_alone_and_with_others():
    model = METHODS["FairBayes"]().fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    rows, codes = PictureInputs(PICTURES, torch.device("cpu")), (GROUPS == "b").astype(int)
    net = in_float64(model.net_)
    assert net.head_dtype == torch.float64
    assert next(net.trunk.parameters()).dtype == torch.float32
    whole = score_rows(net, rows, codes)
    assert whole.dtype == np.float64
    for at_once in (1, 2, 7):
        some = score_runs(net, rows, codes, batch_rows=at_once)[0]
        np.testing.assert_allclose(some, whole, rtol=0, atol=1e-12)  # the head's rounding


def test_features_of_a_trunk_are_scored_as_the_pictures_are():
    model = METHODS["YOTO"]()
    model.fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    rows, codes = PictureInputs(PICTURES, torch.device("cpu")), (GROUPS == "b").astype(int)
    net = in_float64(model.net_)
    features = trunk_features(net, rows, codes)
    assert features.features.shape == (N, 1, 512)
    for condition in (-2.0, 0.5):
        direct = score_runs(net, rows, codes, condition=condition)
        cached = score_runs(net, features, codes, condition=condition, features=True)
        np.testing.assert_allclose(cached, direct, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::fairdial.errors.TrainingWarning")  # as it is in the paper
def test_the_papers_settings_for_pictures_take_a_trunk():
    settings = paper_settings("gfb", "utkface")
    settings["network"].set_params(trunk=TRUNK, epochs=1, batch_size=8)
    model = GFB(**settings, min_count=1, random_state=0)
    model.fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    assert model.net_.head.active_widths == [128]


def test_averaged_weights_come_with_averaged_statistics():
    """A net that doesn't learn has the average of its statistics, not the last ones."""
    model = FairBayes(
        network(epochs=3, average=2.0, learning_rate=1e-30), min_count=1, random_state=0
    )
    model.fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    again = FairBayes(network(epochs=3, learning_rate=1e-30), min_count=1, random_state=0)
    again.fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    mean = model.net_.trunk.nets[0].bn1.running_mean
    last = again.net_.trunk.nets[0].bn1.running_mean
    assert not torch.allclose(mean, last, rtol=1e-3)
    assert torch.isfinite(mean).all()


def on_features() -> FairBayes:
    encoder = ResNetEncoder(TRUNK.state_dict(), cache=False)
    inside = Network(encoder=encoder, members=1, epochs=2, hidden=(8,), head=4)
    return FairBayes(inside, min_count=1, random_state=0)


def on_maps() -> FairBayes:
    return FairBayes(network(**last_stage()), min_count=1, random_state=0)


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
@pytest.mark.parametrize(
    "make", [METHODS["FairBayes"], on_features, on_maps], ids=["trunk", "encoder", "maps"]
)
def test_a_model_of_pictures_is_saved_with_its_resnet(tmp_path, make):
    model = make().fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for tolerance in (0.0, 0.1, 1.0):
        margins = [
            m.decision_function(PICTURES, sensitive_features=GROUPS, tolerance=tolerance)
            for m in (model, again)
        ]
        assert np.array_equal(*margins)
    again.fit(PICTURES, LIGHT, sensitive_features=GROUPS)


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
def test_features_of_pictures_are_embeddings():
    model = on_features().fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    assert model.net_.trunk.dropout == 0.5
    model.set_params(estimator__dropout=0.0).fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    assert model.net_.trunk.dropout == 0.0


def test_a_broken_encoder_of_pictures_is_refused():
    encoder = ResNetEncoder(TRUNK.state_dict(), cache=False).fit(PICTURES[:8])
    body = encoder.to_bytes()
    assert ResNetEncoder(cache=False).put_bytes(body).key_ == encoder.key_
    with pytest.raises(ValueError, match="another scaling"):
        ResNetEncoder(stages=(4,), cache=False).put_bytes(body)


def test_a_forged_file_of_the_encoder_names_the_file(tmp_path):
    from safetensors import torch as safetensors

    from fairdial.io.folder import write_folder
    from fairdial.io.save import PICTURES as FILE
    from fairdial.io.save import describe_model

    model = on_features().fit(PICTURES, LIGHT, sensitive_features=GROUPS)
    manifest, files = describe_model(model)
    good = dict(safetensors.load(files[FILE]))
    for i, (name, value) in enumerate(
        {
            "scaling.std": torch.zeros(768),
            "conv1.weight": torch.full_like(good["conv1.weight"], torch.nan),
            "bn1.weight": torch.ones(3),
        }.items()
    ):
        forged = files | {FILE: safetensors.save(good | {name: value})}
        write_folder(tmp_path / str(i), manifest, forged)
        with pytest.raises(ModelFileError, match=FILE):
            load(tmp_path / str(i))
