// The charts: accuracy by limit (uPlot on a canvas, drawn once, with markers as elements above it)
// and the scores of each group (SVG, drawn once; the thresholds move).
"use strict";

(function (root) {
  const { dial: core, phrases } = root.fairdial;
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 600; // of a histogram, in its own units
  const HEIGHT = 96;
  const FEW = 2; // groups that leave room for tall panels
  const SPAN = 0.2; // of the axis of accuracy, at least
  const TICK = 0.05;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
  const CHANCES = [0.5, 0.2, 0.8, 0.05, 0.95, 0.01, 0.99, 0.001, 0.999]; // ticks, by priority
  const EDGE = 0.03;
  const APART = 0.09; // distance of ticks, as a share of the width

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- the frontier ----------------------------------------------------------------------------

  // Columns for uPlot by increasing tolerance: accuracy, and accuracy of the certified points.
  function columns(dial) {
    const last = core.stop(dial, dial.slider.stops);
    const stops = dial.certified ? dial.certified.stops : [];
    const starts = dial.steps.map(([start]) => start).filter((start) => start <= last);
    const x = Array.from(new Set([...starts, ...stops, last])).sort((a, b) => a - b);
    const points = x.map((tolerance) => {
      const i = dial.steps[core.place(dial, tolerance)][1];
      return dial.gap[i] <= tolerance ? i : null;
    });
    if (dial.accuracy === null) {
      const tables = new Map(points.map((i) => [i, i === null ? null : core.table(dial, core.pointAt(dial, i).selected)]));
      const rates = dial.page.groups.map((_, a) => points.map((i) => {
        if (i === null) return null;
        const [part, whole] = tables.get(i)[a].selected;
        return part / whole;
      }));
      return [x, ...rates];
    }
    const accuracy = points.map((i) => (i === null ? null : dial.accuracy[i]));
    if (!dial.certified) return [x, accuracy];
    let stop = -1;
    const certified = x.map((tolerance) => {
      while (stop + 1 < stops.length && stops[stop + 1] <= tolerance) stop += 1;
      return stop >= 0 && dial.certified.able[stop] ? dial.certified.accuracy[stop] : null;
    });
    return [x, accuracy, certified];
  }

  const thickness = (a) => (a < DASHES.length ? 2 : 3.5);

  // The line of a group, as a sign for the legend.
  function sample(a) {
    const drawing = svg("svg", { class: "sample", viewBox: "0 0 32 8", "aria-hidden": "true" });
    const dashes = DASHES[a % DASHES.length].join(" ");
    svg("line", { x1: 0, x2: 32, y1: 4, y2: 4, "stroke-width": thickness(a), "stroke-dasharray": dashes || "none" }, drawing);
    return drawing;
  }

  function axis(label, more) {
    return {
      label,
      labelSize: 24,
      labelGap: 2,
      font: `12px ${style("--font")}`,
      labelFont: `13px ${style("--font")}`,
      stroke: () => style("--quiet"),
      grid: { stroke: () => style("--line"), width: 1 },
      ticks: { show: false },
      ...more,
    };
  }

  // An axis of at least SPAN, so that small differences look small, that ends at multiples of TICK.
  function range(values) {
    const real = values.filter((value) => value !== null);
    const low = real.reduce((a, b) => Math.min(a, b), Infinity);
    const high = real.reduce((a, b) => Math.max(a, b), -Infinity);
    const room = Math.max(SPAN - (high - low), TICK) / 2;
    const first = Math.max(Math.floor((low - room) / TICK), 0);
    const last = Math.min(Math.ceil((high + room) / TICK), Math.round(1 / TICK));
    return [first * TICK, last * TICK];
  }

  // Labels of an axis, all with the same number of decimals.
  function labels(splits, sign) {
    const texts = splits.map((value) => String(Number((100 * value).toFixed(4))));
    const decimals = Math.max(...texts.map((text) => (text.split(".")[1] || "").length));
    return texts.map((text) => Number(text).toFixed(decimals) + sign);
  }

  // A dot for each model of a family; hollow if another model is better.
  function drawSettings(dial, u) {
    const best = new Set(dial.reachable);
    const { ctx } = u;
    const ratio = root.uPlot.pxRatio;
    ctx.save();
    ctx.strokeStyle = style("--curve");
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash([]);
    dial.gap.forEach((gap, i) => {
      ctx.fillStyle = best.has(i) ? style("--curve") : style("--card");
      ctx.beginPath();
      ctx.arc(u.valToPos(gap, "x", true), u.valToPos(dial.accuracy[i], "y", true), 4 * ratio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    });
    ctx.restore();
  }

  function frontier(dial, parent, onPick) {
    const data = columns(dial);
    const labeled = dial.accuracy !== null;
    const measured = dial.page.measured && labeled;
    const lastStop = core.stop(dial, dial.slider.stops);
    const end = measured ? Math.max(lastStop, ...dial.gap) * 1.02 : lastStop;
    const stepped = root.uPlot.paths.stepped({ align: 1 });
    const line = (i) => ({
      stroke: () => style(labeled && i === 2 ? "--guarantee" : "--curve"),
      width: labeled ? 2 : thickness(i - 1),
      dash: labeled ? (i === 2 ? [6, 4] : []) : DASHES[(i - 1) % DASHES.length],
      paths: stepped,
      points: { show: false },
    });
    const shown = measured ? [...data.slice(1).map((c) => Array.from(c)), Array.from(dial.accuracy)] : data.slice(1);
    const limits = range(shown.flatMap((column) => column));
    const options = {
      width: parent.clientWidth,
      height: parent.clientHeight,
      legend: { show: false },
      cursor: { show: false },
      padding: [12, 12, 0, 0],
      scales: { x: { time: false, range: () => [0, end] }, y: { range: () => limits } },
      axes: [
        axis("Largest gap allowed (points)", { values: (_, splits) => labels(splits, ""), size: 34 }),
        axis(labeled ? "Correct decisions" : "Selected", { values: (_, splits) => labels(splits, "%"), size: 58 }),
      ],
      series: [{}, ...data.slice(1).map((_, i) => line(i + 1))],
      
      hooks: { draw: measured ? [(u) => drawSettings(dial, u)] : [] },
    };
    const chart = new root.uPlot(options, data, parent);
    const place = (name) => {
      const element = document.createElement("div");
      element.className = name;
      chart.over.append(element);
      return element;
    };
    const parts = { zone: place("zone"), used: place("used"), hair: place("hair"), marker: place("marker") };
    pick(chart, onPick);
    return { chart, parts, dial };
  }

  function pick(chart, onPick) {
    const go = (event) => {
      if (event.buttons !== 1) return;
      const box = chart.over.getBoundingClientRect();
      onPick(chart.posToVal(event.clientX - box.left, "x"));
    };
    chart.over.addEventListener("pointerdown", go);
    chart.over.addEventListener("pointermove", go);
  }

  function move(element, chart, x, y) {
    const left = chart.valToPos(x, "x");
    const top = y === null ? 0 : chart.valToPos(y, "y");
    element.style.transform = `translate(${left}px, ${top}px)`;
  }

  // What lies in the zone can't be reached, or with confidence not be guaranteed.
  function zoneEnd(dial, confident) {
    if (!confident) return dial.smallest;
    const first = dial.certified.able.indexOf(1);
    return first < 0 ? Infinity : dial.certified.stops[first];
  }

  function showPoint({ chart, parts, dial }, point, confident) {
    const x = Math.min(Math.max(point.tolerance, point.gap), chart.scales.x.max);
    move(parts.hair, chart, x, null);
    parts.marker.hidden = point.accuracy === null;
    if (!parts.marker.hidden) move(parts.marker, chart, x, point.accuracy);
    const upTo = Math.min(zoneEnd(dial, confident), chart.scales.x.max);
    parts.zone.hidden = upTo < core.stop(dial, 1);
    parts.zone.style.width = `${chart.valToPos(upTo, "x")}px`;
  }

  // The legend; without labels, each group has a line.
  function frontierKey(dial, used, confident) {
    if (dial.accuracy === null) return dial.page.groups.map((group, a) => ["", phrases.label(group), sample(a)]);
    const { certified, measured } = dial.page;
    const zone = zoneEnd(dial, confident) >= core.stop(dial, 1);
    const last = core.stop(dial, dial.slider.stops);
    const drawn = dial.certified && dial.certified.stops.some((stop, i) => dial.certified.able[i] && stop < last);
    return [
      ["marker", "this limit"],
      ...(used ? [["used", "in use"]] : []),
      ["curve", measured ? "the best model for each limit" : "accuracy for the people measured"],
      ...(measured ? [["setting", "a model"], ["setting hollow", "a model that another one beats"]] : []),
      ...(drawn ? [["guaranteed", `if the limit must hold for new people, with ${phrases.confidence(certified.level)} confidence`]] : []),
      ...(zone ? [["unguaranteed", confident ? "can’t be guaranteed: too few people measured" : "out of reach"]] : []),
    ];
  }

  function showUsed({ chart, parts, dial }, deployed, point) {
    parts.used.hidden = point === null || dial.accuracy === null;
    if (parts.used.hidden) return;
    const x = Math.min(Math.max(deployed.tolerance, point.gap), chart.scales.x.max);
    move(parts.used, chart, x, core.accuracyOf(dial, point.selected));
  }

  function resize({ chart }, parent) {
    chart.setSize({ width: parent.clientWidth, height: parent.clientHeight });
  }

  // ---- scores ----------------------------------------------------------------------------------

  function svg(name, attributes, parent) {
    const element = document.createElementNS(SVG, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    if (parent) parent.append(element);
    return element;
  }

  // Outline of bars from `base` up to `top`, both as rows in each bin; bins as shares of the width.
  function bars(places, base, top, most) {
    const y = (value) => (HEIGHT * (1 - value / most)).toFixed(2);
    let path = "";
    top.forEach((value, i) => {
      if (value > base[i]) {
        const [left, right] = [places[i] * WIDTH, places[i + 1] * WIDTH - 0.8];
        path += `M${left.toFixed(2)} ${y(base[i])}V${y(value)}H${right.toFixed(2)}V${y(base[i])}z`;
      }
    });
    return path;
  }

  function ticks({ low, high }) {
    const shown = [];
    CHANCES.forEach((chance) => {
      const share = (Math.log(chance / (1 - chance)) - low) / (high - low);
      const fits = share >= EDGE && share <= 1 - EDGE && shown.every((tick) => Math.abs(tick.share - share) >= APART);
      if (fits) shown.push({ text: `${Number((100 * chance).toFixed(1))}%`, share });
    });
    return shown;
  }

  // One panel per group: bars by label, the threshold without a limit, and the one that moves.
  function scores(dial, parent) {
    const histogram = core.histogram(dial);
    if (histogram === null) return null;
    const { low, high } = histogram;
    const share = (score) => Math.min(Math.max((score - low) / (high - low), 0), 1);
    const { thresholds } = core.unconstrained(dial);
    parent.classList.toggle("few", dial.nGroups <= FEW);
    const panels = dial.page.groups.map((group, a) => {
      const figure = document.createElement("figure");
      figure.className = "scores";
      const caption = document.createElement("figcaption");
      const name = document.createElement("strong");
      name.textContent = phrases.label(group);
      const text = document.createElement("span");
      caption.append(name, text);
      const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
      const { edges, labels: [negative, positive] } = histogram.groups[a];
      const places = Array.from(edges, share);
      const below = positive || negative.map(() => 0);
      const all = negative.map((value, i) => value + below[i]);
      const most = Math.max(...all, 1);
      const tint = svg("rect", { class: "tint", x: 0, y: 0, width: 2 * WIDTH, height: HEIGHT }, drawing);
      svg("path", { class: "bar negative", d: bars(places, below, all, most) }, drawing);
      if (positive) svg("path", { class: "bar positive", d: bars(places, below.map(() => 0), below, most) }, drawing);
      const unmoved = share(thresholds[a]) * WIDTH;
      svg("line", { class: "unmoved", x1: unmoved, x2: unmoved, y1: 0, y2: HEIGHT }, drawing);
      const limit = svg("line", { class: "limit", x1: 0, x2: 0, y1: 0, y2: HEIGHT }, drawing);
      figure.append(caption, drawing);
      parent.append(figure);
      return { text, tint, limit, drawing, name: phrases.label(group) };
    });
    const scale = document.createElement("div");
    scale.className = "scale";
    scale.setAttribute("aria-hidden", "true");
    ticks(histogram).forEach((tick) => {
      const mark = document.createElement("span");
      mark.textContent = tick.text;
      mark.style.left = `${100 * tick.share}%`;
      scale.append(mark);
    });
    parent.append(scale);
    return { panels, share };
  }

  function scoresKey(dial) {
    const { labels } = dial.page;
    const name = (side) => `${labels ? `“${labels[side]}”` : side} label`;
    const bars = dial.nLabels === 2
      ? [["positive", name("positive")], ["negative", name("negative")]]
      : [["negative", "people"]];
    return [...bars, ["limit", "line at this limit"], ["unmoved", "line without a limit"], ["tint", "selected"]];
  }

  function chance(threshold) {
    if (threshold === Infinity) return "nobody is selected";
    if (threshold === -Infinity) return "everybody is selected";
    return `selected above ${(100 / (1 + Math.exp(-threshold))).toFixed(1)}%`;
  }

  function showThresholds({ panels, share }, point) {
    panels.forEach((panel, a) => {
      const threshold = point.thresholds[a];
      const moved = `translate(${(share(threshold) * WIDTH).toFixed(2)} 0)`;
      panel.limit.setAttribute("transform", moved);
      panel.tint.setAttribute("transform", moved);
      panel.text.textContent = chance(threshold);
      panel.drawing.setAttribute("aria-label", `Scores of ${panel.name}: ${chance(threshold)}`);
    });
  }

  root.fairdial.charts = {
    frontier, frontierKey, resize, scores, scoresKey, showPoint, showThresholds, showUsed,
  };
})(globalThis);
