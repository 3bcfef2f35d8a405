// The picture: a bar for the rate of each group, without a limit and with this one, and a bracket
// for the gap between the lowest and the highest. What the limit adds to a bar or takes from it has
// a color of its own, and the number of people. One panel for each rate that is demanded.
"use strict";

(function (root) {
  const { dial: core, phrases } = root.fairdial;
  const ENDS = [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]; // of the bars' scale
  const ROOMY = 3; // groups that leave room for thick bars
  const WIDE = 0.5; // share of the scale from which on a bar has room for its value
  const FULL = 0.75; // and from which on there is none beside it

  function make(name, className, parent, text = "") {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text;
    parent.append(element);
    return element;
  }

  const rateOf = ([part, whole]) => (whole > 0 ? part / whole : null);

  // Whether a demand is a level that every rate must reach or may not exceed.
  const isLevel = ({ spread }) => spread === "minimum" || spread === "maximum";

  // Demands by the rate that they are about.
  function panels(dial) {
    const found = new Map();
    dial.page.criterion.demands.forEach((demand, j) => {
      found.set(demand.title, [...(found.get(demand.title) || []), j]);
    });
    return [...found];
  }

  // The end of each panel's scale: the highest rate on the slider, rounded up.
  function scales(dial, shown) {
    const all = core.overview(dial).map((point) => core.demandsOf(dial, point.cells));
    return shown.map(([, [j]]) => {
      const most = Math.max(...all.flatMap((demands) => demands[j].parts.map(rateOf)));
      return ENDS.find((end) => most <= end) ?? 1;
    });
  }

  // A group's row: its name, its bar and the value; returns the function that fills it.
  function line(dial, a, field, end) {
    const row = make("div", core.fewOf(dial).includes(a) ? "row few" : "row", field);
    const head = make("div", "head", row);
    const name = make("span", "name", head, `${phrases.label(dial.page.groups[a])} `);
    const count = make("small", "", name);
    const people = make("span", "", count);
    make("span", "word", count, " people");
    const change = make("span", "change-text", head);
    const lane = make("div", "lane", row);
    const [bar, added, removed] = ["bar", "added", "removed"].map((kind) => make("div", kind, lane));
    const value = make("span", "value", lane);
    const share = (rate) => 100 * Math.min((rate || 0) / end, 1);
    const span = (element, from, to) => {
      element.hidden = !(to > from);
      element.style.left = `${from.toFixed(2)}%`;
      element.style.width = `${Math.max(to - from, 0).toFixed(2)}%`;
    };
    return (part, before) => {
      const [here, there] = [share(rateOf(part)), share(rateOf(before))];
      const text = phrases.number(part[1]);
      if (people.textContent !== text) people.textContent = text;
      bar.style.width = `${here.toFixed(2)}%`;
      span(added, there, here);
      span(removed, here, there);
      change.textContent = phrases.moved(before, part);
      change.classList.toggle("fewer", here < there);
      const inside = here >= 100 * WIDE || Math.max(here, there) > 100 * FULL;
      value.classList.toggle("inside", inside);
      value.style.left = inside ? `max(${here.toFixed(2)}%, 3.4rem)` : `${Math.max(here, there).toFixed(2)}%`;
      value.textContent = phrases.percent(...part);
    };
  }

  // One side of a panel: its bars and the bracket; returns the function that fills it.
  function side(dial, parent, demands, end) {
    const frame = make("div", "side", parent);
    const title = make("h4", "", frame);
    const field = make("div", "field", frame);
    const band = make("div", "band", make("div", "lane", field));
    const rows = dial.page.groups.map((_, a) => line(dial, a, field, end));
    demands.filter(isLevel).forEach((demand) => {
      const line = make("div", "level", band.parentElement);
      line.style.setProperty("left", `${100 * Math.min(demand.level / end, 1)}%`);
    });
    const foot = make("div", "lane foot", frame);
    const bracket = make("div", "bracket", foot);
    const texts = demands.map(() => make("p", "gap", frame));
    const apart = !demands.every(isLevel);
    band.hidden = !apart;
    bracket.hidden = !apart;
    return (found, before, tolerance) => {
      const text = phrases.side(dial, demands, tolerance);
      if (title.textContent !== text) title.textContent = text;
      const { parts } = found[0];
      const rates = parts.map(rateOf);
      const place = (rate) => `${(100 * Math.min(rate / end, 1)).toFixed(2)}%`;
      rows.forEach((fill, a) => fill(parts[a], before[0].parts[a]));
      const known = rates.filter((rate) => rate !== null);
      const [low, high] = [Math.min(...known, 1), Math.max(...known, 0)];
      [band, bracket].forEach((element) => {
        element.style.left = place(low);
        element.style.width = place(Math.max(high - low, 0));
      });
      found.forEach(({ demand, gap }, i) => {
        texts[i].textContent = phrases.apart(demand, gap, tolerance);
        const broken = tolerance !== null && gap > demand.scale * tolerance;
        texts[i].classList.toggle("broken", broken);
      });
    };
  }

  // Draws the picture; returns the function that shows a point.
  function picture(dial, parent) {
    const shown = panels(dial);
    const ends = scales(dial, shown);
    const free = core.unconstrained(dial);
    parent.classList.toggle("roomy", dial.nGroups <= ROOMY);
    const fills = shown.map(([, places], k) => {
      const panel = make("div", "panel", parent);
      const demands = places.map((j) => dial.page.criterion.demands[j]);
      make("h3", "", panel, demands[0].heading);
      const sides = make("div", "sides", panel);
      const [before, after] = [0, 1].map(() => side(dial, sides, demands, ends[k]));
      const pick = (point) => {
        const all = core.demandsOf(dial, point.cells);
        return places.map((j) => all[j]);
      };
      const unlimited = pick(free);
      before(unlimited, unlimited, null);
      return (point) => after(pick(point), unlimited, point.tolerance);
    });
    return (point) => fills.forEach((fill) => fill(point));
  }

  root.fairdial.picture = picture;
})(globalThis);
