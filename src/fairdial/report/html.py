"""Draw the facts of a report as one HTML page without scripts and without other files."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairdial.errors import InvalidInputError
from fairdial.report import pictures, words
from fairdial.report.words import called, count, level_text, limit, markup, percent, points

Json = Mapping[str, Any]
STYLE = Path(__file__).with_name("report.css")
RATES = {"true_positive_rate": 1, "false_positive_rate": 0}


def render_report(facts: Json) -> str:
    """Return a report as one HTML text that needs no network and runs no scripts.

    Parameters
    ----------
    facts : dict
        The result of :func:`fairdial.report.report_data`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.report import render_report, report_data
    >>> sample = make_gaussian(4_000, random_state=0)
    >>> model = FairBayes(LogisticRegression(), tolerance=0.05, random_state=0)
    >>> model = model.fit(sample.X, sample.y, sensitive_features=sample.groups)
    >>> page = render_report(report_data(model, name="Loans 2026"))
    >>> "<title>Loans 2026</title>" in page, "://" in page
    (True, False)
    """
    if facts.get("format") != "fairdial.report" or facts.get("version") != 1:
        raise InvalidInputError("facts", "be those of report_data")
    style = STYLE.read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'"
    sections: list[tuple[str, Callable[[Json], str]]] = [
        ("What is decided, and by what", _model),
        ("The data", _data),
        ("What should be equal", _criterion),
        ("The setting in use, group by group", _setting),
        ("What holds for people in general", _certificate),
        ("Who is affected", _affected),
        ("What other limits would do", _frontier),
        ("History of the limit", _history),
        ("What this report can't say", lambda facts: _bullets(words.limits(facts))),
        ("How to check it", _reproduce),
    ]
    body = "".join(
        f'<section aria-labelledby="s{i}"><h2 id="s{i}">{i}. {title}</h2>{draw(facts)}</section>'
        for i, (title, draw) in enumerate(sections, 1)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{markup(facts['name'])}</title><style>{style}</style></head><body><main>"
        f'<p class="kind">Audit report of an automated decision</p><h1>{markup(facts["name"])}</h1>'
        f"{_short(facts)}{body}</main></body></html>\n"
    )


# ---- pieces ------------------------------------------------------------------------------------


def _p(text: str) -> str:
    return f"<p>{markup(text)}</p>" if text else ""


def _bullets(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{markup(line)}</li>' for line in lines)}</ul>"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]], caption: str) -> str:
    """Return a table; the first cell of each line names it."""
    heads = "".join(f'<th scope="col">{markup(name)}</th>' for name in head)
    rows = "".join(
        f'<tr><th scope="row">{markup(line[0])}</th>'
        + "".join(f"<td>{markup(cell)}</td>" for cell in line[1:])
        + "</tr>"
        for line in lines
    )
    return (
        f'<div class="wide"><table><caption>{markup(caption)}</caption><thead><tr>{heads}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _definitions(lines: Mapping[str, str | None]) -> str:
    found = "".join(
        f"<div><dt>{markup(name)}</dt><dd>{markup(value)}</dd></div>"
        for name, value in lines.items()
        if value
    )
    return f"<dl>{found}</dl>"


# ---- sections ----------------------------------------------------------------------------------


def _short(facts: Json) -> str:
    cautions = "".join(f'<p class="caution">{markup(t)}</p>' for t in words.cautions(facts))
    return (
        f'<section class="short" aria-labelledby="s0"><h2 id="s0">In short</h2>'
        f"{_pictures(facts)}{_bullets(words.in_short(facts))}{cautions}</section>"
    )


def _pictures(facts: Json) -> str:
    """Return a pair of pictures for each demand: without a limit, and with the one in use."""
    groups = facts["groups"]
    if len(groups) < 2 or len(groups) > pictures.MOST_BARS:
        return ""
    here, unlimited, people = words.shown_rows(facts)
    rows = facts["rows"]
    if len(facts["criterion"]["demands"]) != len(here["demands"]):
        return ""  # the data lack a stratum
    sizes = [line["eligible"] for line in facts["calibration"]["groups"]]
    found = []
    demands = zip(facts["criterion"]["demands"], here["demands"], unlimited["demands"], strict=True)
    for demand, now, before in demands:
        eligible = sizes if rows is None else now["eligible"]
        if eligible is None:
            eligible = [line["rows"] for line in here["groups"]]
        if len(now["rates"]) != len(groups):
            continue  # rates within strata are in the tables
        allowed = facts["setting"]["tolerance"] * demand["scale"]
        note = f" (allowed: {limit(allowed)})" if demand["spread"] == "difference" else ""
        level = [demand["level"]] if demand["spread"] in ("minimum", "maximum") else []
        top = pictures.top_of([*before["rates"], *now["rates"], *level])
        pair = [
            pictures.bars(groups, line["rates"], eligible, name, demand, line["gap"], top, text)
            for line, name, text in (
                (before, "Without a limit", ""),
                (now, "With the limit in use", note),
            )
        ]
        found.append(
            f"<figure><figcaption>{markup(demand['heading'])} ({markup(people)})</figcaption>"
            f'<div class="pair">{"".join(pair)}</div></figure>'
        )
    return "".join(found)


def _model(facts: Json) -> str:
    model, labels = facts["model"], facts["labels"]
    sees = {True: "yes", False: "no", None: "unknown: it depends on the features"}
    proxies = model["proxies"]
    lines: dict[str, str | None] = {
        "Selected means": f"the model predicts “{labels['positive']}”, not “{labels['negative']}”",
        "Label in the data": None
        if model["label"] is None
        else f"{model['label']}: {model['positive']} or {model['negative']}",
        "Method": f"{model['asked'] or model['method'] or 'unknown'} ({model['estimator']})",
        "Why this method": None
        if model["chosen"] is None
        else f"{model['chosen']}. {model['why']}",
        "Training": None
        if model["training_rows"] is None
        else f"on {count(model['training_rows'])} rows, ended {model['trained']} (UTC)",
        "Groups are read from": ", ".join(model["sensitive"]) or "a list beside the data",
        "People without a group": model["missing_group"],
        "Small groups were merged into": model["merged_groups"],
        "Does the scorer see the group?": sees[model["sees_group"]],
        "Does the decision depend on the group?": "no, but on how likely the features make it"
        if model["blind"]
        else "yes: each group has its own threshold"
        if facts["setting"]["kind"] == "thresholds" and len(facts["groups"]) > 1
        else None,
        "Can the features tell the groups apart?": None if proxies is None else _proxies(proxies),
        "Features": None if model["features"] is None else ", ".join(model["features"]),
    }
    if model["training_rows"] is None:
        lines["Training"] = "elsewhere; when, and on how many rows, is unknown"
    return _definitions(lines)


def _proxies(proxies: Json) -> str:
    alone = ", ".join(f"{name} {percent(value)}" for name, value in proxies["columns"].items())
    text = (
        f"they recognize {percent(proxies['together'])} on average over the groups; guessing "
        f"recognizes {percent(proxies['chance'])}"
    )
    return f"{text}. Alone: {alone}" if alone else text


def _data(facts: Json) -> str:
    found, rows = facts["calibration"], facts["rows"]
    what = "rows with a total weight of " if found["weighted"] else ""
    text = (
        f"The thresholds were found on {what}{found['rows']} calibration rows. Eligible people are "
        "those that the criterion is about."
    )
    head = ["Group", "People", "Eligible"]
    positive = found["labeled"]
    if positive:
        head.append(f"Labeled “{facts['labels']['positive']}”")
    lines = [
        [called(group), count(line["rows"]), count(line["eligible"])]
        + ([percent(line["positive"])] if positive else [])
        for group, line in zip(facts["groups"], found["groups"], strict=True)
    ]
    parts = [_p(text), _table(head, lines, "Calibration rows")]
    if rows is None:
        parts.append(_p("No other rows were given to measure the decisions on."))
    else:
        left = f" {count(rows['left_out'])} rows were left out." if rows["left_out"] else ""
        parts.append(
            _p(
                f"The decisions were measured on {count(rows['rows'])} rows of {rows['name']}."
                f"{left} This report takes for granted that they had no part in training or "
                "calibration."
            )
        )
    return "".join(parts)


def _criterion(facts: Json) -> str:
    criterion = facts["criterion"]
    parts = [_p(f"{criterion['title']}. {criterion['meaning']}")]
    budget = facts["budget"]
    if facts["calibration"]["strata"] > 1:
        parts.append(_p(f"This holds within each of {facts['calibration']['strata']} strata."))
    text = f"Among the settings that keep the limit, the one with the best {facts['objective']} "
    text += "on the calibration rows is used."
    if budget is not None:
        how = "As many as possible, up to" if budget["exact"] else "At most"
        text += f" {how} {percent(budget['share'])} of all people are selected."
    parts.append(_p(text))
    if facts["lottery"]:
        parts.append(_p("Near the thresholds a lottery decides, by a hash of each row."))
    moves = "As the limit gets lower, each person's decision changes at most once."
    if not facts["nested"]:
        moves = "As the limit gets lower, a person's decision may change and change back."
    return "".join([*parts, _p(moves)])


def _setting(facts: Json) -> str:
    setting, rows = facts["setting"], facts["rows"]
    parts = [_groups_table(facts, setting["here"], setting["unlimited"], "Calibration rows")]
    if rows is not None:
        parts.append(_groups_table(facts, rows["here"], rows["unlimited"], str(rows["name"])))
    demands = facts["criterion"]["demands"]
    if len(demands) > 1:
        lines = [
            [demand["title"], points(now["gap"]), _allowed(demand, setting["tolerance"])]
            for demand, now in zip(demands, setting["here"]["demands"], strict=True)
        ]
        parts.append(_table(["Demand", "Gap", "Allowed"], lines, "Every demand, calibration rows"))
    if setting["kind"] == "family":
        parts.append(_p("One of several trained models decides; it was chosen by the limit."))
    return "".join(parts)


def _allowed(demand: Json, tolerance: float) -> str:
    return limit(demand["scale"] * tolerance)


def _groups_table(facts: Json, here: Json, unlimited: Json, caption: str) -> str:
    labels = facts["labels"]
    names = {
        name: f"Selected of “{labels['positive' if kind else 'negative']}”"
        for name, kind in RATES.items()
        if any(line[name] is not None for line in here["groups"])
    }
    head = ["Group", "People", "Selected", "without a limit"]
    for name in names.values():
        head += [name, "without a limit"]
    lines = []
    for group, now, before in zip(
        facts["groups"], here["groups"], unlimited["groups"], strict=True
    ):
        line = [called(group), count(now["rows"]), _share(now), _share(before)]
        for name in names:
            line += [percent(now[name]), percent(before[name])]
        lines.append(line)
    return _table(head, lines, caption)


def _share(line: Json) -> str:
    return percent(line["selected"] / line["rows"] if line["rows"] else None)


def _certificate(facts: Json) -> str:
    first, *rest = words.certificate(facts)
    found = [f'<p class="statement">{markup(first)}</p>', *map(_p, rest)]
    rows = facts["rows"]
    if rows is not None and rows["here"]["gap_interval"] is not None and len(facts["groups"]) > 1:
        found.append(
            _p(
                "Independently of that, the intervals measured on the data hold for these very "
                "decisions if the data are a fair sample of the people decided on."
            )
        )
    return "".join(found)


def _affected(facts: Json) -> str:
    rows = facts["rows"]
    found = [_p(words.affected(facts))]
    sources = [("Calibration rows", facts["affected"])]
    if rows is not None:
        sources.append((str(rows["name"]), rows["affected"]))
    for caption, lines in sources:
        if any(line["gained"] is None for line in lines):
            continue
        cells = [
            [called(group), count(line["gained"]), count(line["lost"])]
            for group, line in zip(facts["groups"], lines, strict=True)
        ]
        found.append(_table(["Group", "Newly selected", "No longer selected"], cells, caption))
    return "".join(found)


def _frontier(facts: Json) -> str:
    found, used = facts["frontier"], facts["setting"]["here"]
    drawn = pictures.frontier(found["curve"], used)
    few = len(facts["groups"]) <= 8
    head = ["Largest gap allowed", "Gap measured", "Correct"]
    head += [f"Selected: {called(group)}" for group in facts["groups"]] if few else []
    lines = []
    for line in found["table"]:
        tolerance = line["tolerance"]
        note = " (in use)" if tolerance == used["tolerance"] else ""
        gap = points(line["gap"], tolerance) + ("" if line["feasible"] else " (not reached)")
        shares = map(percent, line["selected"]) if few else ()
        shown = limit(tolerance) if note or line is not found["table"][-1] else "no limit"
        lines.append([shown + note, gap, percent(line["accuracy"]), *shares])
    text = "All figures were measured on the calibration rows, in percentage points and percent. "
    text += "The last line is the model without a limit."
    figure = "" if drawn is None else f"<figure>{drawn}</figure>"
    return _p(text) + figure + _table(head, lines, "Limits and what they would do")


def _history(facts: Json) -> str:
    history = facts["history"]
    if history is None:
        return _p(
            "There is no audit log: the model was not served by fairdial, or its log was not "
            "given. Who set the limit, and why, is not recorded here."
        )
    lines = []
    for entry in history["entries"]:
        new, gap = entry["new"], entry["gap"]
        level = "" if new["confidence"] is None else f", {level_text(new['confidence'])} confidence"
        lines.append(
            [
                f"{entry['version']}",
                entry["time"][:19].replace("T", " "),
                entry["who"],
                "none" if entry["old"] is None else limit(entry["old"]["tolerance"]),
                limit(new["tolerance"]) + level,
                "unknown" if gap is None else points(gap, new["tolerance"]),
                entry["reason"],
                entry["model"][:12],
            ]
        )
    head = ["No.", "When (UTC)", "Who", "From", "To", "Gap", "Reason", "Model"]
    shown = len(history["entries"])
    newest = "" if shown == history["total"] else f" These are the newest {shown:,}."
    text = (
        f"The audit log {history['file']} has {history['total']:,} entries, and every one matches "
        f"its hash.{newest} Names are what callers said about themselves."
    )
    other = [e for e in history["entries"] if e["model"] != facts["model"]["hash"]]
    if history["entries"][-1] in other:
        text += " The last change was made while another model was served than this one."
    return _p(text) + _table(head, lines, "Changes of the limit, in percentage points")


def _reproduce(facts: Json) -> str:
    model, rows, history = facts["model"], facts["rows"], facts["history"]
    lines = {
        "Model (SHA-256 of its manifest)": model["hash"] or "not saved",
        "Data": None if rows is None else str(rows["name"]),
        "Data (SHA-256 of the file)": None if rows is None else rows["sha256"],
        "Audit log, last hash": None if history is None else history["last_hash"],
        "Made with": facts["software"],
    }
    text = (
        "This report has no date of its own: it depends on the model, the data and the log only, "
        "so the same command writes the same bytes again."
    )
    command = "fairdial report MODEL"
    if rows is not None:
        command += f" {shlex.quote(str(rows['name']))}"
    if facts["setting"]["source"] == "given":
        command += f" --tolerance {facts['setting']['tolerance']!r}"
        if facts["setting"]["confidence"] is not None:
            command += f" --confidence {facts['setting']['confidence']!r}"
    if history is not None:
        command += f" --audit {shlex.quote(history['file'])}"
    command += " --out report.html"
    return _p(text) + f"<pre>{markup(command)}</pre>" + _definitions(lines)
