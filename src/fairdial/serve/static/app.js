// The page: where the dial stands, what is shown, what people do. Nothing is asked of the server
// while the dial is being moved.
"use strict";

(function (root) {
  const { charts, dial: core, server, tables, words } = root.fairdial;
  const { say } = tables;
  const PAUSE = 500; // ms without a move before the position is read out
  const MANY = 12; // groups, beyond which scores are not drawn

  const byId = (id) => document.getElementById(id);

  const view = {
    dial: null,
    served: null, // what the server's dial says, when there is a server
    tolerance: 0,
    confident: false,
    frontier: null, // pictures and tables; null where there is none
    scores: null,
    settings: null,
    groups: null,
    flips: null,
    timer: 0,
    frame: 0,
  };

  // ---- where the dial stands -------------------------------------------------------------------

  const current = () => (view.confident
    ? core.certifiedAt(view.dial, view.tolerance)
    : core.at(view.dial, view.tolerance));

  // The position in use: of the server, else the one that the document names.
  const deployed = () => view.served || view.dial.page.deployed;

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

  // Messages speak of what was done last: whatever is done next, they go.
  function hush() {
    ["exact-note", "least-note", "apply-status"].forEach((id) => say(byId(id), ""));
  }

  function setConfident(confident) {
    view.confident = confident;
    document.querySelector(`[name="confidence"][value="${confident ? "certified" : "plain"}"]`).checked = true;
  }

  // Where the dial goes for a place on the slider or on the curve.
  function goNear(tolerance) {
    turn(view.confident ? core.promisedNear(view.dial, tolerance) : core.stopBelow(view.dial, tolerance));
  }

  // Keys go from one promised stop to the next; these are further apart than the slider's own.
  function step(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!view.confident || by === undefined) return;
    event.preventDefault();
    hush();
    turn(core.promisedNext(view.dial, view.tolerance, by));
  }

  // ---- what is shown ---------------------------------------------------------------------------

  function show() {
    const { dial } = view;
    const position = current();
    const { digits, stops } = dial.slider;
    const text = words.points(position.tolerance, digits);
    const slider = byId("slider");
    slider.value = Math.min(Math.round(position.tolerance * 10 ** digits), stops);
    slider.setAttribute("aria-valuetext", `${text} ${words.unit(text)}`);
    const sentence = words.sentence(dial, position);
    const promise = words.promise(dial, position);
    say(byId("tolerance"), text);
    say(byId("unit"), words.unit(text));
    say(byId("sentence"), sentence);
    say(byId("promise"), promise);
    byId("promise").classList.toggle("refused", Boolean(position.promise && !position.promise.able));
    say(byId("frontier-text"), words.keeps(dial, position));
    if (view.frontier) charts.showPosition(view.frontier, position, view.confident);
    if (view.scores) charts.showThresholds(view.scores, position);
    if (view.settings) view.settings(position);
    view.groups(position);
    showFlips(position);
    if (isUsed(position)) showSame();
    else showApply(position, text);
    clearTimeout(view.timer);
    view.timer = setTimeout(() => {
      say(byId("live"), `${text} ${words.unit(text)}. ${sentence} ${promise}`);
    }, PAUSE);
  }

  function showFlips(position) {
    const { dial } = view;
    const before = core.compared(dial, core.selectedIn(dial, deployed()), position.selected);
    const changes = core.flips(dial, before.selected, position.selected);
    say(byId("flips-title"), words.otherwise(dial, before.used));
    say(byId("flips-text"), words.flips(dial, changes, before, deployed()));
    view.flips(changes);
  }

  function showUsed() {
    const { dial } = view;
    if (!view.frontier) return;
    const used = deployed();
    const selected = core.selectedIn(dial, used);
    charts.showUsed(view.frontier, used, selected);
    const mark = byId("in-use");
    mark.hidden = used === null;
    if (used) mark.style.setProperty("--share", Math.min(used.tolerance / core.stop(dial, dial.slider.stops), 1));
    tables.key(byId("frontier-key"), charts.frontierKey(dial, selected !== null, view.confident));
  }

  // Whether a position is the one that the server has in use already.
  function isUsed(position) {
    const level = view.confident ? view.dial.page.certified.level : null;
    const { served } = view;
    return served !== null && position.tolerance === served.tolerance && level === (served.confidence || null);
  }

  function showSame() {
    const { reason } = view.served;
    const used = words.setting(view.dial, view.served);
    byId("apply-button").disabled = true;
    say(byId("apply-button"), "Apply");
    say(byId("apply-note"), `In use now: ${used}${reason ? ` (${reason})` : ""}. Move the dial to put another position to use.`);
  }

  function showApply(position, text) {
    if (!view.served || !view.served.writable) return;
    const { level: asked } = view.dial.page.certified;
    const { reason, least_confidence: least } = view.served;
    const level = words.confidence(asked);
    const promised = !view.confident || position.promise.able;
    const sure = !least || (view.confident && asked >= least);
    say(byId("apply-button"), `Apply ${text} ${words.unit(text)}${view.confident ? `, ${level} confidence` : ""}`);
    byId("apply-button").disabled = !promised || !sure;
    const used = `In use now: ${words.setting(view.dial, view.served)}${reason ? ` (${reason})` : ""}.`;
    say(byId("apply-note"), words.applying(used, promised, sure ? null : least));
  }

  // Scores of the groups; of a family, its settings instead.
  function makeScores() {
    const { dial } = view;
    const { measured, histogram } = dial.page;
    const drawn = !measured && histogram !== null && dial.nGroups <= MANY;
    byId("scores-note").textContent = words.aboutScores(dial, drawn);
    if (measured) {
      byId("scores-title").textContent = "The settings";
      view.settings = tables.settings(dial, byId("scores"));
    } else if (drawn) {
      view.scores = charts.scores(dial, byId("scores"));
      tables.key(byId("scores-key"), charts.scoresKey(dial));
    }
  }

  // ---- light and dark --------------------------------------------------------------------------

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

  async function refresh() {
    const [position, trail] = await Promise.all([server.dial(), server.audit()]);
    view.served = position;
    byId("apply-section").hidden = !position.writable;
    byId("audit-section").hidden = false;
    tables.audit(view.dial, byId("audit"), trail.entries);
    showUsed();
    show();
  }

  async function apply() {
    const status = byId("apply-status");
    const empty = ["reason", "token"].find((id) => !byId(id).value.trim());
    if (empty) {
      status.textContent = empty === "reason" ? "Give a reason." : "Give the token.";
      byId(empty).focus();
      return;
    }
    const by = byId("by").value.trim();
    const wish = {
      tolerance: current().tolerance,
      confidence: view.confident ? view.dial.page.certified.level : null,
      reason: byId("reason").value.trim(),
      ...(by ? { by } : {}),
    };
    byId("apply-button").disabled = true;
    status.textContent = "Applying …";
    try {
      const refused = await server.put(wish, view.served.version, byId("token").value.trim());
      await refresh();
      status.textContent = refused || `Done. In use now: ${words.setting(view.dial, wish)}.`;
      if (!refused) ["reason", "token"].forEach((id) => { byId(id).value = ""; });
    } catch {
      status.textContent = "The server could not be reached. Reload the page to see whether the dial was moved.";
      show();
    }
  }

  // ---- what people do --------------------------------------------------------------------------

  function setTyped() {
    const wish = words.typed(byId("typed").value);
    if (wish !== null) turn(wish);
    byId("exact-note").textContent = words.typedTo(view.dial, wish, view.tolerance);
  }

  function findLeast() {
    const { dial, confident } = view;
    const goal = words.typed(byId("accuracy").value);
    const found = goal === null ? null : core.leastGap(dial, goal, confident);
    if (found !== null) turn(found);
    byId("least-note").textContent = words.leastFound(dial, goal, found, confident);
  }

  function listen() {
    const { dial } = view;
    const submitted = (id, act) => byId(id).addEventListener("submit", (event) => {
      event.preventDefault();
      hush();
      act();
    });
    submitted("exact", setTyped);
    submitted("least", findLeast);
    submitted("apply", apply);
    byId("page").addEventListener("input", hush);
    byId("slider").addEventListener("keydown", step);
    byId("slider").addEventListener("input", (event) => goNear(core.stop(dial, Number(event.target.value))));
    byId("confidence").addEventListener("change", (event) => {
      setConfident(event.target.value === "certified");
      turn(view.tolerance);
      showUsed();
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

  // ---- start -----------------------------------------------------------------------------------

  function name(dial) {
    const { page } = dial;
    document.title = page.name;
    byId("name").textContent = page.name;
    byId("title").textContent = `Fairness dial · ${page.criterion.title}`;
    byId("meaning").textContent = page.criterion.meaning;
    byId("about").textContent = `Measured on ${words.people(dial.total)}${dial.nGroups > 1 ? ` in ${dial.nGroups} groups` : ""}.`;
    byId("software").textContent = `Made with ${page.software}.${view.served ? "" : " Works without a network."} Holds counts of people, no records.`;
    [byId("strict").textContent, byId("end").textContent] = words.ends(dial);
    byId("level").textContent = words.confidence(page.certified.level);
    byId("frontier-title").textContent = dial.accuracy ? "What it costs" : "What it changes";
    byId("frontier-note").textContent = words.aboutFrontier(dial);
  }

  function start(page) {
    const dial = core.open(page);
    const { slider } = dial;
    const still = slider.stops === 0;
    view.dial = dial;
    name(dial);
    byId("least").hidden = dial.accuracy === null;
    byId("confidence").hidden = dial.certified === null;
    byId("slider").max = slider.stops;
    byId("slider").disabled = still;
    ["wishes", "frontier-section", "flips-section"].forEach((id) => { byId(id).hidden = still; });
    byId("dial-hint").textContent = still ? "There is no gap to reduce, so there is nothing to dial." : "";
    byId("page").hidden = false;
    byId("loading").hidden = true;
    if (!still) {
      view.frontier = charts.frontier(dial, byId("frontier"), (x) => {
        hush();
        goNear(Math.max(x, 0));
      });
    }
    view.groups = tables.groups(dial, byId("groups"));
    view.flips = tables.flips(dial, byId("flips"));
    tables.curve(dial, byId("curve"));
    tables.help(dial, byId("help"));
    makeScores();
    const used = deployed();
    setConfident(Boolean(used && used.confidence && dial.certified && used.confidence === page.certified.level));
    view.tolerance = core.snap(dial, used ? used.tolerance : core.stop(dial, Math.round(slider.stops / 2)), view.confident);
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
    const [page, position] = await Promise.all([server.frontier(), server.dial()]);
    view.served = position;
    start(page);
    await refresh();
  }

  load().catch((error) => {
    byId("loading").hidden = true;
    byId("trouble").textContent = `The page could not be shown. ${error.message}`;
    byId("trouble").hidden = false;
  });
})(globalThis);
