// The dial without the page: reads the document of page_data.py, finds positions, counts.
// Pure functions; counts are whole numbers and rates are worked out as Python does, so that
// gaps, accuracies and positions are those of fairdial.Frontier to the last bit.
"use strict";

(function (root) {
  const ENDLESS = 2 ** 31 - 1; // a threshold that selects nobody, or everybody
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

  // Column after column: entry (i, c) stands at c * length + i.
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

  // States in columns: what is selected, by label and group; thresholds or settings.
  function readStates(packed, length) {
    return {
      length,
      selected: ints(packed.selected, length),
      thresholds: packed.thresholds === null ? null : ints(packed.thresholds, length),
      settings: packed.settings === null ? null : floats(packed.settings),
    };
  }

  function open(page) {
    if (page.format !== "fairdial.page" || page.version !== 1) {
      throw new Error("This page reads documents of format fairdial.page, version 1.");
    }
    const dial = {
      page,
      nGroups: page.groups.length,
      nLabels: page.rows.length,
      rows: page.rows.flat(),
      slider: page.slider,
      states: readStates(page.states, page.states.count),
      certified: null,
    };
    dial.counted = count(dial, dial.rows);
    dial.total = sum(dial.rows);
    dial.negatives = sum(page.rows[0]);
    const { declared } = page.states;
    dial.declared = declared === null ? null : ints(declared, dial.states.length);
    const figures = measure(dial, dial.states);
    dial.gap = figures.gap;
    dial.accuracy = figures.accuracy;
    dial.dialled = dialled(dial.gap);
    if (page.certified.kind !== "none") {
      const packed = page.certified;
      const certified = readStates(packed, packed.stops);
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

  // Rows that count for the criterion, by group, of rows by label and group.
  function count(dial, rows) {
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
    count(dial, selected).forEach((number, a) => {
      const rate = number / dial.counted[a];
      low = Math.min(low, rate);
      high = Math.max(high, rate);
    });
    return high - low;
  }

  // Right decisions: positive rows that are selected, negative ones that are not.
  function rightOf(dial, selected) {
    const { nGroups } = dial;
    let right = dial.negatives;
    for (let a = 0; a < nGroups; a += 1) right += selected[nGroups + a] - selected[a];
    return right;
  }

  function accuracyOf(dial, selected) {
    return dial.nLabels === 2 ? rightOf(dial, selected) / dial.total : null;
  }

  function line(columns, length, width, i) {
    return Array.from({ length: width }, (_, c) => columns[c * length + i]);
  }

  function selectedAt(dial, states, i) {
    return line(states.selected, states.length, dial.rows.length, i);
  }

  function measure(dial, states) {
    const gap = new Float64Array(states.length);
    const accuracy = dial.nLabels === 2 ? new Float64Array(states.length) : null;
    for (let i = 0; i < states.length; i += 1) {
      const selected = selectedAt(dial, states, i);
      gap[i] = gapOf(dial, selected);
      if (accuracy) accuracy[i] = accuracyOf(dial, selected);
    }
    return { gap, accuracy };
  }

  // The states that some tolerance leads to: each has a smaller gap than all before it.
  function dialled(gap) {
    const states = [0];
    let best = gap[0];
    for (let i = 1; i < gap.length; i += 1) {
      if (gap[i] < best) {
        states.push(i);
        best = gap[i];
      }
    }
    return Int32Array.from(states);
  }

  // ---- positions -------------------------------------------------------------------------------

  function threshold(number) {
    return Math.abs(number) >= ENDLESS ? Math.sign(number) * Infinity : number / THRESHOLD_UNIT;
  }

  function position(dial, states, i, more) {
    const selected = selectedAt(dial, states, i);
    const limits = states.thresholds
      ? line(states.thresholds, states.length, dial.nGroups, i).map(threshold)
      : null;
    return {
      selected,
      thresholds: limits,
      setting: states.settings ? states.settings[i] : null,
      gap: gapOf(dial, selected),
      accuracy: accuracyOf(dial, selected),
      ...more,
    };
  }

  // Place among the dialled states of the first one within the tolerance, or of the last.
  function place(dial, tolerance) {
    let low = 0;
    let high = dial.dialled.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (dial.gap[dial.dialled[middle]] <= tolerance) high = middle;
      else low = middle + 1;
    }
    return Math.min(low, dial.dialled.length - 1);
  }

  // The least constrained position within the tolerance; if none is, the smallest gap there is.
  function at(dial, tolerance) {
    const state = dial.dialled[place(dial, tolerance)];
    return stateOf(dial, state, tolerance);
  }

  function free(dial) {
    return stateOf(dial, 0, 1);
  }

  // `bounded`: the margin of the whole dial speaks of it. Not of settings found by looking.
  function stateOf(dial, state, tolerance) {
    const feasible = dial.gap[state] <= tolerance;
    const bounded = dial.declared === null || dial.declared[state] === 1;
    return position(dial, dial.states, state, { tolerance, feasible, bounded, promise: null });
  }

  // ---- stops -----------------------------------------------------------------------------------

  function stop(dial, number) {
    return number / 10 ** dial.slider.digits;
  }

  // The highest stop of the slider that is not above the tolerance.
  function stopBelow(dial, tolerance) {
    return Math.min(roundDown(tolerance, dial.slider.digits), stop(dial, dial.slider.stops));
  }

  // Place of the highest stop with something to say about new people, not above the tolerance.
  function promisedBelow(dial, tolerance) {
    return Math.max(dial.certified.stops.findLastIndex((value) => value <= tolerance), 0);
  }

  // Of the stops with something to say about new people, the nearest to a tolerance.
  function promisedNear(dial, tolerance) {
    const { stops } = dial.certified;
    return stops.reduce((best, value) => (Math.abs(value - tolerance) < Math.abs(best - tolerance) ? value : best));
  }

  // And the one that lies `by` places from that which holds.
  function promisedNext(dial, tolerance, by) {
    const { stops } = dial.certified;
    return stops[Math.min(Math.max(promisedBelow(dial, tolerance) + by, 0), stops.length - 1)];
  }

  // What the page makes of a wish: the tolerance it answers exactly.
  function snap(dial, tolerance, confident) {
    if (confident) return dial.certified.stops[promisedBelow(dial, tolerance)];
    const { decimals } = dial.page.states;
    return decimals === null ? tolerance : roundDown(tolerance, decimals);
  }

  function roundDown(value, decimals) {
    const unit = 10 ** decimals;
    let number = Math.round(value * unit) + 1;
    while (number > 0 && number / unit > value) number -= 1;
    return number / unit;
  }

  // The position at a tolerance that holds on new rows; its promise says whether there is one.
  function certifiedAt(dial, tolerance) {
    const { certified } = dial;
    const i = promisedBelow(dial, tolerance);
    const wish = certified.stops[i];
    if (!certified.able[i]) {
      const promise = { able: false, needed: certified.needed[i] };
      return { ...at(dial, wish), promise };
    }
    const promise = { able: true, bound: certified.bounds[i] };
    return position(dial, certified, i, { tolerance: wish, feasible: true, bounded: true, promise });
  }

  // Shortest decimal tolerance that leads to the dialled state at this place, and to no other.
  function toleranceOf(dial, where) {
    const gap = dial.gap[dial.dialled[where]];
    const above = where === 0 ? Infinity : dial.gap[dial.dialled[where - 1]];
    for (let digits = dial.slider.digits; digits <= 15; digits += 1) {
      const unit = 10 ** digits;
      let number = Math.floor(gap * unit);
      while (number / unit < gap) number += 1;
      if (number / unit < above && number / unit <= 1) return number / unit;
    }
    return gap;
  }

  // The tolerance of the smallest gap with at least this accuracy; null: not to be had.
  function leastGap(dial, accuracy, confident) {
    if (confident) {
      const { able, accuracy: reached, stops } = dial.certified;
      return stops.find((_, i) => able[i] && reached[i] >= accuracy) ?? null;
    }
    for (let where = dial.dialled.length - 1; where >= 0; where -= 1) {
      if (dial.accuracy[dial.dialled[where]] >= accuracy) return toleranceOf(dial, where);
    }
    return null;
  }

  function bestAccuracy(dial, confident) {
    if (!confident) return dial.dialled.reduce((best, i) => Math.max(best, dial.accuracy[i]), 0);
    const { certified } = dial;
    return certified.accuracy.reduce((best, value, i) => (certified.able[i] ? Math.max(best, value) : best), 0);
  }

  // How the share of right decisions goes with the allowed gap: at the strictest position, at the
  // best one, at the least constrained one, and how far it falls on the way as more is allowed.
  function course(dial) {
    const order = Array.from(dial.dialled).reverse();
    const accuracy = order.map((i) => dial.accuracy[i]);
    let best = 0; // its place, of several the one with the smallest gap
    let fall = 0;
    accuracy.forEach((value, i) => {
      if (value > accuracy[best]) best = i;
      fall = Math.max(fall, accuracy[best] - value);
    });
    const free = accuracy[accuracy.length - 1];
    return { strict: accuracy[0], best: accuracy[best], bestGap: dial.gap[order[best]], free, fall };
  }

  // Where a position stands on the scale of tolerances: at its gap, where that is above the wish.
  function standing(dial, tolerance, selected) {
    return Math.max(tolerance, gapOf(dial, selected));
  }

  // What a position in use selects; null where there is none, or where this page can't know.
  function selectedIn(dial, used) {
    if (used === null) return null;
    if (used.selected) return used.selected.flat();
    const confident = Boolean(used.confidence);
    if (confident && !(dial.certified && used.confidence === dial.page.certified.level)) return null;
    if (snap(dial, used.tolerance, confident) !== used.tolerance) return null;
    if (!confident) return at(dial, used.tolerance).selected;
    const found = certifiedAt(dial, used.tolerance);
    return found.promise.able ? found.selected : null;
  }

  // With what a position is compared: with the one in use (null: not known), or, where that decides
  // the same, with the model without constraint.
  function compared(dial, used, selected) {
    const same = used !== null && used.every((count, i) => count === selected[i]);
    return used === null || same
      ? { selected: free(dial).selected, used: false, same }
      : { selected: used, used: true, same };
  }

  // ---- tables ----------------------------------------------------------------------------------

  // [part, whole] of each figure, for every group and for all together (group null); null without
  // labels.
  function table(dial, selected) {
    const { nGroups, nLabels, rows, page } = dial;
    const cells = (values, a) => Array.from({ length: nLabels }, (_, label) => values[label * nGroups + a]);
    const figures = (group, chosen, all) => ({
      group,
      people: sum(all),
      selected: [sum(chosen), sum(all)],
      truePositive: nLabels === 2 ? [chosen[1], all[1]] : null,
      falsePositive: nLabels === 2 ? [chosen[0], all[0]] : null,
      right: nLabels === 2 ? [chosen[1] + all[0] - chosen[0], sum(all)] : null,
    });
    const lines = page.groups.map((group, a) => figures(group, cells(selected, a), cells(rows, a)));
    const everybody = (values) => Array.from({ length: nLabels }, (_, label) =>
      sum(values.slice(label * nGroups, (label + 1) * nGroups)));
    return nGroups === 1 ? lines : [...lines, figures(null, everybody(selected), everybody(rows))];
  }

  // Who changes between two positions, by group. Along thresholds a group's rows all change the
  // same way, so differences of counts are exact; between settings of a family they are net.
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

  // The histogram by group: rows in each bin, by label.
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
      accuracyOf, at, bestAccuracy, certifiedAt, compared, course, flips, floats, free, gapOf, histogram,
      ints, leastGap, open, place, promisedNear, promisedNext, selectedIn, snap, standing, stop, stopBelow,
      table, toleranceOf,
    },
  });
})(globalThis);
