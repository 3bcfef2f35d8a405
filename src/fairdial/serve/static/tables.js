// The page's tables and lists. Each function builds one; if its content changes later, it returns
// the function that updates it.
"use strict";

(function (root) {
  const { dial: core, phrases } = root.fairdial;
  const FIGURES = ["selected", "truePositive", "falsePositive", "correct"];
  const ACCURACY = ["Accuracy", "share of correct decisions"];
  const CURVE_LINES = 10;

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    if (text !== null) made.textContent = text;
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  }

  // Text that stays the same is left alone, which saves a new layout.
  function setText(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  // ---- parts of tables -------------------------------------------------------------------------

  function head([title, more], attributes) {
    const cell = element("th", title, { scope: "col", ...attributes });
    if (more) cell.append(element("small", more));
    return cell;
  }

  // A row of column heads, each a title with an explanation in small print.
  function heads(table, titles) {
    const line = element("tr", null);
    line.append(...titles.map((title) => head(title)));
    table.createTHead().append(line);
  }

  // Column heads of which some are grouped under one title.
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

  // A cell for a percentage and its counts; returns the function that fills it.
  function share(row) {
    const cell = row.insertCell();
    const [percent, part, whole] = [element("span", ""), element("span", ""), element("span", "", { class: "of" })];
    const counts = element("small", null);
    counts.append(part, whole);
    cell.append(percent, counts);
    return ([some, all]) => {
      setText(percent, phrases.percent(some, all));
      setText(part, phrases.number(some));
      setText(whole, ` of ${phrases.number(all)}`);
    };
  }

  // ---- tables ----------------------------------------------------------------------------------

  // Two rows per group: with this limit, and without a limit.
  function groups(dial, table) {
    const shown = FIGURES.filter((name) => dial.nLabels === 2 || name === "selected");
    const before = phrases.noLimit(dial);
    caption(table, `Decisions by group, with this limit and ${before.long}`);
    if (shown.length === 1) {
      heads(table, [["Group"], ["Selected", "of all in the group"]]);
    } else {
      headsUnder(table, ["Group"], ["Selected", [
        ["of all", "in the group"],
        [`of ${named(dial, "positive")}`, "true positive rate"],
        [`of ${named(dial, "negative")}`, "false positive rate"],
      ]], ACCURACY);
    }
    const fills = core.table(dial, core.unconstrained(dial).selected).map((line) => {
      const body = table.createTBody();
      const [title, here, there] = [body.insertRow(), body.insertRow(), body.insertRow()];
      const name = line.group === null ? "All groups" : phrases.label(line.group);
      const cell = element("th", name, { scope: "rowgroup", colspan: shown.length + 1 });
      cell.append(element("small", phrases.people(line.people)));
      title.append(cell);
      here.append(element("th", "this limit", { scope: "row" }));
      there.append(element("th", before.short, { scope: "row" }));
      there.className = "baseline";
      shown.forEach((figure) => share(there)(line[figure]));
      return shown.map(() => share(here));
    });
    return (point) => core.table(dial, point.selected).forEach((figures, i) => {
      fills[i].forEach((fill, j) => fill(figures[shown[j]]));
    });
  }

  // A rate's parts, which may have no rows.
  const rateText = ([part, whole]) => phrases.percent(part, whole);

  // Both answers side by side: selected people by group, accuracy and gap.
  function rising(dial, table) {
    const accuracy = dial.accuracy ? [ACCURACY] : [];
    caption(table, "This limit beside the answer where nobody loses");
    heads(table, [["Answer"], ...dial.page.groups.map((group) => [phrases.label(group), "selected"]), ...accuracy, ["Gap"]]);
    const body = table.createTBody();
    const lines = ["this limit", "this limit, if nobody may lose", phrases.noLimit(dial).short].map((name) => {
      const row = body.insertRow();
      row.append(element("th", name, { scope: "row" }));
      return [...dial.page.groups, ...accuracy, "gap"].map(() => row.insertCell());
    });
    const fill = (cells, point) => {
      const rates = core.table(dial, point.selected).slice(0, dial.nGroups).map((line) => rateText(line.selected));
      const texts = [...rates, ...(dial.accuracy ? [phrases.percent(point.accuracy, 1)] : []), phrases.gap(point.gap, dial.slider.digits)];
      cells.forEach((cell, i) => setText(cell, texts[i]));
    };
    fill(lines[2], core.unconstrained(dial));
    return (point, found) => {
      fill(lines[0], point);
      fill(lines[1], found);
    };
  }

  // Who is no longer selected and who is newly selected, as bars on either side.
  function flips(dial, table) {
    caption(table, "Changed decisions by group");
    heads(table, [["Group"], ["No longer selected"], ["Newly selected"]]);
    const body = table.createTBody();
    const lines = dial.page.groups.map((group) => {
      const row = body.insertRow();
      row.append(element("th", phrases.label(group), { scope: "row" }));
      return ["lost", "gained"].map((kind) => {
        const cell = row.insertCell();
        const bar = element("span", "", { class: `change ${kind}` });
        const text = element("span", "");
        cell.append(...(kind === "lost" ? [text, bar] : [bar, text]));
        cell.className = kind;
        return { bar, text };
      });
    });
    const free = core.unconstrained(dial).selected;
    const all = core.overview(dial).flatMap((point) => core.flips(dial, free, point.selected));
    const most = Math.max(1, ...all.flatMap(({ gained, lost }) => [gained, lost]));
    return (changes) => {
      changes.forEach((change, i) => [change.lost, change.gained].forEach((value, j) => {
        const { bar, text } = lines[i][j];
        bar.hidden = value === 0;
        bar.style.width = `calc((100% - 3.5rem) * ${Math.min(value / most, 1).toFixed(4)})`;
        setText(text, phrases.number(value));
      }));
    };
  }

  // The chart at some stops, for people who can't see it.
  function curve(dial, table) {
    const { digits, stops } = dial.slider;
    const rates = dial.accuracy ? [ACCURACY] : dial.page.groups.map((group) => [`${phrases.label(group)}: selected`]);
    heads(table, [["Largest gap allowed", "percentage points"], ["Gap", "percentage points"], ...rates]);
    const body = table.createTBody();
    const lines = Math.min(CURVE_LINES, stops);
    for (let i = 0; i <= lines; i += 1) {
      const point = core.at(dial, core.stop(dial, lines ? Math.round((i * stops) / lines) : 0));
      const figures = dial.accuracy
        ? [[point.accuracy, 1]]
        : core.table(dial, point.selected).slice(0, dial.nGroups).map((line) => line.selected);
      const row = body.insertRow();
      row.append(element("th", phrases.points(point.tolerance, digits), { scope: "row" }));
      row.insertCell().textContent = phrases.gap(point.gap, digits);
      figures.forEach((figure) => { row.insertCell().textContent = phrases.percent(...figure); });
    }
  }

  // The models of a family, the most accurate first.
  function settings(dial, parent) {
    const table = element("table", null, { id: "settings" });
    const accuracy = dial.accuracy ? [ACCURACY] : [];
    heads(table, [["Model", "by its setting"], ["Gap", "percentage points"], ...accuracy, ["This limit"]]);
    const body = table.createTBody();
    const lines = Array.from(dial.reachable, (i) => {
      const row = body.insertRow();
      const setting = dial.points.settings[i];
      row.append(element("th", String(Number(setting.toPrecision(6))), { scope: "row" }));
      row.insertCell().textContent = phrases.gap(dial.gap[i], dial.slider.digits);
      if (dial.accuracy) row.insertCell().textContent = phrases.percent(dial.accuracy[i], 1);
      return { row, setting, mark: row.insertCell() };
    });
    const frame = element("div", null, { class: "wide tall", tabindex: 0, role: "group", "aria-label": "The models" });
    frame.append(table);
    parent.append(frame);
    return (point) => lines.forEach(({ row, setting, mark }) => {
      const here = setting === point.setting;
      row.classList.toggle("here", here);
      setText(mark, here ? "decides" : "");
    });
  }

  // ---- lists -----------------------------------------------------------------------------------

  // The legend of a chart: [sign, text], or [sign, text, drawing of the sign].
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
        element("time", phrases.time(entry.time), { datetime: entry.time }),
        element("span", `${entry.who || "somebody"}: ${phrases.recorded(dial, entry)}`),
        element("span", entry.reason || "no reason given", { class: "note" }),
      );
      return item;
    });
    list.replaceChildren(...(items.length ? items : [element("li", "None yet.")]));
  }

  function help(dial, list) {
    list.append(...phrases.help(dial).flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
  }

  root.fairdial.tables = { audit, curve, flips, groups, help, key, rising, setText, settings };
})(globalThis);
