// Numbers and positions of the dial in plain words. Pure functions of values.
"use strict";

(function (root) {
  const { dial: core } = root.fairdial;
  const NO_NUMBER = "A number from 0 to 100, please.";
  const FINE = 0.0005; // a difference of accuracies that the page doesn't show
  const LITTLE = 0.25; // of the rise, that a curve may fall on its way and still rise on the whole
  const WHEN = {
    day: "numeric", month: "short", year: "numeric",
    hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
  };
  const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

  // ---- numbers ---------------------------------------------------------------------------------

  const number = (value) => whole.format(value);

  const people = (value) => `${number(value)} ${value === 1 ? "person" : "people"}`;

  const percent = (part, all) => (all === 0 ? "–" : `${((100 * part) / all).toFixed(1)}%`);

  // Moves the point of a decimal number's text: no arithmetic, so nothing is lost.
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

  // A percentage as people type it (a comma for the point, a percent sign after it), as a share;
  // null where it is none.
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

  // A gap that was measured, in percentage points, rounded for reading.
  function gap(value, digits) {
    const text = (100 * value).toFixed(digits - 2);
    return value > 0 && Number(text) === 0 ? `under ${(10 ** (2 - digits)).toFixed(digits - 2)}` : text;
  }

  // A bound in percentage points, rounded up, with its unit; null where it says nothing.
  function bound(value, digits) {
    const number = Math.ceil(value * 10 ** digits - 1e-9);
    const text = points(number / 10 ** digits, digits);
    return value < 1 ? `${text} ${unit(text)}` : null;
  }

  const unit = (text) => (text === "1" || text === "1.0" ? "percentage point" : "percentage points");

  // What the least constrained position is called: of a family it is the most accurate setting.
  function least(dial) {
    if (!dial.page.measured) return { short: "unconstrained", long: "without constraint", model: "the model without constraint" };
    const which = dial.accuracy ? "most accurate" : "first";
    return { short: `${which} setting`, long: `with the ${which} setting`, model: `the ${which} setting` };
  }

  // ---- sentences -------------------------------------------------------------------------------

  // What a group is called in tables and pictures.
  function label(group) {
    return group.people ? group.people[0].toUpperCase() + group.people.slice(1) : group.name;
  }

  function whoseLabel(dial) {
    const { criterion, labels } = dial.page;
    if (criterion.counted === null) return "";
    const side = criterion.counted === 1 ? "positive" : "negative";
    return ` whose label is ${labels ? `“${labels[side]}”` : side}`;
  }

  function members(dial, a) {
    const group = dial.page.groups[a];
    return group.people || `people in ${/^group\b/i.test(group.name) ? "" : "group "}${group.name}`;
  }

  // "Of 100 women, 12 are selected; of 100 men, 15."
  function rates(dial, position) {
    const { nGroups, counted } = dial;
    const label = dial.page.criterion.counted;
    const part = (a) => (label === null
      ? position.selected[a] + (dial.nLabels === 2 ? position.selected[nGroups + a] : 0)
      : position.selected[label * nGroups + a]);
    const rate = Array.from({ length: nGroups }, (_, a) => part(a) / counted[a]);
    const hundred = (a) => number(100 * rate[a]);
    const are = (text) => (text === "1" ? "is" : "are");
    if (nGroups === 1) return `Of 100 people, ${hundred(0)} ${are(hundred(0))} selected.`;
    const order = rate.map((_, a) => a).sort((a, b) => rate[a] - rate[b] || a - b);
    const [low, high] = nGroups === 2 ? [0, 1] : [order[0], order[nGroups - 1]];
    const note = (text) => (nGroups > 2 ? ` (${text})` : "");
    const rest = nGroups - 2;
    const others = { 0: "", 1: " The other group lies between." }[rest] ?? ` The other ${rest} groups lie between.`;
    return `Of 100 ${members(dial, low)}${whoseLabel(dial)}${note("the lowest")}, ${hundred(low)} ${are(hundred(low))} selected; `
      + `of 100 ${members(dial, high)}${note("the highest")}, ${hundred(high)}.${others}`;
  }

  function keeps(dial, position) {
    const { digits } = dial.slider;
    const seen = gap(position.gap, digits);
    const allowed = points(position.tolerance, digits);
    if (dial.nGroups === 1) return "All are one group, so there is no gap.";
    if (!position.feasible) {
      return `That is a gap of ${seen} ${unit(seen)}, the smallest that the dial reaches: no position keeps within ${allowed}.`;
    }
    return `That is a gap of ${seen} ${unit(seen)}, within the ${allowed} allowed.`;
  }

  function costs(dial, position) {
    const { digits } = dial.slider;
    const free = core.free(dial);
    const same = position.selected.every((value, i) => value === free.selected[i]);
    const right = (value) => `${(100 * value).toFixed(1)}%`;
    const seen = gap(free.gap, digits);
    const { long, model } = least(dial);
    if (same) {
      return `This is ${model}${position.accuracy === null ? "." : `: ${right(position.accuracy)} of its decisions are right.`}`;
    }
    const capital = long[0].toUpperCase() + long.slice(1);
    if (position.accuracy === null) return `${capital} the gap is ${seen} ${unit(seen)}.`;
    return `${right(position.accuracy)} of all decisions are right; ${long} it is ${right(free.accuracy)}, `
      + `and the gap ${seen} ${unit(seen)}.`;
  }

  const confidence = (level) => `${Number((100 * level).toFixed(4))}%`;

  // What is known about people who were not measured.
  function promise(dial, position) {
    const { digits } = dial.slider;
    const { certified } = dial.page;
    const level = confidence(certified.level);
    if (dial.nGroups === 1) return "";
    if (certified.kind === "none") {
      return certified.reason === "seen"
        ? "Nothing can be promised about new people: the model has seen the people it was measured on."
        : "Nothing can be promised about new people: the settings were chosen by looking at the people measured.";
    }
    const later = bound(position.gap + certified.margin, digits);
    if (position.promise === null && !position.bounded) {
      return "Nothing can be promised about new people at this setting: it was found by looking at the people measured.";
    }
    if (position.promise === null) {
      const holds = `This holds for the ${number(dial.total)} people measured. For new people the gap will be smaller or larger; `;
      return later === null
        ? `${holds}with ${level} confidence nothing can be said about it: too few people were measured.`
        : `${holds}with ${level} confidence it is at most ${later}.`;
    }
    if (!position.promise.able) return refusal(dial, position);
    const text = `For new people like these, the gap is at most ${bound(position.promise.bound, digits)}, with ${level} confidence`;
    if (certified.kind !== "declared") return `${text}.`;
    return `${text}, if ${points(position.tolerance, digits)} was decided on before looking at these figures. `
      + (later === null ? "Chosen after looking, nothing can be said: too few people were measured." : `Chosen after looking, at most ${later}.`);
  }

  function refusal(dial, position) {
    const { digits } = dial.slider;
    const { certified } = dial.page;
    const wish = points(position.tolerance, digits);
    const needed = position.promise.needed;
    const more = needed > 0
      ? `About ${number(needed)} like them would be needed.`
      : "No number of people would be enough.";
    const least = certified.smallest === null
      ? "No gap at all can be promised."
      : `The smallest that can be promised is ${setting(dial, certified.smallest)}.`;
    return `A gap of at most ${wish} ${unit(wish)} can’t be promised for new people with ${confidence(certified.level)} confidence: `
      + `${number(dial.total)} people were measured. ${more} ${least} The figures below hold for the people measured only.`;
  }

  function sentence(dial, position) {
    return [rates(dial, position), keeps(dial, position), costs(dial, position)].join(" ");
  }

  // ---- changes ---------------------------------------------------------------------------------

  // The title of who changes: than now, or than without constraint.
  function otherwise(dial, used) {
    return `Who is decided otherwise than ${used ? "now" : least(dial).long}`;
  }

  // `before` is what `compared` gives, and `used` the setting of the position in use, if any.
  function flips(dial, changes, before, used) {
    const from = before.used ? `the position in use (${setting(dial, used)})` : least(dial).model;
    const here = before.same ? `These are the decisions in use (${setting(dial, used)}). ` : "";
    return here + moved(dial, changes, from);
  }

  function moved(dial, changes, from) {
    const gained = changes.reduce((total, change) => total + change.gained, 0);
    const lost = changes.reduce((total, change) => total + change.lost, 0);
    const all = people(dial.total);
    if (gained + lost === 0) return `Compared with ${from}, no decision changes.`;
    const net = dial.page.measured
      ? " Each setting is a model of its own, so single people may also change places: these are net figures."
      : "";
    const share = percent(gained + lost, dial.total);
    return `Compared with ${from}, ${number(gained + lost)} of ${all} (${share}) are decided otherwise: `
      + `${number(gained)} more are selected, ${number(lost)} no longer are.${net}`;
  }

  function setting(dial, value) {
    if (value === null || value === undefined) return "none";
    const { tolerance, confidence: level } = typeof value === "number" ? { tolerance: value } : value;
    const text = points(tolerance, dial.slider.digits);
    return `${text} ${unit(text)}${level ? ` with ${confidence(level)} confidence` : ""}`;
  }

  // A move of the record; `gap` is what it reached, and is told where that is more than allowed.
  function change(dial, { old: before, new: after, gap: reached }) {
    const allowed = typeof after === "number" ? after : after.tolerance;
    const seen = reached > allowed ? ` (the gap is ${gap(reached, dial.slider.digits)}, the smallest within reach)` : "";
    if (before === null || before === undefined) return `set to ${setting(dial, after)}${seen}`;
    return `from ${setting(dial, before)} to ${setting(dial, after)}${seen}`;
  }

  // A time in the reader's own zone, which is named.
  function time(text) {
    const when = new Date(text);
    return Number.isNaN(when.getTime()) ? text : when.toLocaleString("en-GB", WHEN);
  }

  // What came of a wish that was typed; `value` is where the dial stands now.
  function typedTo(dial, wish, value) {
    if (wish === null) return NO_NUMBER;
    const { digits } = dial.slider;
    return wish === value
      ? ""
      : `${points(wish, digits)} was rounded down to ${points(value, digits)}, the next smaller gap that this page can answer exactly.`;
  }

  // What came of the wish for an accuracy; `goal` is null where it was no number.
  function leastFound(dial, goal, found, confident) {
    if (goal === null) return NO_NUMBER;
    if (found !== null) return `Set to ${points(found, dial.slider.digits)}.`;
    const best = core.bestAccuracy(dial, confident);
    return best > 0 ? `The most that the dial reaches is ${percent(best, 1)}.` : "No position can be promised.";
  }

  // What stands above the button; `least` is the confidence that the server asks for and that the
  // position doesn't have, else null.
  function applying(used, promised, least) {
    if (least !== null) {
      return `${used} This server only takes positions that hold for new people too, with at least ${confidence(least)} confidence, so this one can’t be applied.`;
    }
    return promised
      ? `${used} Every change is recorded with its reason before it takes effect.`
      : "This position can’t be promised, so it can’t be applied with confidence.";
  }

  // ---- what the server says --------------------------------------------------------------------

  function refused(status, detail) {
    const nothing = "Nothing was changed.";
    const texts = {
      401: `The token is missing or wrong. ${nothing}`,
      403: `This server, or this token, does not allow the dial to be moved. ${nothing}`,
      409: `Somebody else has moved the dial meanwhile. ${nothing} Look at the position in use, then apply again if you still want to.`,
      412: `Somebody else has moved the dial meanwhile. ${nothing} Look at the position in use, then apply again if you still want to.`,
      422: `The server refused this setting${detail ? `: ${detail}` : "."} ${nothing}`,
      503: `The server can’t record changes at the moment. ${nothing} Try again in a while.`,
    };
    return texts[status] || `The server answered with an error (${status}). Reload the page to see whether the dial was moved.`;
  }

  // ---- explanations ----------------------------------------------------------------------------

  function aboutFrontier(dial) {
    return dial.accuracy
      ? `${trade(dial)} Press on the picture to go there.`
      : "Without labels nobody knows which decisions are right; this is how many each group has selected.";
  }

  // What a smaller gap costs, as this curve has it.
  function trade(dial) {
    const { strict, best, bestGap, free, fall } = core.course(dial);
    if (fall < FINE) {
      return best - strict < FINE
        ? "A smaller gap costs hardly any right decisions here."
        : "The smaller the gap that is allowed, the fewer decisions are right.";
    }
    if (percent(best, 1) === percent(free, 1) && fall <= LITTLE * (best - strict)) {
      return "On the whole, the smaller the gap that is allowed, the fewer decisions are right.";
    }
    const { digits } = dial.slider;
    const at = gap(bestGap, digits);
    const ends = strict === best
      ? `${least(dial).long} it is ${percent(free, 1)}`
      : `with the smallest gap it is ${percent(strict, 1)}, ${least(dial).long} ${percent(free, 1)}`;
    return `The share of right decisions is highest (${percent(best, 1)}) at a gap of ${at} ${unit(at)}; ${ends}.`;
  }

  // The ends of the slider.
  function ends(dial) {
    const { digits } = dial.slider;
    const smallest = dial.gap[dial.dialled[dial.dialled.length - 1]];
    return [`most equal (${gap(smallest, digits)})`, `${least(dial).short} (${gap(dial.gap[0], digits)})`];
  }

  function aboutScores(dial, drawn) {
    if (drawn) {
      return "The model gives everybody a score: the estimated chance of a positive label. Those above their group’s line are selected; moving the dial moves the lines.";
    }
    if (dial.page.measured) {
      return "Each setting is a trained model with scores of its own, so there is no single line to draw. The dial takes the first of these whose gap is within the allowed one.";
    }
    return dial.page.histogram === null
      ? "The scores of the people measured are not part of this page."
      : `There are ${dial.nGroups} groups: too many to draw. The table below has them all.`;
  }

  // [term, explanation] of what stands on the page.
  function help(dial) {
    const { certified, measured, states } = dial.page;
    const items = [
      ["Gap", "The highest group’s rate minus the lowest’s, in percentage points. Which rate is meant stands under the title."],
      ["Largest gap allowed", "The dial. The page shows the least constrained position whose gap is within it. Nothing is trained again when it moves."],
      measured
        ? ["Setting", "One of the models that were trained beforehand. The dial takes the most accurate one whose gap is within the allowed one."]
        : ["Unconstrained", "The model as it was trained: the same line, 50%, for everybody."],
      ["Right decisions", "The share of decisions that agree with the label. Labels are what was recorded, not what is just."],
      ["The people measured", `The ${number(dial.total)} held-out rows on which the dial was set. All figures on this page are theirs, counted exactly.`],
    ];
    if (certified.kind !== "none") {
      const when = certified.kind === "declared"
        ? "The statement is for one gap that was decided on beforehand; for a gap chosen after looking, the second figure holds."
        : "The statement holds for every position at once, so the gap may be chosen after looking.";
      items.push(["New people, with confidence", `A gap measured on some people is never quite the gap of others. With confidence, a stricter position is chosen, so that the gap of new people drawn like these stays within the allowed one. ${when}`]);
    }
    items.push(["What the dial doesn’t do", "It reduces the gap that is named here; other gaps may grow, which the table shows. It needs to know each person’s group when deciding. It can’t make wrong labels right."]);
    if (states.decimals !== null) {
      items.push(["Positions left out", `The dial has ${number(states.of)} positions; this page keeps the ${number(states.count)} that gaps with up to ${states.decimals - 2} decimals lead to. Gaps typed with more are rounded down.`]);
    }
    return items;
  }

  root.fairdial.words = {
    aboutFrontier, aboutScores, applying, change, confidence, costs, ends, flips, gap, help, keeps, label, least,
    leastFound, number, otherwise, people, percent, points, promise, rates, refused, sentence, setting, shift,
    time, typed, typedTo, unit,
  };
})(globalThis);
