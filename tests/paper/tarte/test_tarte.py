"""TARTE as an encoder: weights, sizes and vectors are tiny, in the formats of the official files.

Without tarte-ai only the messages are tested. To run the rest, in an environment of its own:
``pip install -e '.[tarte]' pytest hypothesis -c constraints.txt``, then
``python -m pytest tests/test_tarte.py tests/tarte``.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import unittest
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from fairdial import (
    GFB,
    FairBayes,
    InvalidInputError,
    MissingExtraError,
    Network,
    TarteEncoder,
    paper_settings,
)
from fairdial.datasets import load_adult, load_compas
from fairdial.errors import install_command
from fairdial.nn import tarte as nn_module
from fairdial.paper.tarte import encoder as encoder_module
from fairdial.paper.tarte import files as files_module
from fairdial.paper.tarte.files import fingerprint, require_package
from fairdial.tables.encoder import Encoder

needs_tarte = pytest.mark.skipif(
    find_spec("tarte_ai") is None or find_spec("fasttext") is None,
    reason="needs tarte-ai and fasttext: pip install '.[tarte]' -c constraints.txt",
)
BESIDES = ("catboost", "huggingface_hub", "skrub", "tabpfn", "torcheval", "xgboost")
needs_all_of_it = pytest.mark.skipif(
    any(find_spec(name) is None for name in BESIDES),
    reason="needs what tarte-ai imports: pip install '.[tarte]' -c constraints.txt",
)
FILES = ("weights", "config", "fasttext")
SIZES = {
    "dim_input": 300,
    "dim_transformer": 24,
    "dim_feedforward": 32,
    "num_heads": 4,
    "num_layers_transformer": 3,
    "dropout": 0.1,
    "dim_projection": [8, 24],
}
SENTENCES = "age workclass private education married race sex hours a b cook nurse\n" * 20
TABLE = pd.DataFrame({"age": [30.0, 40.0, None], "job": ["cook", "nurse", None]})


def make_weights(folder: Path, **sizes: Any) -> dict[str, str]:
    """Random weights and their sizes, as the official files hold them."""
    import torch

    folder.mkdir(exist_ok=True)
    own = SIZES | sizes
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn_module.tarte_model().TARTE_Pretrain_NN(**own)
    torch.save(network.state_dict(), folder / "weights.pt")
    (folder / "config.json").write_text(json.dumps(own))
    return {"weights": str(folder / "weights.pt"), "config": str(folder / "config.json")}


def make_words(path: Path, sentences: str = SENTENCES, dim: int = 300) -> str:
    """A tiny model of fastText: random vectors of words and of subwords, so of all words.

    Ten threads draw them, whatever is asked for: fewer leave the rest of the vectors 0.
    """
    import fasttext

    text = path.with_suffix(".txt")
    text.write_text(sentences)
    shape = {"dim": dim, "minn": 2, "maxn": 3, "bucket": 50, "minCount": 1}
    model = fasttext.train_unsupervised(str(text), **shape, lr=0.0, epoch=1, thread=10, verbose=0)
    model.save_model(str(path))
    return str(path)


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of the three files."""
    folder = tmp_path_factory.mktemp("tarte")
    return make_weights(folder) | {"fasttext": make_words(folder / "words.bin")}


@pytest.fixture
def files(official: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Copies of the three files, to be corrupted."""
    return {name: shutil.copy(path, tmp_path) for name, path in official.items()}


@pytest.fixture
def unread(tmp_path: Path) -> dict[str, str]:
    """Files that are there; only the sizes are true."""
    for name in ("weights", "fasttext"):
        (tmp_path / name).write_bytes(b"none of these")
    (tmp_path / "config").write_text(json.dumps(SIZES))
    return {name: str(tmp_path / name) for name in FILES}


@pytest.fixture(autouse=True)
def forget() -> None:
    """No test sees what another has loaded."""
    encoder_module._load.cache_clear()
    files_module._open_words.cache_clear()


def adult(n: int = 120) -> pd.DataFrame:
    return load_adult().X.iloc[:n]


def mixed(n: int = 60) -> pd.DataFrame:
    """Every kind of column, with and without missing values."""
    rng = np.random.default_rng(0)
    holes = rng.random(n) < 0.2
    dates = pd.to_datetime(rng.choice(["1999-03-01", "2004-05-06", "2011-02-03"], n))
    return pd.DataFrame(
        {
            "real": np.where(holes, np.nan, rng.lognormal(size=n)),
            "whole": rng.integers(0, 9, n),
            "constant": 3.0,
            "flag": rng.random(n) < 0.3,
            "nullable": pd.array(np.where(holes, None, rng.integers(0, 9, n)), dtype="Int64"),
            "since": pd.Series(dates).mask(holes),
            "job": np.where(rng.random(n) < 0.2, None, rng.choice(["Cook", "sous\nchef"], n)),
            "place": pd.Categorical(rng.choice(["Rome", "Oslo"], n)),
        }
    )


# ---- messages, with or without the package ------------------------------------------------------


def test_making_one_and_cloning_it_looks_at_nothing() -> None:
    encoder = TarteEncoder("a", "b", Path("c"), layer=1, cache="d")
    assert clone(encoder).get_params() == encoder.get_params()
    with pytest.raises(NotFittedError):
        encoder.transform(TABLE)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("weights", "tarte_pretrained_weights.pt of https://huggingface.co/inria-soda/tarte"),
        ("config", "tarte_pretrained_configs.json of https://huggingface.co/inria-soda/tarte"),
        ("fasttext", "cc.en.300.bin of https://huggingface.co/hi-paris/fastText"),
    ],
)
def test_a_missing_file_is_named_with_its_source(
    unread: dict[str, str], name: str, source: str
) -> None:
    Path(unread[name]).unlink()
    with pytest.raises(InvalidInputError) as caught:
        TarteEncoder(**unread).fit(TABLE)
    message = str(caught.value)
    assert message.startswith(f"`{name}` must be a file on this machine, got '{unread[name]}'")
    assert source in message
    assert "Nothing is downloaded" in message


@pytest.mark.parametrize("name", FILES)
def test_a_path_must_be_a_path(unread: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        TarteEncoder(**unread | {name: None}).fit(TABLE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer", -1),
        ("layer", "all"),
        ("layer", 3),
        ("batch_rows", 0),
        ("device", "abacus"),
        ("scaling", "standard"),
    ],
)
def test_invalid_settings_are_refused(unread: dict[str, str], name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"`{name}`.*got {value!r}"):
        TarteEncoder(**unread, **{name: value}).fit(TABLE)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{", "JSON"),
        ("[]", "JSON"),
        ("{}", "dim_input"),
        (json.dumps(SIZES | {"num_heads": 0}), "num_heads, got 0"),
        (json.dumps(SIZES | {"dim_input": 3.5}), "dim_input, got 3.5"),
        (json.dumps(SIZES | {"num_heads": 7}), "num_heads"),
    ],
)
def test_invalid_sizes_are_refused(unread: dict[str, str], text: str, names: str) -> None:
    Path(unread["config"]).write_text(text)
    with pytest.raises(InvalidInputError, match=f"`config`.*{names}"):
        TarteEncoder(**unread).fit(TABLE)


def test_without_the_package_the_error_says_what_to_install(
    unread: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nn_module.tarte_model.cache_clear()
    monkeypatch.setitem(sys.modules, "tarte_ai", None)  # as if it weren't installed
    with pytest.raises(MissingExtraError) as caught:
        TarteEncoder(**unread).fit(TABLE)
    assert "tarte_ai" in str(caught.value)
    assert install_command("tarte") in str(caught.value)
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(MissingExtraError, match="fasttext is missing"):
        require_package("fasttext")


def test_the_fingerprint_of_a_large_file_shows_its_size_beginning_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "WHOLE", 100)
    monkeypatch.setattr(files_module, "ENDS", 10)
    whole = bytearray(range(200))
    prints = []
    for i, change in enumerate((None, 0, 9, 190, 199, "longer")):
        content = bytearray(whole)
        if isinstance(change, int):
            content[change] ^= 1
        if change == "longer":
            content[100:100] = b"more"
        (tmp_path / str(i)).write_bytes(content)
        prints.append(fingerprint(tmp_path / str(i)))
    assert len(set(prints)) == len(prints)


# ---- the same features as tarte-ai's ------------------------------------------------------------


def trials() -> dict[str, tuple[pd.DataFrame, pd.DataFrame, int, str]]:
    """Training rows, rows, layer and scaling, by name."""
    numbers = np.random.default_rng(0).normal(size=(20, 3))
    tables = {
        "adult": (adult(), 2),
        "adult-0": (adult(), 0),
        "compas": (load_compas().X.iloc[:120], 1),
        "mixed": (mixed(), 2),
        "texts": (mixed()[["job", "place"]], 2),
        "numbers": (pd.DataFrame(numbers, columns=["Column_0", "Column_1", "Column_2"]), 2),
    }
    return {
        f"{name}-{scaling}": (X.iloc[: len(X) // 2], X, layer, scaling)
        for name, (X, layer) in tables.items()
        for scaling in ("robust", "power")
    }


@pytest.fixture(scope="module")
def reference(
    official: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    """tarte-ai's own features of the trials."""
    folder = Path(official["weights"]).parent
    (folder / "tables.pkl").write_bytes(pickle.dumps(trials()))
    home = tmp_path_factory.mktemp("home")  # where some of its libraries leave folders
    subprocess.run(
        [sys.executable, str(Path(__file__).parent / "tarte" / "reference.py"), str(folder)],
        env=os.environ | {"HOME": str(home)},
        capture_output=True,
        check=True,
    )
    return dict(np.load(folder / "features.npz"))


@needs_tarte
@needs_all_of_it
@pytest.mark.parametrize("name", list(trials()))
def test_features_are_those_of_tarte_ai(
    official: dict[str, str], reference: dict[str, np.ndarray], name: str
) -> None:
    train, X, layer, scaling = trials()[name]
    encoder: Encoder = TarteEncoder(**official, layer=layer, scaling=scaling).fit(train)
    features = encoder.transform(X)
    assert features.dtype == np.float32
    assert features.shape == (len(X), encoder.n_features_out_) == (len(X), 24)
    assert np.abs(features - reference[name]).max() < 1e-5
    assert features.std(axis=0).min() > 1e-3  # rows do differ


@needs_tarte
def test_columns_of_arrays_are_called_as_tarte_ai_calls_them(official: dict[str, str]) -> None:
    X = trials()["numbers-robust"][1]
    encoder = TarteEncoder(**official)
    assert np.array_equal(encoder.fit_transform(X.to_numpy()), encoder.fit_transform(X))


# ---- rows ---------------------------------------------------------------------------------------


@needs_tarte
def test_a_rows_features_do_not_depend_on_the_rows_beside_it(official: dict[str, str]) -> None:
    X = mixed()
    encoder = TarteEncoder(**official).fit(X)
    all_at_once = encoder.transform(X)
    for batch_rows in (1, 7, 1000):
        chunks = clone(encoder).set_params(batch_rows=batch_rows).fit(X).transform(X)
        assert np.abs(chunks - all_at_once).max() < 1e-5
    order = np.random.default_rng(0).permutation(len(X))
    assert np.abs(encoder.transform(X.iloc[order]) - all_at_once[order]).max() < 1e-5
    assert np.abs(encoder.transform(X.iloc[[5]]) - all_at_once[5]).max() < 1e-5


@needs_tarte
def test_the_order_of_columns_and_further_ones_make_no_difference(
    official: dict[str, str],
) -> None:
    X = mixed()
    encoder = TarteEncoder(**official).fit(X)
    turned = X[X.columns[::-1]].assign(further=1)
    assert np.array_equal(encoder.transform(turned), encoder.transform(X))
    with pytest.raises(InvalidInputError, match="got none called 'job'"):
        encoder.transform(X.drop(columns="job"))


@needs_tarte
def test_new_texts_and_rows_without_any_value_have_features(official: dict[str, str]) -> None:
    X = mixed()[["real", "job"]]
    encoder = TarteEncoder(**official).fit(X)
    new = pd.DataFrame({"real": [1.0, 1.0, np.nan], "job": ["pilot", "Cook", None]})
    features = encoder.transform(new)
    assert np.isfinite(features).all()
    assert np.abs(features[0] - features[1]).max() > 1e-3
    assert np.abs(features[2] - features[1]).max() > 1e-3


@needs_tarte
def test_numbers_far_away_have_finite_features(official: dict[str, str]) -> None:
    encoder = TarteEncoder(**official).fit(TABLE)
    far = pd.DataFrame({"age": [1e100, -1e100], "job": ["cook", "cook"]})
    assert np.isfinite(encoder.transform(far)).all()


@needs_tarte
def test_neither_fit_nor_transform_draws_a_random_number(official: dict[str, str]) -> None:
    import torch

    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    TarteEncoder(**official).fit(TABLE).transform(TABLE)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


# ---- files --------------------------------------------------------------------------------------


@needs_tarte
def test_weights_that_are_incomplete_or_of_other_sizes_are_refused(
    files: dict[str, str],
) -> None:
    import torch

    state = torch.load(files["weights"], weights_only=True)
    corrupt = {k: v for k, v in state.items() if "layers.1.linear1.bias" not in k}
    for content in (corrupt, [1], {}):
        torch.save(content, files["weights"])
        with pytest.raises(InvalidInputError, match="`weights`"):
            TarteEncoder(**files).fit(TABLE)
    Path(files["weights"]).write_bytes(b"none")
    with pytest.raises(InvalidInputError, match="`weights`"):
        TarteEncoder(**files).fit(TABLE)
    torch.save(corrupt, files["weights"])
    assert TarteEncoder(**files, layer=0).fit(TABLE).n_features_out_ == 24  # layer 1 isn't run
    torch.save(state, files["weights"])
    Path(files["config"]).write_text(json.dumps(SIZES | {"dim_transformer": 32}))
    with pytest.raises(InvalidInputError, match=r"`weights`.*`config`"):
        TarteEncoder(**files).fit(TABLE)


@needs_tarte
def test_vectors_that_cannot_be_read_or_have_another_length_are_refused(
    files: dict[str, str], tmp_path: Path
) -> None:
    Path(files["fasttext"]).write_bytes(b"none")
    with pytest.raises(InvalidInputError, match="`fasttext`"):
        TarteEncoder(**files).fit(TABLE)
    make_words(tmp_path / "short.bin", dim=20)
    with pytest.raises(InvalidInputError, match="`fasttext`"):
        TarteEncoder(**files | {"fasttext": tmp_path / "short.bin"}).fit(TABLE)


@needs_tarte
def test_a_fit_that_fails_leaves_no_half_fitted_encoder(files: dict[str, str]) -> None:
    Path(files["fasttext"]).write_bytes(b"none")
    encoder = TarteEncoder(**files)
    with pytest.raises(InvalidInputError):
        encoder.fit(TABLE)
    with pytest.raises(NotFittedError):
        encoder.transform(TABLE)


@needs_tarte
def test_known_texts_need_no_fasttext_and_new_ones_the_same_file(files: dict[str, str]) -> None:
    encoder = TarteEncoder(**files).fit(TABLE)
    new = TABLE.assign(job=["pilot", "cook", None])
    wanted, wanted_new = encoder.transform(TABLE), encoder.transform(new)
    path = Path(files["fasttext"])
    hidden = path.rename(path.with_suffix(".hidden"))
    files_module._open_words.cache_clear()
    assert np.array_equal(encoder.transform(TABLE), wanted)
    with pytest.raises(InvalidInputError, match="`fasttext`"):
        encoder.transform(new)
    make_words(path, sentences="pilot cook nurse age job\n" * 20)
    with pytest.raises(InvalidInputError, match="`fasttext`"):
        encoder.transform(new)
    hidden.rename(path)
    assert np.array_equal(encoder.transform(new), wanted_new)


@needs_tarte
def test_texts_beyond_those_that_are_held_give_the_same_features(
    official: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = TarteEncoder(**official).fit_transform(adult())
    monkeypatch.setattr(encoder_module, "TEXTS", 3)
    few = TarteEncoder(**official).fit(adult())
    assert len(few.texts_) == adult().shape[1] + 3
    assert "private" in few.texts_  # the most frequent class of work
    assert np.array_equal(few.transform(adult()), wanted)


@needs_tarte
def test_weights_that_changed_since_fit_are_noticed(files: dict[str, str], tmp_path: Path) -> None:
    encoder = TarteEncoder(**files).fit(TABLE)
    other = make_weights(tmp_path / "other", dim_feedforward=16)
    shutil.copy(other["weights"], files["weights"])
    with pytest.raises(InvalidInputError, match="`weights`"):
        encoder.transform(TABLE)


@needs_tarte
def test_a_pickled_encoder_is_small_and_gives_the_same(official: dict[str, str]) -> None:
    encoder = TarteEncoder(**official).fit(mixed())
    text = pickle.dumps(encoder)
    assert len(text) < Path(official["weights"]).stat().st_size / 2
    assert np.array_equal(pickle.loads(text).transform(mixed()), encoder.transform(mixed()))


OFFLINE = """
import json, os, sys
reached, written = [], []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        reached.append(event)
        raise OSError("no network here")
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        mode, flags = arguments[1], arguments[2]
        if set(mode or "") & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(os.fsdecode(arguments[0]))
    if event in ("os.mkdir", "os.rename"):
        written.append(os.fsdecode(arguments[0]))
sys.addaudithook(watch)
import pandas as pd
from fairdial import TarteEncoder
loaded = sorted({"torch", "tarte_ai", "fasttext"} & set(sys.modules))
X = pd.DataFrame({"age": [30.0, 40.0], "job": ["cook", "nurse"]})
shape = TarteEncoder(*sys.argv[1:4], cache=sys.argv[4]).fit(X).transform(X).shape
loaded += sorted({"tarte_ai", "huggingface_hub"} & set(sys.modules))
print(json.dumps([loaded, reached, [p for p in written if p != os.devnull], shape]))
"""


@needs_tarte
def test_nothing_is_downloaded_and_nothing_is_written_but_the_cache(
    official: dict[str, str], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-B", "-c", OFFLINE, *(official[name] for name in FILES), str(cache)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, reached, written, shape = json.loads(done.stdout.splitlines()[-1])
    assert loaded == reached == []
    assert shape == [2, 24]
    assert str(cache) in written
    assert [path for path in written if not path.startswith(str(cache))] == []


# ---- kept features ------------------------------------------------------------------------------


@needs_tarte
def test_features_are_computed_once_for_all_methods_on_a_split(
    files: dict[str, str], tmp_path: Path
) -> None:
    cache, X = tmp_path / "cache", mixed()
    encoder = TarteEncoder(**files, cache=cache)
    wanted = encoder.fit(X.iloc[:30]).transform(X)
    (path,) = cache.iterdir()
    stamp = path.stat().st_mtime_ns
    second = clone(encoder).fit(X.iloc[:30])
    Path(files["weights"]).unlink()  # whoever computes needs them
    assert np.array_equal(second.transform(X), wanted)
    assert path.stat().st_mtime_ns == stamp
    with pytest.raises(InvalidInputError, match="`weights`"):
        second.transform(X.iloc[:9])


@needs_tarte
def test_whatever_changes_the_features_changes_the_key(
    official: dict[str, str], tmp_path: Path
) -> None:
    cache, X = tmp_path / "cache", mixed()
    other = make_weights(tmp_path / "other")
    import torch

    state = torch.load(other["weights"], weights_only=True)
    state["tarte_base.initial_x.0.bias"] += 0.1
    torch.save(state, other["weights"])
    words = make_words(tmp_path / "words.bin", sentences=SENTENCES * 2)
    heads = tmp_path / "heads.json"
    heads.write_text(json.dumps(SIZES | {"num_heads": 2}))
    trials = [
        ({}, X, X),
        ({"layer": 1}, X, X),
        ({"scaling": "power"}, X, X),
        ({"weights": other["weights"]}, X, X),
        ({"config": heads}, X, X),
        ({"fasttext": words}, X, X),
        ({}, X.iloc[:20], X),  # other training rows
        ({}, X, X.iloc[::-1]),
        ({}, X, X.iloc[:-1]),
    ]
    for n, (settings, train, rows) in enumerate(trials, 1):
        TarteEncoder(**official | settings, cache=cache).fit(train).transform(rows)
        assert len(list(cache.iterdir())) == n
    TarteEncoder(**official, cache=cache, batch_rows=5, device="cpu").fit(X).transform(X)
    assert len(list(cache.iterdir())) == len(trials)  # how it is computed makes no difference


# ---- with estimators ----------------------------------------------------------------------------


@needs_tarte
def test_it_passes_the_checks_of_scikit_learn(official: dict[str, str]) -> None:
    encoder = TarteEncoder(**official)
    ran = 0
    for estimator, check in estimator_checks_generator(encoder, legacy=True):
        with warnings.catch_warnings(), contextlib.suppress(unittest.SkipTest):
            warnings.simplefilter("ignore")
            check(estimator)
            ran += 1
    assert ran > 20


@needs_tarte
def test_feature_names_and_frames_come_out(official: dict[str, str]) -> None:
    encoder = TarteEncoder(**official).set_output(transform="pandas")
    frame = encoder.fit_transform(mixed())
    assert frame.columns.tolist() == [f"tarteencoder{i}" for i in range(24)]


@needs_tarte
@pytest.mark.filterwarnings("ignore::fairdial.TrainingWarning")  # the recipe's inert system
def test_the_papers_recipe_runs_on_768_features(official: dict[str, str], tmp_path: Path) -> None:
    wide = make_weights(
        tmp_path / "wide", dim_transformer=768, num_heads=24, num_layers_transformer=1
    )
    encoder = TarteEncoder(**official | wide, layer=0, cache=tmp_path / "cache")
    rows = load_adult()
    X, y, groups = rows.X.iloc[:400], rows.y[:400], rows.groups[:400]
    settings = paper_settings("gfb", "adult")
    settings["network"].set_params(encoder=encoder, epochs=2)
    model = GFB(**settings, random_state=0, min_count=1)
    model.fit(X, y, sensitive_features=groups)
    assert model.encoder_.n_features_out_ == 768
    assert model.predict(X, sensitive_features=groups, tolerance=0.1).shape == (400,)
    plain = FairBayes(paper_settings("fairbayes", "adult")["estimator"], random_state=0)
    plain.set_params(min_count=1)
    plain.estimator.set_params(encoder=encoder, epochs=2)
    before = set((tmp_path / "cache").iterdir())
    plain.fit(X, y, sensitive_features=groups)
    assert set((tmp_path / "cache").iterdir()) == before  # the same split: computed once


@needs_tarte
def test_it_works_in_a_pipeline_under_the_dial(official: dict[str, str]) -> None:
    rows = load_compas()
    X, y, groups = rows.X.iloc[:500], rows.y[:500], rows.groups[:500]
    scorer = make_pipeline(TarteEncoder(**official), LogisticRegression(max_iter=2000))
    model = FairBayes(scorer, random_state=0, min_count=1)
    model.fit(X, y, sensitive_features=groups)
    decisions = model.predict(X, sensitive_features=groups, tolerance=0.05)
    assert 0 < decisions.mean() < 1


@needs_tarte
def test_a_network_takes_it_as_its_encoder(official: dict[str, str]) -> None:
    rows = load_compas()
    X, y, groups = rows.X.iloc[:300], rows.y[:300], rows.groups[:300]
    network = Network(encoder=TarteEncoder(**official), members=1, epochs=2)
    model = FairBayes(network, random_state=0, min_count=1)
    model.fit(X, y, sensitive_features=groups)
    assert model.encoder_ is not network.encoder  # cloned, and fitted on training rows
    assert not hasattr(network.encoder, "vectors_")
    assert len(model.predict(X, sensitive_features=groups)) == 300


@needs_tarte
def test_the_benchmark_runs() -> None:
    script = Path(__file__).parent.parent / "benchmarks" / "tarte.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick"], capture_output=True, text=True, check=True
    )
    assert "| read from the cache" in done.stdout
