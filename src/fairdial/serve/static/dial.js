// The dial without the page: reads the document of page_data.py, finds operating points, counts.
// Pure functions. Counts are whole numbers, and rates are computed in the same order as in Python,
// so gaps, accuracies and points are those of fairdial.Frontier to the last bit.
"use strict";

(function (root) {
  const ENDLESS = 2 ** 31 - 1; // stands for a threshold that selects nobody or everybody
  const THRESHOLD_UNIT = 1000;
  const FEW = 30;
  const SEEN = 40; // stops that scales have room for

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

  // Counts are whole numbers, or sums of weights.
  function counts(packed, length) {
    return typeof packed === "string" ? ints(packed, length) : floats(packed.floats);
  }

  // ---- the document ----------------------------------------------------------------------------

  // Points in columns: selected rows by stratum, label and group; thresholds or settings.
  function readPoints(packed, length) {
    return {
      length,
      selected: counts(packed.selected, length),
      thresholds: packed.thresholds === null ? null : ints(packed.thresholds, length),
      settings: packed.settings === null ? null : floats(packed.settings),
    };
  }

  function open(page) {
    if (page.format !== "fairdial.page" || page.version !== 3) {
      throw new Error("The page needs a document of format fairdial.page, version 3.");
    }
    const dial = {
      page,
      nGroups: page.groups.length,
      nLabels: page.rows.length / page.strata,
      cells: page.rows.flat(), // by stratum, label and group
      slider: page.slider,
      points: readPoints(page.states, page.states.count),
      certified: null,
    };
    dial.rows = byLabel(dial, dial.cells);
    dial.whole = dial.cells.every(Number.isInteger) && dial.points.selected.every(Number.isInteger);
    dial.eligible = eligibleOf(dial);
    dial.total = sum(dial.rows);
    dial.negatives = sum(dial.rows.slice(0, dial.nGroups));
    const { answers, declared, gaps } = page.states;
    dial.declared = declared === null ? null : ints(declared, dial.points.length);
    const figures = measure(dial, dial.points);
    dial.gap = gaps === null ? figures.gap : floats(gaps);
    dial.accuracy = figures.accuracy;
    dial.answers = floats(answers); // the tolerances of the last points
    dial.walked = dial.points.length - dial.answers.length; // points before these
    dial.reachable = reachable(dial.gap.subarray(0, dial.walked));
    dial.steps = steps(dial);
    dial.smallest = dial.gap.reduce((least, gap) => Math.min(least, gap), Infinity);
    dial.rising = readRising(page.rising);
    if (page.certified.kind !== "none") {
      const packed = page.certified;
      const certified = readPoints(packed, packed.stops);
      certified.stops = Array.from(ints(packed.numbers, packed.stops), (number) => stop(dial, number));
      certified.able = ints(packed.able, packed.stops);
      certified.bounds = floats(packed.bounds);
      certified.needed = ints(packed.needed, packed.stops);
      certified.neededEach = ints(packed.needed_each, packed.stops);
      Object.assign(certified, measure(dial, certified));
      dial.certified = certified;
    }
    return dial;
  }

  function sum(values) {
    return values.reduce((total, value) => total + value, 0);
  }

  function readRising(packed) {
    if (packed === null) return null;
    const { count } = packed;
    return {
      length: count,
      gap: floats(packed.gaps),
      selected: counts(packed.selected, count),
    };
  }

  // Counts by label and group: sums over some strata, or over all.
  function byLabel(dial, cells, strata = null) {
    const size = dial.nLabels * dial.nGroups;
    if (cells.length === size) return cells;
    const chosen = strata || Array.from({ length: cells.length / size }, (_, s) => s);
    return Array.from({ length: size }, (_, i) => chosen.reduce((total, s) => total + cells[s * size + i], 0));
  }

  // ---- rates and gaps: the same operations as Demand and Rate in Python --------------------------

  // [numerator, denominator] of a demand's rate in each group.
  function partsOf(dial, demand, cells) {
    const { nGroups, nLabels } = dial;
    const chosen = byLabel(dial, cells, demand.strata);
    const all = byLabel(dial, dial.cells, demand.strata);
    const { eligible, event } = demand;
    const labels = eligible === 0 || eligible === 1 ? [eligible] : Array.from({ length: nLabels }, (_, y) => y);
    return Array.from({ length: nGroups }, (_, a) => {
      const selected = (y) => chosen[y * nGroups + a];
      const rejected = (y) => all[y * nGroups + a] - selected(y);
      const among = { selected, rejected }[eligible] || ((y) => all[y * nGroups + a]);
      const total = (count) => sum(labels.map(count));
      const happened = {
        selected: () => total(selected),
        rejected: () => total(rejected),
        positive: () => among(1),
        correct: () => selected(1) + rejected(0),
      }[event]();
      return [happened, total(among)];
    });
  }

  // How much a demand asks of the tolerance, before scaling.
  function gapOfParts(demand, parts, whole) {
    const known = parts.filter(([, under]) => under > 0);
    if (known.length === 0) return 0;
    const rate = ([over, under]) => over / under;
    const low = known.reduce((best, part) => (rate(part) < rate(best) ? part : best));
    const high = known.reduce((best, part) => (rate(part) > rate(best) ? part : best));
    const most = known.reduce((best, [, under]) => Math.max(best, under), 0);
    const isRatio = demand.spread === "ratio";
    let gap;
    if (demand.spread === "minimum") gap = demand.level - rate(low);
    else if (demand.spread === "maximum") gap = rate(high) - demand.level;
    else if (!whole || most ** 2 >= 2 ** 53) gap = isRatio ? 1 - rate(low) / rate(high) : rate(high) - rate(low);
    else {
      const over = high[0] * low[1];
      gap = (over - low[0] * high[1]) / (isRatio ? over : high[1] * low[1]);
    }
    return gap > 0 ? gap : 0;
  }

  function scaledGap(demand, gap) {
    if (demand.scale === 0) return gap > 0 ? Infinity : 0;
    return demand.scale === 1 ? gap : gap / demand.scale;
  }

  // Each demand with its parts by group and its unscaled gap.
  function demandsOf(dial, cells) {
    return dial.page.criterion.demands.map((demand) => {
      const parts = partsOf(dial, demand, cells);
      return { demand, parts, gap: gapOfParts(demand, parts, dial.whole) };
    });
  }

  // The smallest tolerance that allows these decisions.
  function gapOf(dial, cells) {
    return demandsOf(dial, cells).reduce((most, { demand, gap }) => Math.max(most, scaledGap(demand, gap)), 0);
  }

  // Eligible rows by group; with several demands, the smallest number.
  function eligibleOf(dial) {
    const everybody = { eligible: null, event: "selected" };
    const numbers = dial.page.criterion.demands.map((demand) => {
      const fixed = demand.eligible === "selected" || demand.eligible === "rejected" ? { ...demand, ...everybody } : demand;
      return partsOf(dial, fixed, dial.cells).map(([, under]) => under);
    });
    return numbers[0].map((_, a) => Math.min(...numbers.map((line) => line[a])));
  }

  // Groups with so few eligible rows that their rates say little.
  const fewOf = (dial) => dial.page.groups.map((_, a) => a).filter((a) => dial.eligible[a] < FEW);

  // The objective on the labels, from rows by label and group; null if it can't be known.
  function valueOf(dial, selected) {
    const { terms } = dial.page.objective;
    if (terms === null) return null;
    const [a1, a0, a, b1, b0, b] = terms;
    const falsePositive = sum(selected.slice(0, dial.nGroups));
    const truePositive = sum(selected.slice(dial.nGroups));
    const below = b1 * truePositive + b0 * falsePositive + b;
    return below === 0 ? 0 : (a1 * truePositive + a0 * falsePositive + a) / below;
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

  function cellsAt(dial, points, i) {
    return line(points.selected, points.length, dial.cells.length, i);
  }

  function measure(dial, points) {
    const gap = new Float64Array(points.length);
    const accuracy = dial.nLabels === 2 ? new Float64Array(points.length) : null;
    for (let i = 0; i < points.length; i += 1) {
      const cells = cellsAt(dial, points, i);
      gap[i] = gapOf(dial, cells);
      if (accuracy) accuracy[i] = accuracyOf(dial, byLabel(dial, cells));
    }
    return { gap, accuracy };
  }

  // The points that some tolerance leads to: each has a smaller gap than all before it.
  function reachable(gap) {
    if (gap.length === 0) return new Int32Array(0);
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

  // [lowest tolerance that leads to it, point], by increasing tolerance: answers to tolerances, then
  // points that are walked along. Answers above their own tolerance are the smallest gap.
  function steps(dial) {
    const answered = Array.from(dial.answers, (tolerance, i) => [tolerance, dial.walked + i]).reverse();
    const walked = Array.from(dial.reachable, (i) => [dial.gap[i], i]).reverse();
    return [...answered, ...walked];
  }

  // ---- points ----------------------------------------------------------------------------------

  function threshold(number) {
    return Math.abs(number) >= ENDLESS ? Math.sign(number) * Infinity : number / THRESHOLD_UNIT;
  }

  function readPoint(dial, points, i, more) {
    const cells = cellsAt(dial, points, i);
    const selected = byLabel(dial, cells);
    const thresholds = points.thresholds
      ? line(points.thresholds, points.length, dial.nGroups, i).map(threshold)
      : null;
    return {
      cells,
      selected,
      thresholds,
      setting: points.settings ? points.settings[i] : null,
      gap: gapOf(dial, cells),
      accuracy: accuracyOf(dial, selected),
      ...more,
    };
  }

  // Place among `steps` of the last one that starts at or below the tolerance, or of the first.
  function place(dial, tolerance) {
    let low = 0;
    let high = dial.steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (dial.steps[middle][0] <= tolerance) low = middle + 1;
      else high = middle;
    }
    return Math.max(low - 1, 0);
  }

  // The least constrained point within the tolerance; if there is none, that of the smallest gap.
  function at(dial, tolerance) {
    return uncertified(dial, dial.steps[place(dial, tolerance)][1], tolerance);
  }

  // The first answer within the tolerance where nobody loses, else that of the smallest gap; null if
  // there is none.
  function risingAt(dial, tolerance) {
    const { rising } = dial;
    if (rising === null) return null;
    const within = rising.gap.findIndex((value) => value <= tolerance);
    const i = within < 0 ? rising.length - 1 : within;
    const cells = cellsAt(dial, rising, i);
    const selected = byLabel(dial, cells);
    return {
      tolerance,
      cells,
      selected,
      gap: rising.gap[i],
      feasible: within >= 0,
      accuracy: accuracyOf(dial, selected),
    };
  }

  function pointAt(dial, i) {
    return readPoint(dial, dial.points, i, {});
  }

  function unconstrained(dial) {
    return uncertified(dial, 0, 1);
  }

  // `bounded`: whether the margin holds for the point. It doesn't for settings found by looking.
  function uncertified(dial, i, tolerance) {
    const feasible = dial.gap[i] <= tolerance;
    const bounded = dial.declared === null || dial.declared[i] === 1;
    return readPoint(dial, dial.points, i, { tolerance, feasible, bounded, guarantee: null, gap: dial.gap[i] });
  }

  // ---- stops -----------------------------------------------------------------------------------

  function stop(dial, number) {
    return number / 10 ** dial.slider.digits;
  }

  // The stops at the ends of the slider: the first that is in reach, and no limit. With confidence,
  // the first that is guaranteed, if any is, may lie beyond the latter.
  function ends(dial, confident) {
    const last = dial.slider.stops;
    const unit = 10 ** dial.slider.digits;
    if (!confident) return [Math.min(firstStop(dial, dial.smallest), last), last];
    const { smallest } = dial.page.certified;
    const first = smallest === null ? 0 : Math.round(smallest * unit);
    return [first, Math.max(first, last)];
  }

  // The number of the first stop that is not below the tolerance.
  function firstStop(dial, tolerance) {
    const unit = 10 ** dial.slider.digits;
    let number = Math.max(Math.floor(tolerance * unit) - 1, 0);
    while (number < unit && number / unit < tolerance) number += 1;
    return number;
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
    const rounded = decimals === null ? tolerance : roundDown(tolerance, decimals);
    const answer = dial.answers.find((value) => value <= rounded);
    const walks = dial.walked > 0 && rounded >= dial.gap[dial.reachable[dial.reachable.length - 1]];
    return walks || answer === undefined ? rounded : answer;
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
      const guarantee = { able: false, needed: certified.needed[i], each: certified.neededEach[i] };
      return { ...at(dial, stopAt), guarantee };
    }
    const guarantee = { able: true, bound: certified.bounds[i] };
    return readPoint(dial, certified, i, { tolerance: stopAt, feasible: true, bounded: true, guarantee });
  }

  // What the tolerance in use selects, and its gap; null if there is none, or if this page can't know.
  function pointIn(dial, used) {
    if (used === null) return null;
    if (used.selected) {
      const selected = used.selected.flat();
      return { selected, gap: used.gap ?? gapOf(dial, selected) };
    }
    const confident = Boolean(used.confidence);
    if (confident && !(dial.certified && used.confidence === dial.page.certified.level)) return null;
    if (snap(dial, used.tolerance, confident) !== used.tolerance) return null;
    if (!confident) return at(dial, used.tolerance);
    const found = certifiedAt(dial, used.tolerance);
    return found.guarantee.able ? found : null;
  }

  // Correct decisions that a point gains and loses beside another, by people whose decision changes.
  function corrected(dial, before, after) {
    const changes = flips(dial, before, after).flatMap(({ byLabel }) => [-byLabel[0], byLabel[1]]);
    return {
      gained: sum(changes.map((change) => Math.max(change, 0))),
      lost: sum(changes.map((change) => Math.max(-change, 0))),
    };
  }

  // Points all along the slider, for scales that don't change as it moves.
  function overview(dial) {
    const [, last] = ends(dial, dial.certified !== null);
    return Array.from({ length: SEEN + 1 }, (_, i) => stop(dial, Math.round((i * last) / SEEN)))
      .flatMap((tolerance) => [at(dial, tolerance), ...(dial.certified ? [certifiedAt(dial, tolerance)] : [])]);
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

  // The histograms: for each group the edges of its bins, and by label the rows in each.
  function histogram(dial) {
    const packed = dial.page.histogram;
    if (packed === null) return null;
    const groups = packed.map((group) => {
      const edges = floats(group.edges);
      const bins = edges.length - 1;
      const rows = counts(group.counts, bins * dial.nLabels);
      return { edges, labels: Array.from({ length: dial.nLabels }, (_, y) => rows.slice(y * bins, (y + 1) * bins)) };
    });
    const low = Math.min(...groups.map(({ edges }) => edges[0]));
    const high = Math.max(...groups.map(({ edges }) => edges[edges.length - 1]));
    return { low, high, groups };
  }

  root.fairdial = Object.assign(root.fairdial || {}, {
    dial: {
      accuracyOf, at, certifiedAt, certifiedNear, certifiedNext, corrected, demandsOf, ends, fewOf, flips,
      floats, gapOf, histogram, ints, open, overview, place, pointAt, pointIn, risingAt, snap, stop, stopBelow,
      table, unconstrained, valueOf,
    },
  });
})(globalThis);
