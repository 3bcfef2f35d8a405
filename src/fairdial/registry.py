"""The methods: what each is called, what it is, and how it is built.

A method is registered once, here or by :func:`register`. The command line, plans of studies,
saving and loading, model cards and AutoDial read the registry. Listing methods imports none of
them.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    from fairdial.core.criteria import Criterion
    from fairdial.estimators.base import DialClassifier

Kind = Literal["learner", "network", "family", "auto"]
Option = Literal["epochs", "members", "recalibrate", "time_limit"]
NETWORK_OPTIONS: tuple[Option, ...] = ("epochs", "members")
COMMON = (  # constructor parameters of every method
    "criterion",
    "tolerance",
    "calibration",
    "min_count",
    "pos_label",
    "sensitive_column",
    "random_state",
)
LIBRARIES = {"lightgbm": "LightGBM", "xgboost": "XGBoost", "catboost": "CatBoost"}
DIAL = (
    "objective",
    "budget",
    "nested",
    "rising",
    "randomize",
    "groups",
    "blind",
)  # of methods with thresholds
THRESHOLD_METHODS = "methods with thresholds"
THRESHOLDS = (
    "scores each row by {scorer} and selects rows above the threshold of their group; the "
    "tolerance sets the thresholds"
)


@dataclass(frozen=True)
class Spec:
    """What a method is built for: its seed, columns of text, and whether rows are embeddings.

    ``network`` holds arguments of :class:`~fairdial.Network`, ``options`` those of the estimator.
    """

    seed: int | None = None
    texts: Sequence[Hashable] = ()
    wide: bool = False
    network: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """One method.

    Attributes
    ----------
    name : str
        Name on the command line (``--method``).
    estimator : str
        Name of its class, in plans of studies and saved models.
    load : callable
        Imports and returns the class.
    description : str
        One sentence for help texts.
    decides : str
        How it decides, for the model card: continues "It"; ``{scorer}`` stands for the scorer.
    kind : {"learner", "network", "family", "auto"}
        A classifier wrapped in FairBayes, a network with thresholds, a family of models, or a
        choice among methods.
    build : callable, optional
        Returns an unfitted estimator for a :class:`Spec`; by default the class with its options.
    options : tuple of str
        The options among "epochs", "members", "recalibrate" and "time_limit" that apply.
    scorers : tuple of str
        Kinds of scorers that a saved model of this class may have.
    types : tuple of type
        Your own classes that the fitted scorer consists of; loading trusts them.
    equalizes : bool
        Whether its training makes rates equal: it needs a criterion that compares one rate of
        selected rows, or equalized odds.
    trees : bool
        Whether it grows trees.
    library : str, optional
        Library that it needs, and the extra of that name. AutoDial tries it only if it is named.
    candidate : str, optional
        Name among AutoDial's candidates, which are tried in the order of registration.
    complexity : int
        Rank among the candidates; AutoDial prefers simple ones.

    Examples
    --------
    >>> from fairdial.registry import find
    >>> find("gfb").estimator, find("gfb").needs_torch
    ('GFB', True)
    """

    name: str
    estimator: str
    load: Callable[[], type[DialClassifier]]
    description: str
    decides: str = THRESHOLDS
    kind: Kind = "learner"
    build: Callable[[Spec], DialClassifier] | None = None
    options: tuple[Option, ...] = ()
    scorers: tuple[str, ...] = ("plain", "estimators", "averaged", "object")
    types: tuple[type, ...] = ()
    equalizes: bool = False
    trees: bool = False
    library: str | None = None
    candidate: str | None = None
    complexity: int = 0

    @property
    def needs_torch(self) -> bool:
        """Whether it trains a network."""
        return "epochs" in self.options

    def refuses(self, criterion: Criterion) -> bool:
        """Return whether it can't be trained for a criterion."""
        from fairdial.estimators.gfb import compared

        return self.equalizes and compared(criterion) is None

    def make(
        self,
        *,
        seed: int | None = None,
        texts: Sequence[Hashable] = (),
        wide: bool = False,
        epochs: int | None = None,
        members: int | None = None,
        time_limit: float | None = None,
        recalibrate: bool = False,
        network: Mapping[str, Any] | None = None,
        **common: Any,
    ) -> DialClassifier:
        """Return an estimator that isn't trained yet.

        Options that don't apply to the method raise an error. ``network`` holds further arguments
        of the network, if there is one; ``common`` are arguments that all estimators take, or all
        with thresholds (``objective``, ``budget``, ``nested``, ``rising``, ``randomize``,
        ``groups``), or FairBayes (``blind``).

        Examples
        --------
        >>> from fairdial.registry import find
        >>> model = find("boosting").make(texts=["job"], seed=0, tolerance=0.05)
        >>> type(model).__name__, model.tolerance
        ('FairBayes', 0.05)
        """
        given = {
            "epochs": epochs,
            "members": members,
            "time_limit": time_limit,
            "recalibrate": "group" if recalibrate else None,
        }
        given = {name: value for name, value in given.items() if value is not None}
        for name in given:
            if name not in self.options:
                others = [m.name for m in methods() if name in m.options]
                raise InvalidInputError(
                    name, f"be left out for the method {self.name}: it is for {', '.join(others)}"
                )
        for name in [name for name in DIAL if name in common]:
            if name not in inspect.signature(self.load()).parameters:
                which = "classifiers that FairBayes wraps" if name == "blind" else THRESHOLD_METHODS
                raise InvalidInputError(
                    name, f"be left out for the method {self.name}: it is for {which}"
                )
        settings = {name: given.pop(name) for name in NETWORK_OPTIONS if name in given}
        spec = Spec(seed, texts, wide, settings | dict(network or {}), common | given)
        if self.build is not None:
            return self.build(spec)
        kind = self.load()
        check_constructor(kind, spec.options)
        return kind(random_state=seed, **spec.options)


def check_constructor(kind: type, more: Iterable[str] = ()) -> None:
    """Raise if the constructor of a method lacks parameters that every method has, or others."""
    accepted = inspect.signature(kind).parameters
    missing = [name for name in dict.fromkeys((*COMMON, *more)) if name not in accepted]
    if missing:
        raise InvalidInputError(
            "load",
            f"return a class whose constructor takes {', '.join(COMMON)}",
            given=f"{kind.__name__} without {', '.join(missing)}",
        )


# ---- the registry ------------------------------------------------------------------------------


def register(method: Method) -> Method:
    """Register your own method for saving and loading, studies and the command line.

    Parameters
    ----------
    method : Method
        Its name and the name of its class must differ from those of the library's methods.
        Registering a name again replaces the method.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from fairdial import FairBayes
    >>> from fairdial.registry import Method, find, register
    >>> class Bayes(FairBayes):
    ...     def _parts(self):
    ...         return [GaussianNB()]
    >>> method = register(Method("bayes", "Bayes", lambda: Bayes, "Naive Bayes."))
    >>> type(find("bayes").make(seed=0)).__name__
    'Bayes'
    """
    if not re.fullmatch(r"[\w-]+", method.name):
        raise InvalidInputError(
            "name", "consist of letters, digits, - and _", given=repr(method.name)
        )
    for known in methods():
        if known.name == method.name and known not in BUILT_IN:
            continue  # registered again, as when a notebook cell is run twice
        for attribute in ("name", "estimator", "candidate"):
            value = getattr(method, attribute)
            if value is not None and value == getattr(known, attribute):
                raise InvalidInputError(
                    attribute, "be new", given=f"{value!r}, as of the method {known.name!r}"
                )
    _METHODS[method.name] = method
    return method


def load_plugin(module: str, folder: str | None = None) -> None:
    """Import a module that registers methods or data sets.

    It is also searched in the folder, by default the current one, but after the installed packages,
    so that no file there can replace one of them. Workers that the process starts load it too
    (:func:`plugins`).
    """
    folder = folder or os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the plugin imports
        raise InvalidInputError(
            "plugin", "be a module that can be imported", given=f"{module!r} ({error})"
        ) from error
    _PLUGINS[module] = folder


def plugins() -> dict[str, str]:
    """Return the plugins that were loaded, and the folder of each."""
    return dict(_PLUGINS)


def load_plugins(modules: Mapping[str, str]) -> None:
    """Load the :func:`plugins` of another process."""
    for module, folder in modules.items():
        load_plugin(module, folder)


def methods() -> tuple[Method, ...]:
    """Return all methods, in the order of registration."""
    return tuple(_METHODS.values())


def names() -> tuple[str, ...]:
    """Return the names of all methods."""
    return tuple(_METHODS)


def find(name: str) -> Method:
    """Return the method with this name."""
    if name not in _METHODS:
        raise InvalidInputError("method", f"be one of {', '.join(_METHODS)}", given=repr(name))
    return _METHODS[name]


def candidates() -> dict[str, Method]:
    """Return AutoDial's candidates by name, in the order in which they are tried."""
    return {m.candidate: m for m in methods() if m.candidate is not None}


def method_of(estimator: str | type) -> Method | None:
    """Return a registered method of a class, given or by name; None if there is none."""
    name = estimator if isinstance(estimator, str) else estimator.__name__
    for method in methods():
        if method.estimator == name and (name == estimator or method.load() is estimator):
            return method
    return None


# ---- the library's methods ---------------------------------------------------------------------


def _fairbayes() -> type[DialClassifier]:
    from fairdial.estimators.fairbayes import FairBayes

    return FairBayes


def _gfb() -> type[DialClassifier]:
    from fairdial.estimators.gfb import GFB

    return GFB


def _epo() -> type[DialClassifier]:
    from fairdial.paper.epo import EPO

    return EPO


def _fairbinn() -> type[DialClassifier]:
    from fairdial.paper.fairbinn import FairBiNN

    return FairBiNN


def _yoto() -> type[DialClassifier]:
    from fairdial.paper.yoto import YOTO

    return YOTO


def _autodial() -> type[DialClassifier]:
    from fairdial.estimators.auto import AutoDial

    return AutoDial


def _learner(name: str) -> Callable[[Spec], DialClassifier]:
    """Return a builder of FairBayes with a learner."""

    def build(spec: Spec) -> DialClassifier:
        from fairdial.estimators import learners
        from fairdial.estimators.fairbayes import FairBayes
        from fairdial.nn.network import Network

        makers: dict[str, Callable[[], object]] = {
            "boosting": lambda: learners.boosting(spec.texts, spec.seed),
            "logistic": lambda: learners.logistic(wide=spec.wide),
            "blend": lambda: learners.blend(spec.texts, spec.seed, wide=spec.wide),
            "network": lambda: Network(**spec.network),
            **{library: partial(learners.booster, library, spec.seed) for library in LIBRARIES},
        }
        return FairBayes(makers[name](), random_state=spec.seed, **spec.options)

    return build


def _with_network(
    load: Callable[[], type[DialClassifier]], **defaults: Any
) -> Callable[[Spec], DialClassifier]:
    """Return a builder of a class with a ``network`` argument."""

    def build(spec: Spec) -> DialClassifier:
        from fairdial.nn.network import Network

        network = Network(**{**defaults, **spec.network})
        return load()(network=network, random_state=spec.seed, **spec.options)

    return build


_classifier = partial(
    Method,
    estimator="FairBayes",
    load=_fairbayes,
    options=("recalibrate",),
    scorers=("plain", "estimators", "averaged", "blind", "net"),
)
_booster = partial(_classifier, trees=True, complexity=2)
_family = partial(Method, kind="family", options=NETWORK_OPTIONS)
BUILT_IN = (
    _classifier(
        name="boosting",
        description="Gradient boosting with small trees, with group thresholds on top.",
        build=_learner("boosting"),
        trees=True,
        candidate="boosting",
        complexity=2,
    ),
    _classifier(
        name="logistic",
        description="Logistic regression, with group thresholds on top.",
        build=_learner("logistic"),
        candidate="logistic",
        complexity=1,
    ),
    _classifier(
        name="blend",
        description="The average of boosting and logistic.",
        build=_learner("blend"),
        trees=True,
        candidate="blend",
        complexity=3,
    ),
    *(
        _booster(
            name=library,
            description=f"{title}, with group thresholds on top.",
            build=_learner(library),
            library=library,
            candidate=library,
        )
        for library, title in LIBRARIES.items()
    ),
    _classifier(
        name="fairbayes",
        description="A network with plain training, with group thresholds on top.",
        kind="network",
        build=_learner("network"),
        options=(*NETWORK_OPTIONS, "recalibrate"),
        candidate="network",
        complexity=4,
    ),
    Method(
        name="gfb",
        estimator="GFB",
        load=_gfb,
        description="A network trained for all tolerances (the paper's method), with group "
        "thresholds on top.",
        decides=THRESHOLDS.format(scorer="a network that was trained for all tolerances"),
        kind="network",
        build=_with_network(_gfb),
        options=(*NETWORK_OPTIONS, "recalibrate"),
        scorers=("net",),
        equalizes=True,
        candidate="gfb",
        complexity=5,
    ),
    _family(
        name="epo",
        estimator="EPO",
        load=_epo,
        description="A network for each of several proportions of prediction loss and gap.",
        decides="is a network for each of several proportions of prediction loss and gap; the "
        "tolerance chooses among them",
        build=_with_network(_epo, members=1),
        scorers=("runs",),
    ),
    _family(
        name="fairbinn",
        estimator="FairBiNN",
        load=_fairbinn,
        description="A network for each of several weights of the gap.",
        decides="is a network for each of several weights of the gap; the tolerance chooses among "
        "them",
        build=_with_network(_fairbinn, members=1),
        scorers=("runs",),
    ),
    _family(
        name="yoto",
        estimator="YOTO",
        load=_yoto,
        description="One network that takes the weight of the gap as an input.",
        decides="is one network that takes the weight of the gap as an input; the tolerance "
        "chooses the weight",
        build=_with_network(_yoto),
        scorers=("film",),
    ),
    Method(
        name="auto",
        estimator="AutoDial",
        load=_autodial,
        description="The simplest of the methods that are about as good as the best on "
        "validation rows.",
        kind="auto",
        options=("recalibrate", "time_limit"),
        scorers=(),
    ),
)
_PLUGINS: dict[str, str] = {}
_METHODS: dict[str, Method] = {method.name: method for method in BUILT_IN}
