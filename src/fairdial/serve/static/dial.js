// The dial without the page: reads the document of page_data.py, finds operating points, counts.
// Pure functions. Counts are whole numbers, and rates are computed in the same order as in Python,
// so gaps, accuracies and points are those of fairdial.Frontier to the last bit.
"use strict";

(function (root) {
  const ENDLESS = 2 ** 31 - 1; // stands for a threshold that selects nobody or everybody
  const THRESHOLD_UNIT = 1000;

  // ---- columns ---------------------------------------------------------------------------------

  function bytes(text) {
    const raw = atob(text);
    const data = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) data[i] = raw.charCodeAt(i);
    return data;
  }

  function floats(text) {
    const view = new DataView(bytes(text).buffer);
    return Float64Array.from({ length: view.byteLength / 8 }, (_, i) => view.getFloat64(8 * i, true));
  }

  // Column after column: entry (i, c) is at c * length + i.
  function ints(text, length) {
    const data = bytes(text);
    const values = [];
    let at = 0;
    let value = 0;
    while (at < data.length) {
      let zigzag = 0;
      let unit = 1;
      let more = true;
      while (more) {
        zigzag += (data[at] & 127) * unit;
        unit *= 128;
        more = data[at] > 127;
        at += 1;
      }
      if (values.length % length === 0) value = 0;
      value += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
      values.push(value);
    }
    return Float64Array.from(values);
  }

  // ---- the document ----------------------------------------------------------------------------

  // Points in columns: selected rows by label and group; thresholds or settings.
  function readPoints(packed, length) {
    return {
      length,
      selected: ints(packed.selected, length),
      thresholds: packed.thresholds === null ? null : ints(packed.thresholds, length),
      settings: packed.settings === null ? null : floats(packed.settings),
    };
  }

  function open(page) {
    if (page.format !== "fairdial.page" || page.version !== 1) {
      throw new Error("The page needs a document of format fairdial.page, version 1.");
    }
    const dial = {
      page,
      nGroups: page.groups.length,
      nLabels: page.rows.length,
      rows: page.rows.flat(),
      slider: page.slider,
      points: readPoints(page.states, page.states.count),
      certified: null,
    };
    dial.eligible = eligibleOf(dial, dial.rows);
    dial.total = sum(dial.rows);
    dial.negatives = sum(page.rows[0]);
    const { declared } = page.states;
    dial.declared = declared === null ? null : ints(declared, dial.points.length);
    const figures = measure(dial, dial.points);
    dial.gap = figures.gap;
    dial.accuracy = figures.accuracy;
    dial.reachable = reachable(dial.gap);
    if (page.certified.kind !== "none") {
      const packed = page.certified;
      const certified = readPoints(packed, packed.stops);
      certified.stops = Array.from(ints(packed.numbers, packed.stops), (number) => stop(dial, number));
      certified.able = ints(packed.able, packed.stops);
      certified.bounds = floats(packed.bounds);
      certified.needed = ints(packed.needed, packed.stops);
      Object.assign(certified, measure(dial, certified));
      dial.certified = certified;
    }
    return dial;
  }

  function sum(values) {
    return values.reduce((total, value) => total + value, 0);
  }

  // Eligible rows of the criterion by group, from rows by label and group.
  function eligibleOf(dial, rows) {
    const { nGroups, nLabels } = dial;
    const label = dial.page.criterion.counted;
    return Array.from({ length: nGroups }, (_, a) => {
      if (label !== null) return rows[label * nGroups + a];
      return nLabels === 1 ? rows[a] : rows[a] + rows[nGroups + a];
    });
  }

  function gapOf(dial, selected) {
    let low = Infinity;
    let high = -Infinity;
    eligibleOf(dial, selected).forEach((number, a) => {
      const rate = number / dial.eligible[a];
      low = Math.min(low, rate);
      high = Math.max(high, rate);
    });
    return high - low;
  }

  // Correct decisions: positive rows that are selected, negative ones that are not.
  function correctOf(dial, selected) {
    const { nGroups } = dial;
    let correct = dial.negatives;
    for (let a = 0; a < nGroups; a += 1) correct += selected[nGroups + a] - selected[a];
    return correct;
  }

  function accuracyOf(dial, selected) {
    return dial.nLabels === 2 ? correctOf(dial, selected) / dial.total : null;
  }

  function line(columns, length, width, i) {
    return Array.from({ length: width }, (_, c) => columns[c * length + i]);
  }

  function selectedAt(dial, points, i) {
    return line(points.selected, points.length, dial.rows.length, i);
  }

  function measure(dial, points) {
    const gap = new Float64Array(points.length);
    const accuracy = dial.nLabels === 2 ? new Float64Array(points.length) : null;
    for (let i = 0; i < points.length; i += 1) {
      const selected = selectedAt(dial, points, i);
      gap[i] = gapOf(dial, selected);
      if (accuracy) accuracy[i] = accuracyOf(dial, selected);
    }
    return { gap, accuracy };
  }

  // The points that some tolerance leads to: each has a smaller gap than all before it.
  function reachable(gap) {
    const found = [0];
    let best = gap[0];
    for (let i = 1; i < gap.length; i += 1) {
      if (gap[i] < best) {
        found.push(i);
        best = gap[i];
      }
    }
    return Int32Array.from(found);
  }

  // ---- points ----------------------------------------------------------------------------------

  function threshold(number) {
    return Math.abs(number) >= ENDLESS ? Math.sign(number) * Infinity : number / THRESHOLD_UNIT;
  }

  function readPoint(dial, points, i, more) {
    const selected = selectedAt(dial, points, i);
    const thresholds = points.thresholds
      ? line(points.thresholds, points.length, dial.nGroups, i).map(threshold)
      : null;
    return {
      selected,
      thresholds,
      setting: points.settings ? points.settings[i] : null,
      gap: gapOf(dial, selected),
      accuracy: accuracyOf(dial, selected),
      ...more,
    };
  }

  // Place among the reachable points of the first one within the tolerance, or of the last.
  function place(dial, tolerance) {
    let low = 0;
    let high = dial.reachable.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (dial.gap[dial.reachable[middle]] <= tolerance) high = middle;
      else low = middle + 1;
    }
    return Math.min(low, dial.reachable.length - 1);
  }

  // The least constrained point within the tolerance; if there is none, that of the smallest gap.
  function at(dial, tolerance) {
    return uncertified(dial, dial.reachable[place(dial, tolerance)], tolerance);
  }

  function unconstrained(dial) {
    return uncertified(dial, 0, 1);
  }

  // `bounded`: whether the margin holds for the point. It doesn't for settings found by looking.
  function uncertified(dial, i, tolerance) {
    const feasible = dial.gap[i] <= tolerance;
    const bounded = dial.declared === null || dial.declared[i] === 1;
    return readPoint(dial, dial.points, i, { tolerance, feasible, bounded, guarantee: null });
  }

  // ---- stops -----------------------------------------------------------------------------------

  function stop(dial, number) {
    return number / 10 ** dial.slider.digits;
  }

  // The highest stop of the slider that is not above the tolerance.
  function stopBelow(dial, tolerance) {
    return Math.min(roundDown(tolerance, dial.slider.digits), stop(dial, dial.slider.stops));
  }

  // Place of the highest certified stop that is not above the tolerance.
  function certifiedBelow(dial, tolerance) {
    return Math.max(dial.certified.stops.findLastIndex((value) => value <= tolerance), 0);
  }

  // The certified stop that is nearest to a tolerance.
  function certifiedNear(dial, tolerance) {
    const { stops } = dial.certified;
    return stops.reduce((best, value) => (Math.abs(value - tolerance) < Math.abs(best - tolerance) ? value : best));
  }

  // The certified stop that is `by` places away.
  function certifiedNext(dial, tolerance, by) {
    const { stops } = dial.certified;
    return stops[Math.min(Math.max(certifiedBelow(dial, tolerance) + by, 0), stops.length - 1)];
  }

  // The highest tolerance, not above the given one, that the page has an exact answer for.
  function snap(dial, tolerance, confident) {
    if (confident) return dial.certified.stops[certifiedBelow(dial, tolerance)];
    const { decimals } = dial.page.states;
    return decimals === null ? tolerance : roundDown(tolerance, decimals);
  }

  function roundDown(value, decimals) {
    const unit = 10 ** decimals;
    let number = Math.round(value * unit) + 1;
    while (number > 0 && number / unit > value) number -= 1;
    return number / unit;
  }

  // The certified point at a tolerance; its guarantee says whether there is one.
  function certifiedAt(dial, tolerance) {
    const { certified } = dial;
    const i = certifiedBelow(dial, tolerance);
    const stopAt = certified.stops[i];
    if (!certified.able[i]) {
      const guarantee = { able: false, needed: certified.needed[i] };
      return { ...at(dial, stopAt), guarantee };
    }
    const guarantee = { able: true, bound: certified.bounds[i] };
    return readPoint(dial, certified, i, { tolerance: stopAt, feasible: true, bounded: true, guarantee });
  }

  // Shortest decimal tolerance that leads to the reachable point at this place, and to no other.
  function toleranceOf(dial, where) {
    const gap = dial.gap[dial.reachable[where]];
    const above = where === 0 ? Infinity : dial.gap[dial.reachable[where - 1]];
    for (let digits = dial.slider.digits; digits <= 15; digits += 1) {
      const unit = 10 ** digits;
      let number = Math.floor(gap * unit);
      while (number / unit < gap) number += 1;
      if (number / unit < above && number / unit <= 1) return number / unit;
    }
    return gap;
  }

  // The tolerance of the smallest gap with at least this accuracy, or null.
  function leastGap(dial, accuracy, confident) {
    if (confident) {
      const { able, accuracy: reached, stops } = dial.certified;
      return stops.find((_, i) => able[i] && reached[i] >= accuracy) ?? null;
    }
    for (let where = dial.reachable.length - 1; where >= 0; where -= 1) {
      if (dial.accuracy[dial.reachable[where]] >= accuracy) return toleranceOf(dial, where);
    }
    return null;
  }

  function bestAccuracy(dial, confident) {
    if (!confident) return dial.reachable.reduce((best, i) => Math.max(best, dial.accuracy[i]), 0);
    const { certified } = dial;
    return certified.accuracy.reduce((best, value, i) => (certified.able[i] ? Math.max(best, value) : best), 0);
  }

  // Accuracy at the smallest gap, at its best and without a limit; `fall` is how far it drops on
  // the way from the smallest gap to no limit.
  function trend(dial) {
    const order = Array.from(dial.reachable).reverse();
    const accuracy = order.map((i) => dial.accuracy[i]);
    let best = 0; // its place; of several, the one with the smallest gap
    let fall = 0;
    accuracy.forEach((value, i) => {
      if (value > accuracy[best]) best = i;
      fall = Math.max(fall, accuracy[best] - value);
    });
    return {
      strictest: accuracy[0],
      best: accuracy[best],
      bestGap: dial.gap[order[best]],
      unconstrained: accuracy[accuracy.length - 1],
      fall,
    };
  }

  // Where a point is marked on the axis of tolerances: at its gap if that is above the tolerance.
  function axisValue(dial, tolerance, selected) {
    return Math.max(tolerance, gapOf(dial, selected));
  }

  // What the tolerance in use selects; null if there is none, or if this page can't know.
  function selectedIn(dial, used) {
    if (used === null) return null;
    if (used.selected) return used.selected.flat();
    const confident = Boolean(used.confidence);
    if (confident && !(dial.certified && used.confidence === dial.page.certified.level)) return null;
    if (snap(dial, used.tolerance, confident) !== used.tolerance) return null;
    if (!confident) return at(dial, used.tolerance).selected;
    const found = certifiedAt(dial, used.tolerance);
    return found.guarantee.able ? found.selected : null;
  }

  // What a point is compared with: the decisions in use (null if unknown), or, if those are the
  // same, the decisions without a limit.
  function baseline(dial, used, selected) {
    const same = used !== null && used.every((count, i) => count === selected[i]);
    return used === null || same
      ? { selected: unconstrained(dial).selected, used: false, same }
      : { selected: used, used: true, same };
  }

  // ---- tables ----------------------------------------------------------------------------------

  // [part, whole] of each figure, for every group and for all together (group null); figures that
  // need labels are null without them.
  function table(dial, selected) {
    const { nGroups, nLabels, rows, page } = dial;
    const cells = (values, a) => Array.from({ length: nLabels }, (_, label) => values[label * nGroups + a]);
    const figures = (group, chosen, all) => ({
      group,
      people: sum(all),
      selected: [sum(chosen), sum(all)],
      truePositive: nLabels === 2 ? [chosen[1], all[1]] : null,
      falsePositive: nLabels === 2 ? [chosen[0], all[0]] : null,
      correct: nLabels === 2 ? [chosen[1] + all[0] - chosen[0], sum(all)] : null,
    });
    const lines = page.groups.map((group, a) => figures(group, cells(selected, a), cells(rows, a)));
    const everybody = (values) => Array.from({ length: nLabels }, (_, label) =>
      sum(values.slice(label * nGroups, (label + 1) * nGroups)));
    return nGroups === 1 ? lines : [...lines, figures(null, everybody(selected), everybody(rows))];
  }

  // Changes between two points by group. Moving a threshold changes all affected rows of a group in
  // the same way, so differences of counts are exact; between models of a family they are net.
  function flips(dial, before, after) {
    const { nGroups, nLabels, page } = dial;
    return page.groups.map((group, a) => {
      const changes = Array.from({ length: nLabels }, (_, label) =>
        after[label * nGroups + a] - before[label * nGroups + a]);
      return {
        group,
        gained: sum(changes.map((change) => Math.max(change, 0))),
        lost: sum(changes.map((change) => Math.max(-change, 0))),
        byLabel: nLabels === 2 ? changes : null,
      };
    });
  }

  // The histogram: rows in each bin by group and label.
  function histogram(dial) {
    const packed = dial.page.histogram;
    if (packed === null) return null;
    const { nGroups, nLabels } = dial;
    const counts = ints(packed.counts, packed.bins * nGroups * nLabels);
    const bins = (a, label) => counts.slice((a * nLabels + label) * packed.bins, (a * nLabels + label + 1) * packed.bins);
    return {
      edges: floats(packed.edges),
      groups: Array.from({ length: nGroups }, (_, a) =>
        Array.from({ length: nLabels }, (_, label) => bins(a, label))),
    };
  }

  root.fairdial = Object.assign(root.fairdial || {}, {
    dial: {
      accuracyOf, at, axisValue, baseline, bestAccuracy, certifiedAt, certifiedNear, certifiedNext, flips,
      floats, gapOf, histogram, ints, leastGap, open, place, selectedIn, snap, stop, stopBelow, table,
      toleranceOf, trend, unconstrained,
    },
  });
})(globalThis);
