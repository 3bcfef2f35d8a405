"""The methods that the command line knows, as estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairdial.methods.base import DialClassifier

NETWORKS = ("fairbayes", "gfb", "epo", "fairbinn", "yoto")
MEASURED = ("epo", "fairbinn", "yoto")  # no thresholds: settings that decide by themselves
METHODS = ("boosting", "logistic", "blend", *NETWORKS, "auto")
DEFAULT = "boosting"


def make_model(
    method: str,
    *,
    texts: Sequence[str],
    seed: int,
    wide: bool = False,
    epochs: int | None = None,
    members: int | None = None,
    budget: float | None = None,
    recalibrate: bool = False,
    progress: bool = False,
    **common: Any,
) -> DialClassifier:
    """An estimator that isn't trained yet.

    Parameters
    ----------
    method : str
        One of ``METHODS``.
    texts : sequence of str
        Features that are text.
    seed : int
        Of the split, and of whatever the method draws.
    wide : bool
        Whether rows are many numbers each, which logistic regression takes as networks do.
    epochs, members : int, optional
        Of a network; its own by default.
    budget : float, optional
        Seconds for which "auto" tries candidates; its own by default.
    recalibrate : bool
        Whether each group's scores are corrected by a line first.
    progress : bool
        Whether a network shows a bar.
    common
        Arguments that all estimators take.

    Examples
    --------
    >>> from fairdial.cli.learners import make_model
    >>> model = make_model("boosting", texts=["job"], seed=0, tolerance=0.05)
    >>> type(model).__name__, model.tolerance
    ('FairBayes', 0.05)
    """
    from fairdial.methods.fairbayes import FairBayes
    from fairdial.methods.learners import blend, boosting, logistic

    if recalibrate:
        if method in MEASURED:
            raise InvalidInputError(
                f"--recalibrate is for methods with thresholds, got --method {method}."
            )
        common["recalibrate"] = "group"
    if budget is not None and method != "auto":
        raise InvalidInputError(f"--budget is for --method auto, got --method {method}.")
    asked = {"epochs": epochs, "members": members}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if method not in NETWORKS:
        if given:
            raise InvalidInputError(
                f"--{next(iter(given))} is for networks ({', '.join(NETWORKS)}), got --method "
                f"{method}."
            )
        if method == "auto":
            from fairdial.methods.auto import AutoDial

            own: dict[str, Any] = {} if budget is None else {"budget": budget}
            return AutoDial(random_state=seed, **own, **common)
        scorers = {
            "boosting": boosting(texts, seed),
            "logistic": logistic(wide=wide),
            "blend": blend(texts, seed, wide=wide),
        }
        return FairBayes(scorers[method], random_state=seed, **common)
    from fairdial.methods.epo import EPO
    from fairdial.methods.fairbinn import FairBiNN
    from fairdial.methods.gfb import GFB
    from fairdial.methods.network import Network
    from fairdial.methods.yoto import YOTO

    if method in ("epo", "fairbinn"):  # a net for each setting: one member is their default
        given = {"members": 1} | given
    network = Network(**given, verbose=progress)
    if method == "fairbayes":
        return FairBayes(network, random_state=seed, **common)
    kinds: dict[str, Any] = {"gfb": GFB, "epo": EPO, "fairbinn": FairBiNN, "yoto": YOTO}
    model: DialClassifier = kinds[method](network=network, random_state=seed, **common)
    return model


def asked_for(manifest: dict[str, Any]) -> str:
    """What --method was, where the command line trained; else the estimator's name."""
    training = manifest.get("training") or {}
    return str(training.get("asked") or manifest["method"])
