// The page: elements, events, and the server when there is one. Nothing is asked of the server
// while the dial is being moved.
"use strict";

(function (root) {
  const { charts, dial: core, words } = root.fairdial;
  const PAUSE = 500; // ms without a move before the position is read out
  const CURVE_LINES = 10;
  const SAID = 12; // groups up to which each has a panel of scores

  const byId = (id) => document.getElementById(id);

  const view = {
    dial: null,
    server: null, // what GET v1/dial said, when there is a server
    tolerance: 0,
    confident: false,
    frontier: null,
    scores: null,
    settings: null,
    cells: null,
    flips: null,
    timer: 0,
    frame: 0,
  };

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

  // ---- where the dial stands -------------------------------------------------------------------

  const current = () => (view.confident
    ? core.certifiedAt(view.dial, view.tolerance)
    : core.at(view.dial, view.tolerance));

  // The position in use: of the server, else the one that the document names.
  function deployed() {
    const known = view.server || view.dial.page.deployed;
    return known && typeof known.tolerance === "number" ? known : null;
  }

  // What the position in use selects; null where this page can't know.
  function deployedSelected() {
    const used = deployed();
    if (used === null) return null;
    if (used.selected) return used.selected.flat();
    if (!used.confidence) {
      const exact = core.snap(view.dial, used.tolerance, false) === used.tolerance;
      return exact ? core.at(view.dial, used.tolerance).selected : null;
    }
    const { certified } = view.dial.page;
    if (!view.dial.certified || used.confidence !== certified.level) return null;
    if (core.snap(view.dial, used.tolerance, true) !== used.tolerance) return null;
    const position = core.certifiedAt(view.dial, used.tolerance);
    return position.promise.able ? position.selected : null;
  }

  function turn(tolerance) {
    const wish = Math.min(Math.max(tolerance, 0), 1);
    view.tolerance = core.snap(view.dial, wish, view.confident);
    if (!view.frame) {
      view.frame = requestAnimationFrame(() => {
        view.frame = 0;
        show();
      });
    }
  }

  // ---- drawing ---------------------------------------------------------------------------------

  function show() {
    const { dial } = view;
    const position = current();
    const { digits } = dial.slider;
    const text = words.points(position.tolerance, digits);
    const slider = byId("slider");
    slider.value = Math.min(Math.round(position.tolerance * 10 ** digits), dial.slider.stops);
    slider.setAttribute("aria-valuetext", `${text} ${words.unit(text)}`);
    say(byId("tolerance"), text);
    say(byId("unit"), words.unit(text));
    say(byId("sentence"), words.sentence(dial, position));
    const promise = words.promise(dial, position);
    say(byId("promise"), promise);
    byId("promise").classList.toggle("refused", Boolean(position.promise && !position.promise.able));
    if (view.frontier) charts.showPosition(view.frontier, position, view.confident);
    say(byId("frontier-text"), words.keeps(dial, position));
    if (view.scores) charts.showThresholds(view.scores, position);
    if (view.settings) showSettings(position);
    showGroups(position);
    showFlips(position);
    showApply(position, text);
    clearTimeout(view.timer);
    view.timer = setTimeout(() => {
      say(byId("live"), `${text} ${words.unit(text)}. ${words.sentence(dial, position)} ${promise}`);
    }, PAUSE);
  }

  // Table: two lines a group, at this position and without constraint.
  const FIGURES = ["selected", "truePositive", "falsePositive", "right"];

  function heads() {
    const { labels } = view.dial.page;
    const named = (side) => (labels ? `“${labels[side]}”` : `the ${side} label`);
    return {
      selected: ["Selected", "of all in the group"],
      truePositive: [`Selected, of ${named("positive")}`, "true positive rate"],
      falsePositive: [`Selected, of ${named("negative")}`, "false positive rate"],
      right: ["Right decisions", "accuracy"],
    };
  }

  function head(texts, attributes) {
    const cell = element("th", texts[0], { scope: "col", ...attributes });
    if (texts[1]) cell.append(element("small", texts[1]));
    return cell;
  }

  function fill(cell, figure) {
    const [part, all] = figure;
    const [share, chosen, rest] = cell.querySelectorAll("span");
    say(share, words.percent(part, all));
    say(chosen, words.number(part));
    say(rest, ` of ${words.number(all)}`);
  }

  function makeCell(row, figure) {
    const cell = row.insertCell();
    const counts = element("small", null);
    counts.append(element("span", ""), element("span", "", { class: "of" }));
    cell.append(element("span", ""), counts);
    cell.dataset.figure = figure;
    return cell;
  }

  function makeGroups() {
    const { dial } = view;
    const shown = FIGURES.filter((name) => dial.nLabels === 2 || name === "selected");
    const table = byId("groups");
    const top = element("tr", null);
    top.append(head(["Group"]), ...shown.map((name) => head(heads()[name])));
    table.append(element("caption", `Decisions by group, at this position and ${words.least(dial).long}`, { class: "hidden" }));
    table.createTHead().append(top);
    view.cells = core.table(dial, core.free(dial).selected).map((free) => {
      const body = table.createTBody();
      const [title, here, there] = [body.insertRow(), body.insertRow(), body.insertRow()];
      const name = element("th", free.group === null ? "All groups" : words.label(free.group), { scope: "rowgroup", colspan: shown.length + 1 });
      name.append(element("small", words.people(free.people)));
      title.append(name);
      here.append(element("th", "this position", { scope: "row" }));
      there.append(element("th", words.least(dial).short, { scope: "row" }));
      there.className = "free";
      shown.forEach((figure) => fill(makeCell(there, figure), free[figure]));
      return shown.map((figure) => makeCell(here, figure));
    });
  }

  function showGroups(position) {
    core.table(view.dial, position.selected).forEach((figures, i) => {
      view.cells[i].forEach((cell) => fill(cell, figures[cell.dataset.figure]));
    });
  }

  function makeFlips() {
    const { dial } = view;
    const table = byId("flips");
    const { labels } = dial.page;
    const top = element("tr", null);
    const columns = [["Group"], ["Newly selected"], ["No longer selected"]];
    if (dial.nLabels === 2) {
      columns.push([`Change among ${labels ? `“${labels.positive}”` : "the positive label"}`]);
      columns.push([`Change among ${labels ? `“${labels.negative}”` : "the negative label"}`]);
    }
    top.append(...columns.map((texts) => head(texts)));
    table.append(element("caption", "Decisions that change, by group", { class: "hidden" }));
    table.createTHead().append(top);
    const body = table.createTBody();
    view.flips = dial.page.groups.map((group) => {
      const row = body.insertRow();
      row.append(element("th", words.label(group), { scope: "row" }));
      return columns.slice(1).map(() => {
        const cell = row.insertCell();
        cell.className = "count";
        return cell;
      });
    });
  }

  const signed = (value) => (value === 0 ? "0" : `${value > 0 ? "+" : "−"}${words.number(Math.abs(value))}`);

  function showFlips(position) {
    const { dial } = view;
    const before = deployedSelected();
    const from = before === null
      ? words.least(dial).model
      : `the position in use (${words.setting(dial, deployed())})`;
    const changes = core.flips(dial, before || core.free(dial).selected, position.selected);
    say(byId("flips-text"), words.flips(dial, changes, from));
    changes.forEach((change, i) => {
      const [gained, lost, ...byLabel] = view.flips[i];
      say(gained, signed(change.gained));
      say(lost, signed(-change.lost));
      if (change.byLabel) {
        say(byLabel[0], signed(change.byLabel[1]));
        say(byLabel[1], signed(change.byLabel[0]));
      }
    });
  }

  function key(list, items) {
    list.replaceChildren(...items.map(([mark, text, sample]) => {
      const item = element("li", null);
      item.append(sample || element("span", "", { class: `sign ${mark}`, "aria-hidden": "true" }), text);
      return item;
    }));
  }

  function showUsed() {
    const { dial } = view;
    const used = deployed();
    const selected = deployedSelected();
    const accuracy = selected ? core.accuracyOf(dial, selected) : null;
    if (!view.frontier) return;
    charts.showUsed(view.frontier, used, accuracy);
    const mark = byId("in-use");
    mark.hidden = used === null;
    if (used) {
      const share = Math.min(used.tolerance / core.stop(dial, dial.slider.stops), 1);
      mark.style.setProperty("--share", share);
    }
    frontierKey(accuracy !== null);
  }

  function frontierKey(used) {
    const { dial } = view;
    const items = [];
    if (dial.accuracy === null) {
      dial.page.groups.forEach((group, a) => items.push(["", words.label(group), charts.sample(a)]));
    } else {
      items.push(["marker", "this position"]);
      if (used) items.push(["used", "in use"]);
      items.push(["curve", dial.page.measured ? "the best setting for each gap" : "the dial, on the people measured"]);
      if (dial.page.measured) {
        items.push(["setting", "a setting"], ["setting hollow", "a setting that another one beats"]);
      }
      if (dial.certified) {
        items.push(["promised", `held for new people, with ${words.confidence(dial.page.certified.level)} confidence`]);
        if (view.confident && !dial.certified.able[0]) items.push(["unpromised", "too few people measured to promise it"]);
      }
    }
    key(byId("frontier-key"), items);
  }

  function makeCurve() {
    const { dial } = view;
    const { digits, stops } = dial.slider;
    const table = byId("curve");
    const top = element("tr", null);
    const columns = [["Largest gap allowed", "percentage points"], ["Gap", "percentage points"]];
    columns.push(...(dial.accuracy ? [["Right decisions"]] : dial.page.groups.map((group) => [`${words.label(group)}: selected`])));
    top.append(...columns.map((texts) => head(texts)));
    table.createTHead().append(top);
    const body = table.createTBody();
    const lines = Math.min(CURVE_LINES, stops);
    for (let i = 0; i <= lines; i += 1) {
      const position = core.at(dial, core.stop(dial, lines ? Math.round((i * stops) / lines) : 0));
      const row = body.insertRow();
      row.append(element("th", words.points(position.tolerance, digits), { scope: "row" }));
      row.insertCell().textContent = words.gap(position.gap, digits);
      if (dial.accuracy) row.insertCell().textContent = words.percent(position.accuracy, 1);
      else core.table(dial, position.selected).slice(0, dial.nGroups).forEach((line) => {
        row.insertCell().textContent = words.percent(...line.selected);
      });
    }
  }

  function makeScores() {
    const { dial } = view;
    const { labels, measured, histogram } = dial.page;
    const note = byId("scores-note");
    if (measured) {
      byId("scores-title").textContent = "The settings";
      note.textContent = "Each setting is a trained model with scores of its own, so there is no single line to draw. The dial takes the first of these whose gap is within the allowed one.";
      makeSettings();
      return;
    }
    if (histogram === null) {
      note.textContent = "The scores of the people measured are not part of this page.";
      return;
    }
    if (dial.nGroups > SAID) {
      note.textContent = `There are ${dial.nGroups} groups: too many to draw. The table below has them all.`;
      return;
    }
    note.textContent = "The model gives everybody a score: the estimated chance of a positive label. Those above their group’s line are selected; moving the dial moves the lines.";
    view.scores = charts.scores(dial, byId("scores"));
    const name = (side) => `${labels ? `“${labels[side]}”` : side} label`;
    const bars = dial.nLabels === 2
      ? [["positive", name("positive")], ["negative", name("negative")]]
      : [["negative", "people"]];
    key(byId("scores-key"), [...bars, ["limit", "this position"], ["unmoved", "unconstrained"], ["tint", "selected"]]);
  }

  // The settings that the dial chooses among, the most accurate first.
  function makeSettings() {
    const { dial } = view;
    const table = element("table", null, { id: "settings" });
    const top = element("tr", null);
    const columns = [["Setting"], ["Gap", "percentage points"], ...(dial.accuracy ? [["Right decisions"]] : []), ["Position"]];
    top.append(...columns.map((texts) => head(texts)));
    table.createTHead().append(top);
    const body = table.createTBody();
    view.settings = Array.from(dial.dialled, (i) => {
      const row = body.insertRow();
      const setting = dial.states.settings[i];
      row.append(element("th", String(Number(setting.toPrecision(6))), { scope: "row" }));
      row.insertCell().textContent = words.gap(dial.gap[i], dial.slider.digits);
      if (dial.accuracy) row.insertCell().textContent = words.percent(dial.accuracy[i], 1);
      return { row, setting, mark: row.insertCell() };
    });
    const frame = element("div", null, { class: "wide tall", tabindex: 0, role: "group", "aria-label": "The settings" });
    frame.append(table);
    byId("scores").append(frame);
  }

  function showSettings(position) {
    view.settings.forEach(({ row, setting, mark }) => {
      const here = setting === position.setting;
      row.classList.toggle("here", here);
      mark.textContent = here ? "this position" : "";
    });
  }

  function makeHelp() {
    const { dial } = view;
    const { certified, states } = dial.page;
    const items = [
      ["Gap", "The highest group’s rate minus the lowest’s, in percentage points. Which rate is meant stands under the title."],
      ["Largest gap allowed", "The dial. The page shows the least constrained position whose gap is within it. Nothing is trained again when it moves."],
      dial.page.measured
        ? ["Setting", "One of the models that were trained beforehand. The dial takes the most accurate one whose gap is within the allowed one."]
        : ["Unconstrained", "The model as it was trained: the same line, 50%, for everybody."],
      ["Right decisions", "The share of decisions that agree with the label. Labels are what was recorded, not what is just."],
      ["The people measured", `The ${words.number(dial.total)} held-out rows on which the dial was set. All figures on this page are theirs, counted exactly.`],
    ];
    if (certified.kind === "declared") {
      items.push(["New people, with confidence", "A gap measured on some people is never quite the gap of others. With confidence, a stricter position is chosen, so that the gap of new people drawn like these stays within the allowed one. The statement is for one gap that was decided on beforehand; for a gap chosen after looking, the second figure holds."]);
    } else if (certified.kind !== "none") {
      items.push(["New people, with confidence", "A gap measured on some people is never quite the gap of others. With confidence, a stricter position is chosen, so that the gap of new people drawn like these stays within the allowed one. The statement holds for every position at once, so the gap may be chosen after looking."]);
    }
    items.push(["What the dial doesn’t do", "It reduces the gap that is named here; other gaps may grow, which the table shows. It needs to know each person’s group when deciding. It can’t make wrong labels right."]);
    if (states.decimals !== null) {
      items.push(["Positions left out", `The dial has ${words.number(states.of)} positions; this page keeps the ${words.number(states.count)} that gaps with up to ${states.decimals - 2} decimals lead to. Gaps typed with more are rounded down.`]);
    }
    byId("help").append(...items.flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
  }

  // ---- theme -----------------------------------------------------------------------------------

  const darkWished = root.matchMedia("(prefers-color-scheme: dark)");

  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : darkWished.matches;
  }

  function showTheme() {
    byId("theme").textContent = isDark() ? "Light mode" : "Dark mode";
    if (view.frontier) view.frontier.chart.redraw(false);
  }

  // ---- the server ------------------------------------------------------------------------------

  async function ask(path) {
    const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
    if (!answer.ok) throw new Error(`The server answered ${answer.status} to ${path}.`);
    return answer.json();
  }

  async function refresh() {
    const [position, trail] = await Promise.all([ask("v1/dial"), ask("v1/audit")]);
    view.server = position;
    byId("apply-section").hidden = !position.writable;
    byId("audit-section").hidden = false;
    const { dial } = view;
    const time = (text) => {
      const when = new Date(text);
      return Number.isNaN(when.getTime()) ? text : when.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
    };
    const entries = trail.entries.map((entry) => {
      const item = element("li", null);
      const change = entry.old === null || entry.old === undefined
        ? `set to ${words.setting(dial, entry.new)}`
        : `from ${words.setting(dial, entry.old)} to ${words.setting(dial, entry.new)}`;
      item.append(
        element("time", time(entry.time), { datetime: entry.time }),
        element("span", `${entry.who || "somebody"}: ${change}`),
        element("span", entry.reason || "no reason given", { class: "note" }),
      );
      return item;
    });
    byId("audit").replaceChildren(...(entries.length ? entries : [element("li", "None yet.")]));
    showUsed();
  }

  function showApply(position, text) {
    if (!view.server || !view.server.writable) return;
    const promised = !view.confident || position.promise.able;
    const level = words.confidence(view.dial.page.certified.level);
    const button = byId("apply-button");
    button.textContent = `Apply ${text} ${words.unit(text)}${view.confident ? `, ${level} confidence` : ""}`;
    button.disabled = !promised;
    const { reason } = view.server;
    byId("apply-note").textContent = promised
      ? `In use now: ${words.setting(view.dial, view.server)}${reason ? ` (${reason})` : ""}. Every change is recorded with its reason before it takes effect.`
      : "This position can’t be promised, so it can’t be applied with confidence.";
  }

  async function detailOf(answer) {
    try {
      const { detail } = await answer.json();
      return typeof detail === "string" ? detail : "";
    } catch {
      return "";
    }
  }

  async function apply() {
    const status = byId("apply-status");
    const [reason, token] = [byId("reason").value.trim(), byId("token").value.trim()];
    const missing = [[reason, "reason", "Give a reason."], [token, "token", "Give the token."]].find(([value]) => !value);
    if (missing) {
      status.textContent = missing[2];
      byId(missing[1]).focus();
      return;
    }
    const by = byId("by").value.trim();
    const wish = {
      tolerance: current().tolerance,
      confidence: view.confident ? view.dial.page.certified.level : null,
      reason,
      ...(by ? { by } : {}),
    };
    byId("apply-button").disabled = true;
    status.textContent = "Applying …";
    try {
      const answer = await fetch("v1/dial", {
        method: "PUT",
        headers: {
          "Content-Type": "application/json",
          Authorization: `Bearer ${token}`,
          "If-Match": `"${view.server.version}"`,
        },
        body: JSON.stringify(wish),
      });
      status.textContent = answer.ok
        ? `Done. In use now: ${words.setting(view.dial, wish)}.`
        : words.refused(answer.status, await detailOf(answer));
      if (answer.ok) byId("reason").value = "";
      await refresh();
    } catch {
      status.textContent = "The server could not be reached. Reload the page to see whether the dial was moved.";
    }
    byId("apply-button").disabled = false;
    show();
  }

  // ---- start -----------------------------------------------------------------------------------

  // A number as people type it: a comma for the point, a percent sign after it.
  function typed(text) {
    const plain = text.trim().replace(/\s*%$/, "").replace(",", ".");
    return /^\d*\.?\d+$|^\d+\.$/.test(plain) ? Number(words.shift(plain, -2)) : NaN;
  }

  function setConfident(confident) {
    view.confident = confident;
    byId("slider").step = confident ? view.dial.slider.step : 1;
    document.querySelector(`[name="confidence"][value="${confident ? "certified" : "plain"}"]`).checked = true;
  }

  function listen() {
    const { dial } = view;
    byId("slider").addEventListener("input", (event) => turn(core.stop(dial, Number(event.target.value))));
    byId("confidence").addEventListener("change", (event) => {
      setConfident(event.target.value === "certified");
      showUsed();
      turn(view.tolerance);
    });
    byId("exact").addEventListener("submit", (event) => {
      event.preventDefault();
      const wish = typed(byId("typed").value);
      const good = wish >= 0 && wish <= 1;
      byId("exact-note").textContent = good ? "" : "A number from 0 to 100, please.";
      if (!good) return;
      turn(wish);
      if (view.tolerance !== wish) {
        byId("exact-note").textContent = `Set to ${words.points(view.tolerance, dial.slider.digits)}, the nearest below that this page can answer exactly.`;
      }
    });
    byId("least").addEventListener("submit", (event) => {
      event.preventDefault();
      const wish = typed(byId("accuracy").value);
      const note = byId("least-note");
      if (!(wish >= 0 && wish <= 1)) {
        note.textContent = "A number from 0 to 100, please.";
        return;
      }
      const found = core.leastGap(dial, wish, view.confident);
      if (found === null) {
        const best = core.bestAccuracy(dial, view.confident);
        note.textContent = best > 0 ? `The most that the dial reaches is ${words.percent(best, 1)}.` : "No position can be promised.";
        return;
      }
      turn(found);
      note.textContent = `Set to ${words.points(found, dial.slider.digits)}.`;
    });
    byId("apply").addEventListener("submit", (event) => {
      event.preventDefault();
      apply();
    });
    byId("theme").addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      showTheme();
    });
    darkWished.addEventListener("change", showTheme);
    if (view.frontier) {
      new ResizeObserver(() => {
        charts.resize(view.frontier, byId("frontier"));
        showUsed();
        show();
      }).observe(byId("frontier"));
    }
  }

  function start(page) {
    const dial = core.open(page);
    view.dial = dial;
    const { slider } = dial;
    document.title = page.name;
    byId("name").textContent = page.name;
    byId("title").textContent = `Fairness dial · ${page.criterion.title}`;
    byId("meaning").textContent = page.criterion.meaning;
    byId("about").textContent = `Measured on ${words.people(dial.total)}${dial.nGroups > 1 ? ` in ${dial.nGroups} groups` : ""}.`;
    byId("software").textContent = `Made with ${page.software}.${view.server ? "" : " Works without a network."} Holds counts of people, no records.`;
    byId("end").textContent = `${words.least(dial).short} (${words.gap(dial.gap[0], slider.digits)})`;
    byId("level").textContent = words.confidence(page.certified.level);
    byId("least").hidden = dial.accuracy === null;
    byId("confidence").hidden = dial.certified === null;
    byId("slider").max = slider.stops;
    const still = slider.stops === 0;
    byId("slider").disabled = still;
    ["wishes", "frontier-section", "flips-section"].forEach((id) => { byId(id).hidden = still; });
    byId("dial-hint").textContent = still ? "There is no gap to reduce, so there is nothing to dial." : "";
    if (!dial.accuracy) byId("frontier-title").textContent = "What it changes";
    byId("frontier-note").textContent = dial.accuracy
      ? "The smaller the gap that is allowed, the fewer decisions are right. Press on the picture to go there."
      : "Without labels nobody knows which decisions are right; this is how many each group has selected.";
    byId("page").hidden = false;
    if (!still) {
      view.frontier = charts.frontier(dial, byId("frontier"), (x) => {
        turn(core.stop(dial, core.stopBelow(dial, Math.max(x, 0), view.confident ? slider.step : 1)));
      });
    }
    makeGroups();
    makeFlips();
    makeCurve();
    makeScores();
    makeHelp();
    const used = deployed();
    const start = used ? used.tolerance : core.stop(dial, Math.round(slider.stops / 2));
    setConfident(Boolean(used && used.confidence && dial.certified && used.confidence === page.certified.level));
    view.tolerance = core.snap(dial, start, view.confident);
    listen();
    showUsed();
    showTheme();
    show();
  }

  async function load() {
    const block = byId("document");
    if (block) {
      start(JSON.parse(block.textContent));
      return;
    }
    const [page, position] = await Promise.all([ask("v1/frontier"), ask("v1/dial")]);
    view.server = position;
    start(page);
    await refresh();
    show();
  }

  load().catch((error) => {
    byId("trouble").textContent = `The page could not be shown. ${error.message}`;
    byId("trouble").hidden = false;
  });
})(globalThis);
