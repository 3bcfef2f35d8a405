// The page's numbers and sentences. Pure functions of values.
//
// On the page, a tolerance is called the limit: the largest gap allowed.
"use strict";

(function (root) {
  const { dial: core } = root.fairdial;
  const LANGUAGE = "en-US";
  const NO_NUMBER = "Enter a number from 0 to 100.";
  const CHANCE = 1.96; // standard errors that chance explains
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
    if (!dial.page.criterion.simple) return demandedRates(dial, point);
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
    const few = core.fewOf(dial);
    const note = (a, text) => {
      const notes = [...(nGroups > 2 ? [text] : []), ...(few.includes(a) ? [`only ${number(eligible[a])} measured`] : [])];
      return notes.length ? ` (${notes.join("; ")})` : "";
    };
    const rest = nGroups - 2;
    const others = { 0: "", 1: " The other group is in between." }[rest] ?? ` The other ${rest} groups are in between.`;
    return `Of 100 ${members(dial, low)}${whoseLabel(dial)}${note(low, "the lowest")}, ${hundred(low)} ${are(hundred(low))} selected; `
      + `of 100 ${members(dial, high)}${note(high, "the highest")}, ${hundred(high)}.${others}`;
  }

  const capital = (text) => text[0].toUpperCase() + text.slice(1);

  // "Share selected: 12.0% of women, 15.0% of men." for each demanded rate; at most the two extremes.
  function demandedRates(dial, point) {
    const seen = new Set();
    return core.demandsOf(dial, point.cells).filter(({ demand }) => {
      const isNew = !seen.has(demand.title);
      seen.add(demand.title);
      return isNew;
    }).map(({ demand, parts }) => {
      const known = parts.map((part, a) => ({ a, part })).filter(({ part }) => part[1] > 0);
      const order = known.slice().sort((x, y) => x.part[0] / x.part[1] - y.part[0] / y.part[1] || x.a - y.a);
      const shown = dial.nGroups > 2 ? [order[0], order[order.length - 1]] : known;
      const texts = shown.filter(Boolean).map(({ a, part }, i) => {
        const which = dial.nGroups > 2 ? [" (lowest)", " (highest)"][i] : "";
        return `${label(dial.page.groups[a])} ${percent(...part)}${which}`;
      });
      return `${capital(demand.title)}: ${texts.join(", ") || "nobody"}.`;
    }).join(" ");
  }

  // What a demand asks of the limit, in words.
  function demandGap(demand, gap) {
    const level = `${Number((100 * demand.level).toFixed(2))}%`;
    const missing = `${(100 * gap).toFixed(1)} points`;
    return {
      difference: () => `Gap: ${missing}`,
      ratio: () => `Lowest is ${(100 * (1 - gap)).toFixed(1)}% of highest`,
      minimum: () => (gap > 0 ? `Lowest misses ${level} by ${missing}` : `All at least ${level}`),
      maximum: () => (gap > 0 ? `Highest exceeds ${level} by ${missing}` : `All at most ${level}`),
    }[demand.spread]();
  }

  // The same with what is allowed, unless that is clear; a tolerance of null is no limit.
  function apart(demand, gap, tolerance) {
    const text = demandGap(demand, gap);
    const isKept = gap === 0 && (demand.spread === "minimum" || demand.spread === "maximum");
    return tolerance === null || isKept ? text : `${text} (allowed: ${allowed(demand, tolerance)})`;
  }

  // What a demand allows at a tolerance.
  function allowed(demand, tolerance) {
    const room = demand.scale * tolerance;
    const share = (value) => `${Number((100 * value).toFixed(2))}%`;
    return {
      difference: () => points(Number(room.toFixed(6)), 3),
      ratio: () => `at least ${share(1 - room)}`,
      minimum: () => `at least ${share(demand.level - room)}`,
      maximum: () => `at most ${share(demand.level + room)}`,
    }[demand.spread]();
  }

  // The title of a side of the picture; a tolerance of null is no limit.
  function side(dial, demands, tolerance) {
    if (tolerance === null) return dial.page.measured ? capital(noLimit(dial).long) : "Without a limit on the gap";
    const plain = dial.nGroups > 1 && demands.every(({ spread, scale }) => spread === "difference" && scale === 1);
    return plain ? `With the gap limited to ${points(tolerance, dial.slider.digits)} points` : "With this limit";
  }

  // How many more people of a group are counted than before; "" where others are eligible.
  function moved([before, rows], [now, same]) {
    const change = now - before;
    if (rows !== same || number(Math.abs(change)) === "0") return "";
    return `${change > 0 ? "+" : "−"}${people(Math.abs(change))}`;
  }

  // The signs in the picture.
  function pictureKey(dial) {
    if (dial.nGroups === 1) return [];
    const { demands } = dial.page.criterion;
    const [onlySelected, onlyGaps] = [
      demands.every(({ event, eligible }) => event === "selected" && [null, 0, 1].includes(eligible)),
      demands.every(({ spread }) => spread === "difference" || spread === "ratio"),
    ];
    const [more, less] = onlySelected ? ["newly selected", "no longer selected"] : ["added by the limit", "removed by the limit"];
    return [["added", more], ["removed", less], ...(onlyGaps ? [["gap-sign", "gap: from the lowest to the highest group"]] : [])];
  }

  // What is aimed at besides the criterion: objective and budget.
  function aims(dial) {
    const { objective, budget, lottery } = dial.page;
    const texts = [];
    if (objective.name !== "accuracy") texts.push(`Within the limit, the model aims for the ${objective.name === "costs" ? "lowest mean cost" : `highest ${objective.title}`}.`);
    if (budget !== null) {
      const share = `${Number((100 * budget.share).toFixed(2))}% of all people`;
      texts.push(budget.exact ? `It selects as many people as possible, up to ${share}.` : `It selects at most ${share}.`);
    }
    if (lottery) texts.push("Near the lines, a lottery by a fingerprint of each record decides, so figures are expected numbers.");
    return texts.join(" ");
  }

  // Whether people's decisions may change back as the slider moves.
  function movement(dial) {
    if (dial.page.measured || dial.nGroups === 1) return "";
    return dial.page.nested
      ? "As the limit gets lower, each person’s decision changes at most once."
      : "Each limit has its own best lines. As the slider moves, a person’s decision may change and change back.";
  }

  // The answer where nobody loses, beside the plain one.
  function leveling(dial, point, rising) {
    const free = core.unconstrained(dial);
    const more = core.flips(dial, free.selected, rising.selected).reduce((total, flip) => total + flip.gained, 0);
    const lost = core.flips(dial, free.selected, point.selected).reduce((total, flip) => total + flip.lost, 0);
    const losers = lost === 0
      ? "At this limit nobody loses a positive decision anyway."
      : `At this limit, ${people(lost)} lose${lost === 1 ? "s" : ""} a positive decision.`;
    const reached = rising.feasible ? "" : ", the smallest possible that way: this limit can’t be reached";
    const cost = rising.accuracy === null
      ? ""
      : ` ${percent(rising.accuracy, 1)} of decisions are correct, rather than ${percent(point.accuracy, 1)}.`;
    const added = `${number(more)} more ${more === 1 ? "person is" : "people are"} selected`;
    return `${losers} Nobody loses: if lines may only move down, ${added} than without a limit. `
      + `The gap is ${withUnit(gap(rising.gap, dial.slider.digits))}${reached}.${cost}`;
  }

  function gapAndLimit(dial, point) {
    const { digits } = dial.slider;
    if (dial.nGroups === 1) return "There is only one group, so there is no gap.";
    const what = dial.page.criterion.demands.length > 1 ? "The largest gap is" : "That is a gap of";
    const text = `${what} ${withUnit(gap(point.gap, digits))}`;
    const allowed = points(point.tolerance, digits);
    const before = core.unconstrained(dial);
    const free = before.gap === point.gap ? "" : ` ${capital(noLimit(dial).long)} it is ${gap(before.gap, digits)}.`;
    return point.feasible
      ? `${text}, within the limit of ${allowed}.${free}`
      : `${text}, the smallest possible. The limit of ${allowed} can’t be reached.${free}`;
  }

  // Groups that are too small to say much about.
  function caution(dial) {
    const few = core.fewOf(dial).map((a) => `${label(dial.page.groups[a])} (${number(dial.eligible[a])})`);
    if (few.length === 0 || dial.nGroups === 1) return "";
    return `Careful: these groups have so few people that their rates say little: ${few.join(", ")}.`;
  }

  // What the limit costs beside no limit, and whether that may be chance.
  function cost(dial, point) {
    if (point.accuracy === null) {
      return "Without labels, nobody knows which decisions are correct. The chart shows how many people of each group are selected.";
    }
    const before = core.unconstrained(dial);
    const { long, model } = noLimit(dial);
    const accuracy = `${percent(point.accuracy, 1)} of decisions are correct`;
    if (point.selected.every((count, i) => count === before.selected[i])) return `This is ${model}: ${accuracy}.`;
    const { gained, lost } = core.corrected(dial, before.selected, point.selected);
    const net = gained - lost;
    const change = Math.abs(net) < 0.5
      ? "As many decisions are correct as before."
      : `Of ${number(dial.total)} decisions, ${number(Math.abs(net))} ${net < 0 ? "fewer" : "more"} ${Math.abs(net) === 1 ? "is" : "are"} correct.`;
    return `${accuracy}; ${long} it is ${percent(before.accuracy, 1)}. ${change}`
      + `${chance(dial, net, gained + lost)}${value(dial, point, before)}`;
  }

  // Whether chance explains a net change among decisions that are no longer, or newly, correct
  // (McNemar's test); nothing where changed decisions aren't counted one by one.
  function chance(dial, net, changed) {
    if (!dial.whole || dial.page.measured || dial.page.lottery || net === 0) return "";
    return Math.abs(net) <= CHANCE * Math.sqrt(changed)
      ? " A difference this small may be chance: other people may show none."
      : " That is more than chance explains.";
  }

  // The objective, if it isn't accuracy.
  function value(dial, point, before) {
    const { name, title, terms } = dial.page.objective;
    if (name === "accuracy" || terms === null) return "";
    const [here, there] = [point, before].map(({ selected }) => core.valueOf(dial, selected));
    const text = (number) => (name === "costs" ? (0 - number).toFixed(3) : number.toFixed(3));
    const what = name === "costs" ? "Mean cost" : capital(title);
    return ` ${what}: ${text(here)}; ${noLimit(dial).long} ${text(there)}.`;
  }

  function sentence(dial, point) {
    return [rates(dial, point), gapAndLimit(dial, point)].join(" ");
  }

  // ---- new people ------------------------------------------------------------------------------

  // Whether the limit also holds for people who were not measured, in a few words.
  function verdict(dial, point) {
    if (dial.nGroups === 1) return "";
    const level = confidence(dial.page.certified.level);
    if (point.guarantee === null) return "Measured, not guaranteed for new people";
    if (!point.guarantee.able) return `Can’t be guaranteed with ${level} confidence`;
    return `Guaranteed for new people, with ${level} confidence`;
  }

  // What is known about people who were not measured, and why it isn't more.
  function guarantee(dial, point) {
    const { digits } = dial.slider;
    const { certified } = dial.page;
    const level = confidence(certified.level);
    if (dial.nGroups === 1) return "";
    if (certified.kind === "none") {
      const why = {
        seen: "the model has already seen the people measured",
        searched: "the models were chosen by looking at the people measured",
        weighted: "the people measured don’t count equally",
        lottery: "a lottery decides",
        demand: "that is known only for differences of rates among fixed people",
      }[certified.reason];
      return `Nothing can be guaranteed for new people: ${why}.`;
    }
    const known = certified.margin !== null; // of criteria that limit differences
    const later = known ? bound(point.gap + certified.margin, digits) : null;
    const why = known ? `: ${fewest(dial)}` : "";
    if (point.guarantee === null && !point.bounded) {
      return "Nothing can be guaranteed for new people with this model: it was chosen by looking at the people measured.";
    }
    if (point.guarantee === null) {
      return later === null
        ? `With ${level} confidence, nothing bounds the gap among new people${why}.`
        : `Among new people the gap may be larger. With ${level} confidence it is at most ${later}${loose(dial)}.`;
    }
    if (!point.guarantee.able) return refusal(dial, point);
    const text = `Among new people like these, the gap is at most ${bound(point.guarantee.bound, digits)}`;
    if (certified.kind !== "declared") return `${text}.`;
    return `${text}, if the limit of ${points(point.tolerance, digits)} was decided on before looking at this page. `
      + (later === null
        ? `For a limit chosen after looking, there is no bound${why}.`
        : `For a limit chosen after looking, it is at most ${later}${loose(dial)}.`);
  }

  // Why a bound is far above the measured gap, if it is.
  const loose = (dial) => (dial.page.certified.margin > LOOSE ? `: a wide margin, because ${fewest(dial)}` : "");

  // The smallest group limits what can be said about new people.
  function fewest(dial) {
    const least = Math.min(...dial.eligible);
    const a = dial.eligible.indexOf(least);
    return `only ${number(least)} ${members(dial, a)}${whoseLabel(dial)} were measured`;
  }

  function refusal(dial, point) {
    const { certified } = dial.page;
    const { needed, each } = point.guarantee;
    const wanted = limit(dial, point.tolerance);
    const most = each > 0 ? `, or about ${number(each)} in each group that has fewer` : "";
    const why = needed > 0
      ? `${capital(fewest(dial))}, too few for a limit of ${wanted}. That would take about ${number(needed)} people like those measured${most}.`
      : `No number of people would be enough for a limit of ${wanted}.`;
    const least = certified.smallest === null
      ? "No limit can be guaranteed."
      : `The smallest limit that can be guaranteed is ${limit(dial, certified.smallest)}.`;
    return `${why} ${least} The figures shown are for the people measured only.`;
  }

  // ---- changes ---------------------------------------------------------------------------------

  // How decisions change from no limit to a point.
  function changes(dial, flips) {
    const gained = flips.reduce((total, flip) => total + flip.gained, 0);
    const lost = flips.reduce((total, flip) => total + flip.lost, 0);
    const from = noLimit(dial).model;
    if (gained + lost === 0) return `Compared with ${from}, no decision changes.`;
    const net = dial.page.measured
      ? " Each model decides on its own, so people may also have swapped places: these are net figures."
      : "";
    return `Compared with ${from}, ${number(gained + lost)} of ${people(dial.total)} `
      + `(${percent(gained + lost, dial.total)}) get a different decision: `
      + `${number(gained)} are newly selected, ${number(lost)} no longer are.${net}`;
  }

  // How many decisions differ from those in use.
  function differ(dial, flips) {
    const changed = flips.reduce((total, flip) => total + flip.gained + flip.lost, 0);
    return ` Compared with it, ${number(changed)} of ${people(dial.total)} get a different decision here.`;
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

  // What the page is about: the criterion, what selected means, and who was measured.
  function about(dial) {
    const { criterion, labels } = dial.page;
    const groups = dial.nGroups > 1 ? ` in ${dial.nGroups} groups` : "";
    return [
      criterion.meaning,
      ...(labels ? [`A person is selected if the model predicts “${labels.positive}”.`] : []),
      aims(dial),
      `Measured on ${people(dial.total)}${groups}.`,
    ].filter(Boolean).join(" ");
  }

  // The ends of the slider.
  function ends(dial, confident) {
    const { digits } = dial.slider;
    const free = `${noLimit(dial).short} (${gap(dial.gap[0], digits)})`;
    if (!confident) return [`smallest possible (${gap(dial.smallest, digits)})`, free];
    const { smallest } = dial.page.certified;
    return [smallest === null ? "none guaranteed" : `smallest guaranteed (${points(smallest, digits)})`, free];
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
      dial.page.criterion.simple
        ? ["Gap", "The highest group’s rate minus the lowest group’s, in percentage points: the width of the colored band in the picture."]
        : ["Gap", "How far the groups’ rates are from what is demanded, in percentage points: the difference between the highest and the lowest group, how far the lowest falls short of the highest (ratio), or what is missing to a minimum or maximum. With several demands it is the largest, each measured against its own share of the limit."],
      ["Largest gap allowed", "The limit that you set. The page shows the smallest adjustment of the model that keeps the gap within it. Nothing is trained again when the slider moves."],
      ...(dial.rising === null ? [] : [["Nobody loses", "Limits are usually met by raising some groups’ lines and lowering others’. Leveling up only lowers lines: everybody selected without a limit stays selected, and more people are selected in all."]]),
      measured
        ? ["Model", "One of several models that were trained in advance. The most accurate one whose gap is within the limit decides."]
        : ["No limit", dial.page.criterion.simple && dial.page.objective.name === "accuracy" && dial.page.budget === null
          ? "The model as it was trained: the same line, 50%, for everybody."
          : "The best lines without a limit on the gap."],
      ["Accuracy", "The share of correct decisions: those that agree with the label. Labels are what was recorded, not what is just."],
      ["May be chance", "A cost is more than chance explains if changed decisions became wrong clearly more often than correct (McNemar’s test at 5%, for one limit that was decided on in advance)."],
      ["The people measured", `The ${number(dial.total)} people who were set aside for measuring. All figures on this page are exact counts of these people.`],
    ];
    if (certified.kind !== "none") {
      const when = certified.kind === "declared"
        ? "This holds for one limit that was decided on in advance. For a limit chosen after looking, the second figure holds."
        : "This holds for all limits at once, so you may choose a limit after looking.";
      items.push(["New people, with confidence", `The gap among other people is never exactly the gap measured. With confidence, the page adjusts the model more, so that the gap among new people like these stays within the limit. ${when}`]);
    }
    items.push(["What this doesn’t do", "It reduces only the gap named here. Other gaps may grow, as the table “Group by group” shows. It needs to know each person’s group to decide. It can’t correct wrong labels."]);
    if (states.decimals !== null) {
      items.push(["Limits left out", `There are ${number(states.of)} different outcomes. This page has the ${number(states.count)} that limits with up to ${states.decimals - 2} decimals lead to. Limits with more decimals are rounded down.`]);
    }
    return items;
  }

  root.fairdial.phrases = {
    about, aboutScores, aims, apart, applying, capital, caution, changes, confidence, cost, differ, ends, gap, gapAndLimit,
    guarantee, help, label, leveling, limit, moved, movement, noLimit, number, people, percent, pictureKey, points, rates, recorded, refused,
    sentence, shift, side, time, typed, typedTo, unit, verdict, withUnit,
  };
})(globalThis);
