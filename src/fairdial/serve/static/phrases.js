// The page's numbers and sentences. Pure functions of values.
//
// On the page, a tolerance is called the limit: the largest gap allowed.
"use strict";

(function (root) {
  const { dial: core } = root.fairdial;
  const LANGUAGE = "en-US";
  const NO_NUMBER = "Enter a number from 0 to 100.";
  const FINE = 0.0005; // a difference in accuracy that is too small to show
  const LITTLE = 0.25; // share of its rise that accuracy may fall and still rise on the whole
  const LOOSE = 0.1; // margin of a bound that needs an explanation
  const TIME = {
    day: "numeric", month: "short", year: "numeric",
    hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
  };
  const whole = new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: 0 });

  // ---- numbers ---------------------------------------------------------------------------------

  const number = (value) => whole.format(value);

  const people = (value) => `${number(value)} ${value === 1 ? "person" : "people"}`;

  const percent = (part, all) => (all === 0 ? "–" : `${((100 * part) / all).toFixed(1)}%`);

  // Moves the decimal point in the text of a number: no arithmetic, so nothing is lost.
  function shift(value, places) {
    const [mantissa, exponent] = String(value).toLowerCase().split("e");
    const [before, after = ""] = mantissa.split(".");
    const digits = before + after;
    const point = before.length + Number(exponent || 0) + places;
    const padded = point > 0 ? digits.padEnd(point, "0") : "0".repeat(1 - point) + digits;
    const place = Math.max(point, 1);
    const text = `${padded.slice(0, place)}.${padded.slice(place)}`;
    return text.replace(/^0+(?=\d)/, "").replace(/\.?0*$/, "");
  }

  // A percentage as people type it (decimal comma, percent sign) as a fraction; null if it isn't one.
  function typed(text) {
    const plain = text.trim().replace(/\s*%$/, "").replace(",", ".");
    const value = /^\d*\.?\d+$|^\d+\.$/.test(plain) ? Number(shift(plain, -2)) : NaN;
    return value >= 0 && value <= 1 ? value : null;
  }

  // A tolerance in percentage points, exactly; with at least as many decimals as the slider has.
  function points(tolerance, digits) {
    const text = shift(tolerance, 2);
    const decimals = (text.split(".")[1] || "").length;
    return decimals > digits - 2 ? text : Number(text).toFixed(digits - 2);
  }

  // A measured gap in percentage points, rounded.
  function gap(value, digits) {
    const text = (100 * value).toFixed(digits - 2);
    return value > 0 && Number(text) === 0 ? `under ${(10 ** (2 - digits)).toFixed(digits - 2)}` : text;
  }

  // A bound in percentage points, rounded up, with its unit; null if it is no restriction.
  function bound(value, digits) {
    const rounded = Math.ceil(value * 10 ** digits - 1e-9);
    return value < 1 ? withUnit(points(rounded / 10 ** digits, digits)) : null;
  }

  const unit = (text) => (text === "1" || text === "1.0" ? "percentage point" : "percentage points");

  const withUnit = (text) => `${text} ${unit(text)}`;

  const confidence = (level) => `${Number((100 * level).toFixed(4))}%`;

  // ---- names -----------------------------------------------------------------------------------

  // The model without a limit; of a family, its most accurate model.
  function noLimit(dial) {
    if (!dial.page.measured) return { short: "no limit", long: "without a limit", model: "the model without a limit" };
    const which = dial.accuracy ? "most accurate" : "first";
    return { short: `${which} model`, long: `with the ${which} model`, model: `the ${which} model` };
  }

  // A group in tables and charts.
  function label(group) {
    return group.people ? group.people[0].toUpperCase() + group.people.slice(1) : group.name;
  }

  // A group's members in sentences.
  function members(dial, a) {
    const group = dial.page.groups[a];
    return group.people || `people in ${/^group\b/i.test(group.name) ? "" : "group "}${group.name}`;
  }

  function whoseLabel(dial) {
    const { criterion, labels } = dial.page;
    if (criterion.counted === null) return "";
    const side = criterion.counted === 1 ? "positive" : "negative";
    return ` whose label is ${labels ? `“${labels[side]}”` : side}`;
  }

  // A limit, given as a tolerance or with its confidence.
  function limit(dial, value) {
    if (value === null || value === undefined) return "none";
    const { tolerance, confidence: level } = typeof value === "number" ? { tolerance: value } : value;
    return `${withUnit(points(tolerance, dial.slider.digits))}${level ? ` with ${confidence(level)} confidence` : ""}`;
  }

  // A time in the reader's time zone, which is named.
  function time(text) {
    const when = new Date(text);
    return Number.isNaN(when.getTime()) ? text : when.toLocaleString(LANGUAGE, TIME);
  }

  // ---- what a limit does -----------------------------------------------------------------------

  // "Of 100 women, 12 are selected; of 100 men, 15."
  function rates(dial, point) {
    const { nGroups, eligible } = dial;
    const only = dial.page.criterion.counted;
    const part = (a) => (only === null
      ? point.selected[a] + (dial.nLabels === 2 ? point.selected[nGroups + a] : 0)
      : point.selected[only * nGroups + a]);
    const rate = Array.from({ length: nGroups }, (_, a) => part(a) / eligible[a]);
    const hundred = (a) => number(100 * rate[a]);
    const are = (text) => (text === "1" ? "is" : "are");
    if (nGroups === 1) return `Of 100 people, ${hundred(0)} ${are(hundred(0))} selected.`;
    const order = rate.map((_, a) => a).sort((a, b) => rate[a] - rate[b] || a - b);
    const [low, high] = nGroups === 2 ? [0, 1] : [order[0], order[nGroups - 1]];
    const note = (text) => (nGroups > 2 ? ` (${text})` : "");
    const rest = nGroups - 2;
    const others = { 0: "", 1: " The other group is in between." }[rest] ?? ` The other ${rest} groups are in between.`;
    return `Of 100 ${members(dial, low)}${whoseLabel(dial)}${note("the lowest")}, ${hundred(low)} ${are(hundred(low))} selected; `
      + `of 100 ${members(dial, high)}${note("the highest")}, ${hundred(high)}.${others}`;
  }

  function gapAndLimit(dial, point) {
    const { digits } = dial.slider;
    if (dial.nGroups === 1) return "There is only one group, so there is no gap.";
    const text = `That is a gap of ${withUnit(gap(point.gap, digits))}`;
    const allowed = points(point.tolerance, digits);
    return point.feasible
      ? `${text}, within the limit of ${allowed}.`
      : `${text}, the smallest possible. The limit of ${allowed} can’t be reached.`;
  }

  function cost(dial, point) {
    const before = core.unconstrained(dial);
    const same = point.selected.every((value, i) => value === before.selected[i]);
    const { long, model } = noLimit(dial);
    if (same) {
      return `This is ${model}${point.accuracy === null ? "." : `: ${percent(point.accuracy, 1)} of its decisions are correct.`}`;
    }
    const seen = withUnit(gap(before.gap, dial.slider.digits));
    if (point.accuracy === null) return `${long[0].toUpperCase() + long.slice(1)}, the gap is ${seen}.`;
    return `${percent(point.accuracy, 1)} of decisions are correct; ${long} it is ${percent(before.accuracy, 1)}, `
      + `with a gap of ${seen}.`;
  }

  function sentence(dial, point) {
    return [rates(dial, point), gapAndLimit(dial, point), cost(dial, point)].join(" ");
  }

  // ---- new people ------------------------------------------------------------------------------

  // What is known about people who were not measured.
  function guarantee(dial, point) {
    const { digits } = dial.slider;
    const { certified } = dial.page;
    const level = confidence(certified.level);
    if (dial.nGroups === 1) return "";
    if (certified.kind === "none") {
      return certified.reason === "seen"
        ? "Nothing can be guaranteed for new people: the model has already seen the people measured."
        : "Nothing can be guaranteed for new people: the models were chosen by looking at the people measured.";
    }
    const later = bound(point.gap + certified.margin, digits);
    if (point.guarantee === null && !point.bounded) {
      return "Nothing can be guaranteed for new people with this model: it was chosen by looking at the people measured.";
    }
    if (point.guarantee === null) {
      const measured = `These figures are for the ${number(dial.total)} people measured.`;
      return later === null
        ? `${measured} Nothing can be said about new people with ${level} confidence: ${fewest(dial)}.`
        : `${measured} Among new people the gap can be larger: with ${level} confidence it is at most ${later}${loose(dial)}.`;
    }
    if (!point.guarantee.able) return refusal(dial, point);
    const text = `Among new people like these, the gap is at most ${bound(point.guarantee.bound, digits)}, with ${level} confidence`;
    if (certified.kind !== "declared") return `${text}.`;
    return `${text}, if the limit of ${points(point.tolerance, digits)} was decided on before looking at this page. `
      + (later === null
        ? `For a limit chosen after looking, nothing can be said: ${fewest(dial)}.`
        : `For a limit chosen after looking, it is at most ${later}${loose(dial)}.`);
  }

  // Why a bound is far above the measured gap, if it is.
  const loose = (dial) => (dial.page.certified.margin > LOOSE ? `, because ${fewest(dial)}` : "");

  // The smallest group limits what can be said about new people.
  function fewest(dial) {
    const least = Math.min(...dial.eligible);
    const a = dial.eligible.indexOf(least);
    return `only ${number(least)} ${members(dial, a)}${whoseLabel(dial)} were measured`;
  }

  function refusal(dial, point) {
    const { certified } = dial.page;
    const { needed } = point.guarantee;
    const more = needed > 0
      ? `That would take about ${number(needed)} people like them.`
      : "No number of people would be enough.";
    const least = certified.smallest === null
      ? "No limit can be guaranteed."
      : `The smallest limit that can be guaranteed is ${limit(dial, certified.smallest)}.`;
    return `A gap of at most ${limit(dial, point.tolerance)} can’t be guaranteed for new people with ${confidence(certified.level)} confidence: `
      + `only ${number(dial.total)} people were measured. ${more} ${least} The figures below are for the people measured only.`;
  }

  // ---- changes ---------------------------------------------------------------------------------

  // The title of the table of changes: compared with what is in use, or with no limit.
  function changesTitle(dial, used) {
    return `Whose decision changes compared with ${used ? "now" : noLimit(dial).model}`;
  }

  // `before` is what `baseline` returns, and `used` the limit in use, if any.
  function changes(dial, flips, before, used) {
    const from = before.used ? `the limit in use (${limit(dial, used)})` : noLimit(dial).model;
    const here = before.same ? `These are the decisions in use (${limit(dial, used)}). ` : "";
    return here + changesFrom(dial, flips, from);
  }

  function changesFrom(dial, flips, from) {
    const gained = flips.reduce((total, flip) => total + flip.gained, 0);
    const lost = flips.reduce((total, flip) => total + flip.lost, 0);
    if (gained + lost === 0) return `Compared with ${from}, no decision changes.`;
    const net = dial.page.measured
      ? " Each model decides on its own, so people may also have swapped places: these are net figures."
      : "";
    return `Compared with ${from}, ${number(gained + lost)} of ${people(dial.total)} `
      + `(${percent(gained + lost, dial.total)}) get a different decision: `
      + `${number(gained)} are newly selected, ${number(lost)} no longer are.${net}`;
  }

  // An entry of the record; `gap` is what it reached, shown if it is above the limit.
  function recorded(dial, { old: before, new: after, gap: reached }) {
    const allowed = typeof after === "number" ? after : after.tolerance;
    const seen = reached > allowed ? ` (the gap is ${gap(reached, dial.slider.digits)}, the smallest possible)` : "";
    if (before === null || before === undefined) return `set to ${limit(dial, after)}${seen}`;
    return `from ${limit(dial, before)} to ${limit(dial, after)}${seen}`;
  }

  // ---- answers to what people do ---------------------------------------------------------------

  // After typing a limit; `value` is the limit now.
  function typedTo(dial, tolerance, value) {
    if (tolerance === null) return NO_NUMBER;
    const { digits } = dial.slider;
    return tolerance === value
      ? ""
      : `${points(tolerance, digits)} was rounded down to ${points(value, digits)}, the next lower limit that this page has exact figures for.`;
  }

  // After asking for an accuracy; `goal` is null if it isn't a number.
  function leastFound(dial, goal, found, confident) {
    if (goal === null) return NO_NUMBER;
    if (found !== null) return `Set to ${points(found, dial.slider.digits)}.`;
    const best = core.bestAccuracy(dial, confident);
    return best > 0 ? `The highest possible accuracy is ${percent(best, 1)}.` : "No limit can be guaranteed.";
  }

  // Above the button; `least` is the confidence that the server asks for if the point lacks it.
  function applying(used, guaranteed, least) {
    if (least !== null) {
      return `${used} This server only accepts limits that also hold for new people with at least ${confidence(least)} confidence, so this one can’t be applied.`;
    }
    return guaranteed
      ? `${used} Every change is recorded with its reason before it takes effect.`
      : "This limit can’t be guaranteed for new people, so it can’t be applied with confidence.";
  }

  function refused(status, detail) {
    const nothing = "Nothing was changed.";
    const conflict = `Somebody else changed the limit in the meantime. ${nothing} Look at the limit in use, then apply again if you still want to.`;
    const texts = {
      401: `The token is missing or wrong. ${nothing}`,
      403: `This server or this token doesn’t allow changes to the limit. ${nothing}`,
      409: conflict,
      412: conflict,
      422: `The server rejected this limit${detail ? `: ${detail}` : "."} ${nothing}`,
      503: `The server can’t record changes right now. ${nothing} Try again later.`,
    };
    return texts[status] || `The server answered with an error (${status}). Reload the page to see whether the limit was changed.`;
  }

  // ---- explanations ----------------------------------------------------------------------------

  function aboutFrontier(dial) {
    return dial.accuracy
      ? `${tradeOff(dial)} Click the chart to set the limit there.`
      : "Without labels, accuracy is unknown. The chart shows how many people of each group are selected.";
  }

  // What a lower limit costs, according to the curve.
  function tradeOff(dial) {
    const { strictest, best, bestGap, unconstrained, fall } = core.trend(dial);
    if (fall < FINE) {
      return best - strictest < FINE
        ? "A lower limit costs hardly any accuracy here."
        : "The lower the limit, the lower the accuracy.";
    }
    if (percent(best, 1) === percent(unconstrained, 1) && fall <= LITTLE * (best - strictest)) {
      return "On the whole, the lower the limit, the lower the accuracy.";
    }
    const { long } = noLimit(dial);
    const ends = strictest === best
      ? `${long} it is ${percent(unconstrained, 1)}`
      : `at the smallest gap it is ${percent(strictest, 1)}, ${long} ${percent(unconstrained, 1)}`;
    return `Accuracy is highest (${percent(best, 1)}) at a gap of ${withUnit(gap(bestGap, dial.slider.digits))}; ${ends}.`;
  }

  // The ends of the slider.
  function ends(dial) {
    const { digits } = dial.slider;
    const smallest = dial.gap[dial.reachable[dial.reachable.length - 1]];
    return [`smallest gap (${gap(smallest, digits)})`, `${noLimit(dial).short} (${gap(dial.gap[0], digits)})`];
  }

  function aboutScores(dial, drawn) {
    if (drawn) {
      return "The model gives everybody a score: the estimated chance of a positive label. People above their group’s line are selected. Moving the slider moves the lines.";
    }
    if (dial.page.measured) {
      return "Each of these models has its own scores, so there is no single line to draw. The first model whose gap is within the limit decides.";
    }
    return dial.page.histogram === null
      ? "This page doesn’t contain the scores of the people measured."
      : `There are ${dial.nGroups} groups, too many to draw. The table below lists them all.`;
  }

  // [term, explanation] pairs.
  function help(dial) {
    const { certified, measured, states } = dial.page;
    const items = [
      ["Gap", "The highest group’s rate minus the lowest group’s, in percentage points. The line under the title says which rate."],
      ["Largest gap allowed", "The limit that you set. The page shows the smallest adjustment of the model that keeps the gap within it. Nothing is trained again when the slider moves."],
      measured
        ? ["Model", "One of several models that were trained in advance. The most accurate one whose gap is within the limit decides."]
        : ["No limit", "The model as it was trained: the same line, 50%, for everybody."],
      ["Accuracy", "The share of correct decisions: those that agree with the label. Labels are what was recorded, not what is just."],
      ["The people measured", `The ${number(dial.total)} people who were set aside for measuring. All figures on this page are exact counts of these people.`],
    ];
    if (certified.kind !== "none") {
      const when = certified.kind === "declared"
        ? "This holds for one limit that was decided on in advance. For a limit chosen after looking, the second figure holds."
        : "This holds for all limits at once, so you may choose a limit after looking.";
      items.push(["New people, with confidence", `The gap among other people is never exactly the gap measured. With confidence, the page adjusts the model more, so that the gap among new people like these stays within the limit. ${when}`]);
    }
    items.push(["What this doesn’t do", "It reduces only the gap named here. Other gaps may grow, as the table shows. It needs to know each person’s group to decide. It can’t correct wrong labels."]);
    if (states.decimals !== null) {
      items.push(["Limits left out", `There are ${number(states.of)} different outcomes. This page has the ${number(states.count)} that limits with up to ${states.decimals - 2} decimals lead to. Limits with more decimals are rounded down.`]);
    }
    return items;
  }

  root.fairdial.phrases = {
    aboutFrontier, aboutScores, applying, changes, changesTitle, confidence, cost, ends, gap, gapAndLimit, guarantee,
    help, label, leastFound, limit, noLimit, number, people, percent, points, rates, recorded, refused, sentence,
    shift, time, typed, typedTo, unit, withUnit,
  };
})(globalThis);
