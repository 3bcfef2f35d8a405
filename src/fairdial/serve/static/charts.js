// The pictures: the frontier (uPlot on a canvas, drawn once; the marker is an element over it) and
// the scores of each group (SVG, drawn once; the threshold is moved).
"use strict";

(function (root) {
  const { dial: core, words } = root.fairdial;
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 600; // of a histogram, in units of its own
  const HEIGHT = 96;
  const FEW = 2; // groups whose panels may be high
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
  const CHANCES = [0.5, 0.2, 0.8, 0.05, 0.95, 0.01, 0.99, 0.001, 0.999]; // the first that fit are shown
  const EDGE = 0.03;
  const APART = 0.09; // of the scale's width

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- the frontier ----------------------------------------------------------------------------

  // Columns for uPlot by rising tolerance: the dial's accuracy, and the accuracy that is certified.
  function columns(dial) {
    const order = Array.from(dial.dialled).reverse();
    const last = core.stop(dial, dial.slider.stops);
    const stops = dial.certified ? dial.certified.stops : [];
    const x = Array.from(new Set([...order.map((i) => dial.gap[i]), ...stops, last])).sort((a, b) => a - b);
    const smallest = dial.gap[order[0]];
    const states = x.map((tolerance) => (tolerance < smallest ? null : dial.dialled[core.place(dial, tolerance)]));
    if (dial.accuracy === null) {
      const rates = dial.counted.map((all, a) => states.map((i) => {
        if (i === null) return null;
        return dial.states.selected[a * dial.states.length + i] / all;
      }));
      return [x, ...rates];
    }
    const accuracy = states.map((i) => (i === null ? null : dial.accuracy[i]));
    if (!dial.certified) return [x, accuracy];
    let stop = -1;
    const certified = x.map((tolerance) => {
      while (stop + 1 < stops.length && stops[stop + 1] <= tolerance) stop += 1;
      return stop >= 0 && dial.certified.able[stop] ? dial.certified.accuracy[stop] : null;
    });
    return [x, accuracy, certified];
  }

  const thickness = (a) => (a < DASHES.length ? 2 : 3.5);

  // The line of a group as a sign for the key.
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

  function range(values) {
    const real = values.filter((value) => value !== null);
    const low = real.reduce((a, b) => Math.min(a, b), Infinity);
    const high = real.reduce((a, b) => Math.max(a, b), -Infinity);
    const room = (high - low) * 0.08 || 0.01;
    return [Math.max(low - room, 0), Math.min(high + room, 1)];
  }

  // Labels of an axis with as many decimals as the one that needs most.
  function labels(splits, sign) {
    const texts = splits.map((value) => String(Number((100 * value).toFixed(4))));
    const decimals = Math.max(...texts.map((text) => (text.split(".")[1] || "").length));
    return texts.map((text) => Number(text).toFixed(decimals) + sign);
  }

  // A dot for each setting of a family; hollow where another one is better.
  function drawSettings(dial, u) {
    const best = new Set(dial.dialled);
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
    const labelled = dial.accuracy !== null;
    const measured = dial.page.measured && labelled;
    const lastStop = core.stop(dial, dial.slider.stops);
    const end = measured ? Math.max(lastStop, ...dial.gap) * 1.02 : lastStop;
    const stepped = root.uPlot.paths.stepped({ align: 1 });
    const line = (i) => ({
      stroke: () => style(labelled && i === 2 ? "--promise" : "--curve"),
      width: labelled ? 2 : thickness(i - 1),
      dash: labelled ? (i === 2 ? [6, 4] : []) : DASHES[(i - 1) % DASHES.length],
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
        axis("Largest gap allowed, in percentage points", { values: (_, splits) => labels(splits, ""), size: 34 }),
        axis(labelled ? "Right decisions" : "Selected", { values: (_, splits) => labels(splits, "%"), size: 58 }),
      ],
      series: [{}, ...data.slice(1).map((_, i) => line(i + 1))],
      bands: labelled && data.length > 2 ? [{ series: [1, 2], fill: () => style("--band") }] : [],
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

  function showPosition({ chart, parts, dial }, position, confident) {
    const x = Math.min(core.standing(dial, position.tolerance, position.selected), chart.scales.x.max);
    move(parts.hair, chart, x, null);
    parts.marker.hidden = position.accuracy === null;
    if (!parts.marker.hidden) move(parts.marker, chart, x, position.accuracy);
    parts.zone.hidden = !(confident && dial.certified);
    if (!parts.zone.hidden) {
      const first = dial.certified.able.indexOf(1);
      const upTo = Math.min(first < 0 ? Infinity : dial.certified.stops[first], chart.scales.x.max);
      parts.zone.style.width = `${chart.valToPos(upTo, "x")}px`;
    }
  }

  // What the signs mean; where there are no labels, each group has a line.
  function frontierKey(dial, used, confident) {
    if (dial.accuracy === null) return dial.page.groups.map((group, a) => ["", words.label(group), sample(a)]);
    const { certified, measured } = dial.page;
    const unpromised = confident && !dial.certified.able[0];
    const last = core.stop(dial, dial.slider.stops);
    const drawn = dial.certified && dial.certified.stops.some((stop, i) => dial.certified.able[i] && stop < last);
    return [
      ["marker", "this position"],
      ...(used ? [["used", "in use"]] : []),
      ["curve", measured ? "the best setting for each gap" : "the dial, on the people measured"],
      ...(measured ? [["setting", "a setting"], ["setting hollow", "a setting that another one beats"]] : []),
      ...(drawn ? [["promised", `held for new people, with ${words.confidence(certified.level)} confidence`]] : []),
      ...(unpromised ? [["unpromised", "too few people measured to promise it"]] : []),
    ];
  }

  function showUsed({ chart, parts, dial }, deployed, selected) {
    parts.used.hidden = selected === null || dial.accuracy === null;
    if (parts.used.hidden) return;
    const x = Math.min(core.standing(dial, deployed.tolerance, selected), chart.scales.x.max);
    move(parts.used, chart, x, core.accuracyOf(dial, selected));
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

  // Outline of bars from `base` up to `top`, both rows in each bin.
  function bars(base, top, most) {
    const step = WIDTH / top.length;
    const y = (value) => (HEIGHT * (1 - value / most)).toFixed(2);
    let path = "";
    top.forEach((value, i) => {
      if (value > base[i]) {
        path += `M${(i * step).toFixed(2)} ${y(base[i])}V${y(value)}h${(step - 0.8).toFixed(2)}V${y(base[i])}z`;
      }
    });
    return path;
  }

  function ticks(edges) {
    const [low, high] = [edges[0], edges[edges.length - 1]];
    const shown = [];
    CHANCES.forEach((chance) => {
      const share = (Math.log(chance / (1 - chance)) - low) / (high - low);
      const fits = share >= EDGE && share <= 1 - EDGE && shown.every((tick) => Math.abs(tick.share - share) >= APART);
      if (fits) shown.push({ text: `${Number((100 * chance).toFixed(1))}%`, share });
    });
    return shown;
  }

  // One panel a group: bars by label, the threshold without constraint, and the one that moves.
  function scores(dial, parent) {
    const histogram = core.histogram(dial);
    if (histogram === null) return null;
    const { edges } = histogram;
    parent.classList.toggle("few", dial.nGroups <= FEW);
    const panels = dial.page.groups.map((group, a) => {
      const figure = document.createElement("figure");
      figure.className = "scores";
      const caption = document.createElement("figcaption");
      const name = document.createElement("strong");
      name.textContent = words.label(group);
      const text = document.createElement("span");
      caption.append(name, text);
      const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
      const [negative, positive] = histogram.groups[a];
      const below = positive || negative.map(() => 0);
      const all = negative.map((value, i) => value + below[i]);
      const most = Math.max(...all, 1);
      const tint = svg("rect", { class: "tint", x: 0, y: 0, width: 2 * WIDTH, height: HEIGHT }, drawing);
      svg("path", { class: "bar negative", d: bars(below, all, most) }, drawing);
      if (positive) svg("path", { class: "bar positive", d: bars(below.map(() => 0), below, most) }, drawing);
      const zero = (-edges[0] / (edges[edges.length - 1] - edges[0])) * WIDTH;
      svg("line", { class: "unmoved", x1: zero, x2: zero, y1: 0, y2: HEIGHT }, drawing);
      const limit = svg("line", { class: "limit", x1: 0, x2: 0, y1: 0, y2: HEIGHT }, drawing);
      figure.append(caption, drawing);
      parent.append(figure);
      return { text, tint, limit, drawing, name: words.label(group) };
    });
    const scale = document.createElement("div");
    scale.className = "scale";
    scale.setAttribute("aria-hidden", "true");
    ticks(edges).forEach((tick) => {
      const mark = document.createElement("span");
      mark.textContent = tick.text;
      mark.style.left = `${100 * tick.share}%`;
      scale.append(mark);
    });
    parent.append(scale);
    return { panels, edges };
  }

  function scoresKey(dial) {
    const { labels } = dial.page;
    const name = (side) => `${labels ? `“${labels[side]}”` : side} label`;
    const bars = dial.nLabels === 2
      ? [["positive", name("positive")], ["negative", name("negative")]]
      : [["negative", "people"]];
    return [...bars, ["limit", "this position"], ["unmoved", "unconstrained"], ["tint", "selected"]];
  }

  function chance(threshold) {
    if (threshold === Infinity) return "nobody is selected";
    if (threshold === -Infinity) return "everybody is selected";
    return `selected above ${(100 / (1 + Math.exp(-threshold))).toFixed(1)}%`;
  }

  function showThresholds({ panels, edges }, position) {
    const [low, high] = [edges[0], edges[edges.length - 1]];
    panels.forEach((panel, a) => {
      const threshold = position.thresholds[a];
      const share = Math.min(Math.max((threshold - low) / (high - low), 0), 1);
      const moved = `translate(${(share * WIDTH).toFixed(2)} 0)`;
      panel.limit.setAttribute("transform", moved);
      panel.tint.setAttribute("transform", moved);
      panel.text.textContent = chance(threshold);
      panel.drawing.setAttribute("aria-label", `Scores of ${panel.name}: ${chance(threshold)}`);
    });
  }

  root.fairdial.charts = {
    frontier, frontierKey, resize, scores, scoresKey, showPosition, showThresholds, showUsed,
  };
})(globalThis);
