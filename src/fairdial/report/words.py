"""The sentences of a report, from its facts: plain words for people who don't program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

Json = Mapping[str, Any]

FEW = 30  # people of a group, below which its rate says little
SOURCES = {
    "given": "It was given when this report was made.",
    "log": "It is the last entry of the audit log.",
    "default": "It is the model's default; there is no audit log.",
}
CONDITION = (
    "This holds if the people decided on come from the same population as the calibration rows and "
    "independently of each other, if there is one row for each person, and if the calibration rows "
    "had no part in training. It says nothing about a population that has changed since."
)
DECLARED = "It also needs a limit that was chosen before anybody looked at these figures."
NO_BOUND = {
    "seen": "the model was trained on the calibration rows, or its scores depend on them",
    "weighted": "the calibration rows are weighted",
    "lottery": "a lottery decides near the thresholds",
    "demand": "there is no such proof for this criterion",
}


def points(value: float | None, above: float | None = None) -> str:
    """Return a share as percentage points, with more decimals where a limit is exceeded by little.

    Examples
    --------
    >>> from fairdial.report.words import points
    >>> points(0.0481), points(0.05001, above=0.05), points(None)
    ('4.8', '5.001', 'not met')
    """
    if value is None:
        return "not met"
    text = f"{100 * value:.1f}"
    for decimals in range(2, 12):
        if above is None or value <= above or float(text) > 100 * above:
            break
        text = f"{100 * value:.{decimals}f}"
    return text


def limit(tolerance: float) -> str:
    """Return a tolerance as percentage points, without decimals that it doesn't have."""
    text = f"{100 * tolerance:.4f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return "unknown" if value is None else f"{100 * value:.1f}%"


def level_text(value: float) -> str:
    """Return a confidence level as a percentage."""
    return f"{100 * value:.10g}%"


def count(value: float | None) -> str:
    """Return a number of people; sums of weights have a decimal."""
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def markup(value: object) -> str:
    r"""Return text for HTML; characters that can't be seen are written as escapes.

    Examples
    --------
    >>> from fairdial.report.words import markup
    >>> markup("a < b\x1b")
    'a &lt; b\\x1b'
    """
    shown = "".join(x if x.isprintable() else repr(x)[1:-1] for x in " ".join(str(value).split()))
    return escape(shown)


def called(group: Json) -> str:
    """Return what the report calls a group."""
    return str(group["people"] or group["name"])


def listed(names: Sequence[str]) -> str:
    """Return names with commas and an "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shown_rows(facts: Json) -> tuple[Json, Json, str]:
    """Return the figures with and without the limit, and whose: fresh rows if there are some."""
    rows = facts["rows"]
    if rows is not None:
        return rows["here"], rows["unlimited"], f"the {count(rows['rows'])} people of the data"
    setting = facts["setting"]
    people = f"the {facts['calibration']['rows']} people of the calibration rows"
    return setting["here"], setting["unlimited"], people


def in_short(facts: Json) -> list[str]:
    """Return what a reader with one minute should know."""
    labels, setting = facts["labels"], facts["setting"]
    rule = (
        f"A model decides about people: a person is selected if it predicts "
        f"“{labels['positive']}”. {facts['criterion']['meaning']}"
    )
    tolerance = limit(setting["tolerance"])
    found = [rule, f"The largest gap allowed is {tolerance} percentage points. {_source(facts)}"]
    found.append(_measured(facts))
    found.append(certificate(facts)[0])
    found.append(affected(facts))
    found.append(_accuracy(facts))
    return [text for text in found if text]


def _source(facts: Json) -> str:
    setting = facts["setting"]
    text = SOURCES[setting["source"]]
    if setting["source"] == "log":
        last = facts["history"]["entries"][-1]
        text = f"{last['who']} set it on {last['time'][:10]}; reason: {last['reason']}."
    if setting["confidence"] is not None:
        text += f" It must hold for new people with {level_text(setting['confidence'])} confidence."
    return text


def _measured(facts: Json) -> str:
    here, unlimited, people = shown_rows(facts)
    tolerance = facts["setting"]["tolerance"]
    if len(facts["groups"]) == 1:
        return "There is only one group, so there is no gap."
    text = f"Measured on {people}, the gap is {points(here['gap'], tolerance)} percentage points"
    if here["gap"] is None:
        text = f"Measured on {people}, a limit is not met whatever gap is allowed"
    elif here["gap"] <= tolerance:
        text += ", within the limit"
    else:
        text += f", above the limit of {limit(tolerance)}"
    if unlimited["gap"] is not None:
        text += f"; without a limit it is {points(unlimited['gap'])}"
    rows = facts["rows"]
    if rows is None:
        why = "" if facts["setting"]["here"]["feasible"] else " No setting of the model meets it."
        return f"{text}.{why} These people were used to find the thresholds."
    return f"{text}. {_verdict(facts)}"


def _verdict(facts: Json) -> str:
    rows = facts["rows"]
    interval = rows["here"]["gap_interval"]
    if interval is None:
        return ""
    low, high = interval
    end = "unlimited" if high is None else points(high)
    text = (
        f"For people in general it is between {points(low)} and {end} points with "
        f"{level_text(rows['level'])} confidence"
    )
    return {
        "within": f"{text}: this shows that the limit is kept.",
        "above": f"{text}: this shows that the limit is exceeded.",
        "undecided": f"{text}: these are too few people to tell whether the limit is kept.",
    }[rows["verdict"]]


def _accuracy(facts: Json) -> str:
    here, unlimited, people = shown_rows(facts)
    if here["accuracy"] is None:
        return "The true labels are unknown, so it is unknown how many decisions are correct."
    text = f"Of the decisions on {people}, {percent(here['accuracy'])} are correct"
    text += f"; without a limit {percent(unlimited['accuracy'])} would be."
    interval = here.get("accuracy_interval")
    if interval is not None:
        text += f" ({level_text(facts['rows']['level'])} interval: {percent(interval[0])} to "
        text += f"{percent(interval[1])}.)"
    return text


def affected(facts: Json) -> str:
    """Return how many decisions the limit changes."""
    rows = facts["rows"]
    lines = facts["affected"] if rows is None else rows["affected"]
    people = shown_rows(facts)[2]
    if any(line["gained"] is None for line in lines):
        return f"How many decisions the limit changes isn't known exactly for {people}."
    gained, lost = (sum(line[name] for line in lines) for name in ("gained", "lost"))
    if not gained + lost:
        return f"Compared with no limit, no decision changes among {people}."
    new = "1 is newly selected" if gained == 1 else f"{count(gained)} are newly selected"
    old = "1 no longer is" if lost == 1 else f"{count(lost)} no longer are"
    changed = gained + lost
    verb = "decision is" if changed == 1 else "decisions are"
    return (
        f"Compared with no limit, {count(changed)} {verb} different among {people}: {new}, {old}."
    )


def certificate(facts: Json) -> list[str]:
    """Return what is proved about people in general, as one sentence, and its conditions."""
    found = facts["certificate"]
    level, kind = level_text(found["level"]), found["kind"]
    if kind == "one group":
        return ["There is only one group, so nothing needs to be guaranteed."]
    if kind == "certified":
        conditions = [CONDITION, DECLARED] if found["declared"] else [CONDITION]
        return [
            f"Guaranteed with {level} confidence: among new people the gap is at most "
            f"{points(found['bound'])} percentage points (theorem {found['theorem']} of fairdial).",
            *conditions,
        ]
    if kind == "none":
        return [f"Nothing is guaranteed for new people, because {NO_BOUND[found['reason']]}."]
    first = "The limit is not guaranteed for new people: it was met on the calibration rows only, "
    first += "and among other people the gap may be larger."
    if found["any"] is not None:
        first += f" With {level} confidence it is at most {points(found['any'])} points."
    return [first, _offer(facts), CONDITION]


def _offer(facts: Json) -> str:
    found, tolerance = facts["certificate"], limit(facts["setting"]["tolerance"])
    level = level_text(found["level"])
    if found["kind"] == "offered":
        offer = found["offer"]
        gap = points(offer["gap"])
        text = (
            f"A stricter setting would be guaranteed to stay within {tolerance} points with "
            f"{level} confidence; its gap on the calibration rows is {gap}"
        )
        if offer["accuracy"] is not None:
            text += f", and {percent(offer['accuracy'])} of its decisions are correct"
        return f"{text}." + (f" {DECLARED}" if offer["declared"] else "")
    refused = found["refused"]
    text = f"No setting can be guaranteed to stay within {tolerance} points with {level} confidence"
    if refused["group"] is not None:
        names = {group["name"]: called(group) for group in facts["groups"]}
        group = names.get(refused["group"], refused["group"])
        text += f", because only {count(refused['group_rows'])} {group} were measured"
    if refused["smallest"] is not None:
        text += f"; the smallest limit that can is {points(refused['smallest'])} points"
    if refused["rows_needed"] is not None:
        text += f". About {count(refused['rows_needed'])} calibration rows like these are enough"
    return f"{text}."


def cautions(facts: Json) -> list[str]:
    """Return what to read with care: small groups, groups that the data lack, limits not met."""
    found = []
    small = [
        called(group)
        for group, line in zip(facts["groups"], facts["calibration"]["groups"], strict=True)
        if line["eligible"] < FEW
    ]
    rows = facts["rows"]
    if small:
        found.append(
            f"Fewer than {FEW} eligible people of {listed(small)} were calibrated on: read little "
            "into their rates."
        )
    if rows is not None:
        few = [
            called(group)
            for group, line in zip(facts["groups"], rows["here"]["groups"], strict=True)
            if 0 < line["rows"] < FEW
        ]
        if few:
            found.append(
                f"The data have fewer than {FEW} people of {listed(few)}: read little into "
                "their rates."
            )
        if rows["absent"]:
            found.append(
                f"The data have nobody of {listed(rows['absent'])}, so they can't show that the "
                "limit is kept."
            )
    if not facts["setting"]["here"]["feasible"]:
        found.append(
            "No setting of the model meets this limit on the calibration rows: the one with the "
            "smallest gap is used."
        )
    return found


def limits(facts: Json) -> list[str]:
    """Return what this report can't say."""
    model = facts["model"]
    found = [
        "All figures describe the rows that they were measured on. If people, data or labels "
        "change, they no longer hold: measure again.",
        "Only the gap of the named criterion is limited; gaps of other rates may be larger. The "
        "tables show some of them.",
        "Labels are taken as given. If they record past discrimination, accuracy measures how well "
        "the model repeats it.",
        "A small gap doesn't mean that an individual decision is right, or lawful. Whether a "
        "decision may depend on the group is a legal question, which this report doesn't answer.",
    ]
    if model["blind"]:
        found.append(
            "Decisions don't use the group, but depend on how likely the features make each group."
        )
    elif len(facts["groups"]) > 1:
        found.append("Decisions depend on the person's group: each group has its own threshold.")
    if facts["history"] is not None:
        found.append(
            "The audit log shows edits by a chain of hashes. Somebody who can write the file could "
            "rewrite the whole chain or cut off its end; compare the last hash with a copy."
        )
    return found
