// The picture: a bar for the rate of each group, without a limit and with this one, and a bracket
// for the gap between the lowest and the highest. One panel for each rate that is demanded.
"use strict";

(function (root) {
  const { dial: core, phrases } = root.fairdial;
  const ENDS = [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]; // of the bars' scale
  const ROOMY = 3; // groups that leave room for thick bars

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

  // One side of a panel: its bars and the bracket; returns the function that fills it.
  function side(dial, parent, title, demands, end) {
    const frame = make("div", "side", parent);
    make("h4", "", frame, title);
    const field = make("div", "field", frame);
    const band = make("div", "band", make("div", "lane", field));
    const few = core.fewOf(dial);
    const rows = dial.page.groups.map((group, a) => {
      const row = make("div", few.includes(a) ? "row few" : "row", field);
      const name = make("span", "name", row, `${phrases.label(group)} `);
      const count = make("small", "", name);
      const people = make("span", "", count);
      make("span", "word", count, " people");
      const lane = make("div", "lane", row);
      return { people, bar: make("div", "bar", lane), value: make("span", "value", lane) };
    });
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
    return (found, tolerance) => {
      const { parts } = found[0];
      const rates = parts.map(rateOf);
      const place = (rate) => `${(100 * Math.min(rate / end, 1)).toFixed(2)}%`;
      rows.forEach(({ people, bar, value }, a) => {
        const text = phrases.number(parts[a][1]);
        if (people.textContent !== text) people.textContent = text;
        bar.style.width = place(rates[a] || 0);
        value.style.left = place(rates[a] || 0);
        value.textContent = phrases.percent(...parts[a]);
      });
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
    const fills = shown.map(([title, places], k) => {
      const panel = make("div", "panel", parent);
      make("h3", "", panel, phrases.capital(title));
      const demands = places.map((j) => dial.page.criterion.demands[j]);
      const sides = make("div", "sides", panel);
      const before = side(dial, sides, phrases.capital(phrases.noLimit(dial).long), demands, ends[k]);
      const after = side(dial, sides, "With this limit", demands, ends[k]);
      const pick = (point) => {
        const all = core.demandsOf(dial, point.cells);
        return places.map((j) => all[j]);
      };
      before(pick(free), null);
      return (point) => after(pick(point), point.tolerance);
    });
    return (point) => fills.forEach((fill) => fill(point));
  }

  root.fairdial.picture = picture;
})(globalThis);
