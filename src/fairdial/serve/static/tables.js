// The page's tables and lists: each is made once, and what changes is changed by the function
// that making it gives back.
"use strict";

(function (root) {
  const { dial: core, words } = root.fairdial;
  const FIGURES = ["selected", "truePositive", "falsePositive", "right"];
  const CURVE_LINES = 10;

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    if (text !== null) made.textContent = text;
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  }

  // Text that stays the same is left alone: nothing is laid out anew for it.
  function say(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  // ---- parts of tables -------------------------------------------------------------------------

  function head([title, more], attributes) {
    const cell = element("th", title, { scope: "col", ...attributes });
    if (more) cell.append(element("small", more));
    return cell;
  }

  // A line of column heads, each a title and what it says in small print.
  function heads(table, titles) {
    const line = element("tr", null);
    line.append(...titles.map((title) => head(title)));
    table.createTHead().append(line);
  }

  // Heads of which some stand together under one title.
  function headsUnder(table, first, [title, titles], last) {
    const [above, below] = [element("tr", null), element("tr", null)];
    above.append(
      head(first, { rowspan: 2 }),
      head([title], { scope: "colgroup", colspan: titles.length }),
      head(last, { rowspan: 2 }),
    );
    below.append(...titles.map((name) => head(name, { class: "under" })));
    table.createTHead().append(above, below);
  }

  function caption(table, text) {
    table.append(element("caption", text, { class: "hidden" }));
  }

  function named(dial, side) {
    const { labels } = dial.page;
    return labels ? `“${labels[side]}”` : `the ${side} label`;
  }

  // A cell for a share and the counts that it comes from; gives back what fills it.
  function share(row) {
    const cell = row.insertCell();
    const [percent, part, whole] = [element("span", ""), element("span", ""), element("span", "", { class: "of" })];
    const counts = element("small", null);
    counts.append(part, whole);
    cell.append(percent, counts);
    return ([some, all]) => {
      say(percent, words.percent(some, all));
      say(part, words.number(some));
      say(whole, ` of ${words.number(all)}`);
    };
  }

  // ---- tables ----------------------------------------------------------------------------------

  // Two lines a group: at this position, and without constraint.
  function groups(dial, table) {
    const shown = FIGURES.filter((name) => dial.nLabels === 2 || name === "selected");
    const least = words.least(dial);
    caption(table, `Decisions by group, at this position and ${least.long}`);
    if (shown.length === 1) {
      heads(table, [["Group"], ["Selected", "of all in the group"]]);
    } else {
      headsUnder(table, ["Group"], ["Selected", [
        ["of all", "in the group"],
        [`of ${named(dial, "positive")}`, "true positive rate"],
        [`of ${named(dial, "negative")}`, "false positive rate"],
      ]], ["Right decisions", "accuracy"]);
    }
    const fills = core.table(dial, core.free(dial).selected).map((free) => {
      const body = table.createTBody();
      const [title, here, there] = [body.insertRow(), body.insertRow(), body.insertRow()];
      const name = free.group === null ? "All groups" : words.label(free.group);
      const cell = element("th", name, { scope: "rowgroup", colspan: shown.length + 1 });
      cell.append(element("small", words.people(free.people)));
      title.append(cell);
      here.append(element("th", "this position", { scope: "row" }));
      there.append(element("th", least.short, { scope: "row" }));
      there.className = "free";
      shown.forEach((figure) => share(there)(free[figure]));
      return shown.map(() => share(here));
    });
    return (position) => core.table(dial, position.selected).forEach((figures, i) => {
      fills[i].forEach((fill, j) => fill(figures[shown[j]]));
    });
  }

  const signed = (value) => (value === 0 ? "0" : `${value > 0 ? "+" : "−"}${words.number(Math.abs(value))}`);

  // Who changes, by group; and by label, where labels are known.
  function flips(dial, table) {
    const byLabel = dial.nLabels === 2 ? ["positive", "negative"] : [];
    caption(table, "Decisions that change, by group");
    heads(table, [
      ["Group"], ["Newly selected"], ["No longer selected"],
      ...byLabel.map((side) => [`Change among ${named(dial, side)}`]),
    ]);
    const body = table.createTBody();
    const lines = dial.page.groups.map((group) => {
      const row = body.insertRow();
      row.append(element("th", words.label(group), { scope: "row" }));
      return [0, 1, ...byLabel].map(() => row.insertCell());
    });
    return (changes) => changes.forEach((change, i) => {
      const figures = [change.gained, -change.lost, ...(change.byLabel || []).slice().reverse()];
      lines[i].forEach((cell, j) => say(cell, signed(figures[j])));
    });
  }

  // The curve at some stops, for those who don't see it.
  function curve(dial, table) {
    const { digits, stops } = dial.slider;
    const rates = dial.accuracy ? [["Right decisions"]] : dial.page.groups.map((group) => [`${words.label(group)}: selected`]);
    heads(table, [["Largest gap allowed", "percentage points"], ["Gap", "percentage points"], ...rates]);
    const body = table.createTBody();
    const lines = Math.min(CURVE_LINES, stops);
    for (let i = 0; i <= lines; i += 1) {
      const position = core.at(dial, core.stop(dial, lines ? Math.round((i * stops) / lines) : 0));
      const figures = dial.accuracy
        ? [[position.accuracy, 1]]
        : core.table(dial, position.selected).slice(0, dial.nGroups).map((line) => line.selected);
      const row = body.insertRow();
      row.append(element("th", words.points(position.tolerance, digits), { scope: "row" }));
      row.insertCell().textContent = words.gap(position.gap, digits);
      figures.forEach((figure) => { row.insertCell().textContent = words.percent(...figure); });
    }
  }

  // The settings that the dial chooses among, the most accurate first.
  function settings(dial, parent) {
    const table = element("table", null, { id: "settings" });
    const accuracy = dial.accuracy ? [["Right decisions"]] : [];
    heads(table, [["Setting"], ["Gap", "percentage points"], ...accuracy, ["Position"]]);
    const body = table.createTBody();
    const lines = Array.from(dial.dialled, (i) => {
      const row = body.insertRow();
      const setting = dial.states.settings[i];
      row.append(element("th", String(Number(setting.toPrecision(6))), { scope: "row" }));
      row.insertCell().textContent = words.gap(dial.gap[i], dial.slider.digits);
      if (dial.accuracy) row.insertCell().textContent = words.percent(dial.accuracy[i], 1);
      return { row, setting, mark: row.insertCell() };
    });
    const frame = element("div", null, { class: "wide tall", tabindex: 0, role: "group", "aria-label": "The settings" });
    frame.append(table);
    parent.append(frame);
    return (position) => lines.forEach(({ row, setting, mark }) => {
      const here = setting === position.setting;
      row.classList.toggle("here", here);
      say(mark, here ? "this position" : "");
    });
  }

  // ---- lists -----------------------------------------------------------------------------------

  // What the signs of a picture mean: [sign, text], or [sign, text, drawing of the sign].
  function key(list, items) {
    list.replaceChildren(...items.map(([mark, text, drawing]) => {
      const item = element("li", null);
      item.append(drawing || element("span", "", { class: `sign ${mark}`, "aria-hidden": "true" }), text);
      return item;
    }));
  }

  function audit(dial, list, entries) {
    const items = entries.map((entry) => {
      const item = element("li", null);
      item.append(
        element("time", words.time(entry.time), { datetime: entry.time }),
        element("span", `${entry.who || "somebody"}: ${words.change(dial, entry)}`),
        element("span", entry.reason || "no reason given", { class: "note" }),
      );
      return item;
    });
    list.replaceChildren(...(items.length ? items : [element("li", "None yet.")]));
  }

  function help(dial, list) {
    list.append(...words.help(dial).flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
  }

  root.fairdial.tables = { audit, curve, flips, groups, help, key, say, settings };
})(globalThis);
