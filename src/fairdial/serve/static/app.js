// The page: its state, what it shows, and what people do. Moving the slider makes no request.
"use strict";

(function (root) {
  const { charts, dial: core, phrases, picture, server, tables } = root.fairdial;
  const { setText } = tables;
  const PAUSE = 500; // ms without a move before screen readers hear the new figures
  const MANY = 12; // groups at most whose scores are drawn

  const byId = (id) => document.getElementById(id);

  const view = {
    dial: null,
    served: null, // the server's dial, if there is a server
    tolerance: 0,
    confident: false,
    frontier: null, // charts and update functions of tables; null if there is none
    scores: null,
    settings: null,
    picture: null,
    groups: null,
    rising: null,
    flips: null,
    timer: 0,
    frame: 0,
  };

  // ---- the limit -------------------------------------------------------------------------------

  const current = () => (view.confident
    ? core.certifiedAt(view.dial, view.tolerance)
    : core.at(view.dial, view.tolerance));

  // The limit in use: the server's, else the one in the document.
  const deployed = () => view.served || view.dial.page.deployed;

  function turn(tolerance) {
    view.tolerance = core.snap(view.dial, Math.min(Math.max(tolerance, 0), 1), view.confident);
    if (!view.frame) {
      view.frame = requestAnimationFrame(() => {
        view.frame = 0;
        show();
      });
    }
  }

  // Messages are about the last action, so the next action removes them.
  function clearMessages() {
    ["dial-note", "apply-status"].forEach((id) => setText(byId(id), ""));
  }

  function setConfident(confident) {
    const { dial } = view;
    view.confident = confident;
    document.querySelector(`[name="confidence"][value="${confident ? "certified" : "plain"}"]`).checked = true;
    [view.first, view.last] = core.ends(dial, confident);
    const slider = byId("slider");
    [slider.min, slider.max] = [view.first, view.last];
    slider.disabled = view.first === view.last;
    [byId("start").textContent, byId("end").textContent] = phrases.ends(dial, confident);
  }

  // Sets the limit from a place on the slider or on the chart; only to one that is in reach.
  function goNear(tolerance) {
    const { dial, confident } = view;
    const near = Math.max(tolerance, core.stop(dial, view.first));
    turn(confident ? core.certifiedNear(dial, near) : core.stopBelow(dial, near));
  }

  // With confidence, keys move between certified stops, which are further apart than the slider's.
  function step(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!view.confident || by === undefined) return;
    event.preventDefault();
    clearMessages();
    goNear(core.certifiedNext(view.dial, view.tolerance, by));
  }

  // ---- what is shown ---------------------------------------------------------------------------

  function show() {
    const { dial } = view;
    const point = current();
    const { digits } = dial.slider;
    const text = phrases.points(point.tolerance, digits);
    const slider = byId("slider");
    slider.value = Math.round(point.tolerance * 10 ** digits);
    slider.setAttribute("aria-valuetext", phrases.withUnit(text));
    const [sentence, cost] = [phrases.sentence(dial, point), phrases.cost(dial, point)];
    const [verdict, guarantee] = [phrases.verdict(dial, point), phrases.guarantee(dial, point)];
    byId("tolerance").value = text;
    setText(byId("unit"), phrases.unit(text));
    setText(byId("sentence"), sentence);
    setText(byId("cost"), cost);
    setText(byId("verdict"), verdict);
    setText(byId("guarantee"), guarantee);
    byId("certificate").className = `guarantee ${point.guarantee === null ? "" : point.guarantee.able ? "able" : "refused"}`;
    view.picture(point);
    if (view.frontier) charts.showPoint(view.frontier, point, view.confident);
    if (view.scores) charts.showThresholds(view.scores, point);
    if (view.settings) view.settings(point);
    view.groups(point);
    const rising = core.risingAt(dial, point.tolerance);
    if (view.rising) {
      setText(byId("rising-text"), phrases.leveling(dial, point, rising));
      view.rising(point, rising);
    }
    const flips = core.flips(dial, core.unconstrained(dial).selected, point.selected);
    setText(byId("flips-text"), phrases.changes(dial, flips));
    view.flips(flips);
    if (isUsed(point)) showSame();
    else showApply(point, text);
    clearTimeout(view.timer);
    view.timer = setTimeout(() => {
      setText(byId("live"), [`${phrases.withUnit(text)}.`, sentence, cost, verdict && `${verdict}.`, guarantee].filter(Boolean).join(" "));
    }, PAUSE);
  }

  // Where a tolerance is on the slider, from 0 to 1.
  function shareOf(tolerance) {
    const number = tolerance * 10 ** view.dial.slider.digits;
    return Math.min(Math.max((number - view.first) / Math.max(view.last - view.first, 1), 0), 1);
  }

  function showUsed() {
    const { dial } = view;
    if (!view.frontier) return;
    const used = deployed();
    const point = core.pointIn(dial, used);
    charts.showUsed(view.frontier, used, point);
    const mark = byId("in-use");
    mark.hidden = used === null;
    if (used) mark.style.setProperty("--share", shareOf(used.tolerance));
    tables.key(byId("frontier-key"), charts.frontierKey(dial, point !== null, view.confident));
  }

  // Whether the server already uses this limit.
  function isUsed(point) {
    const level = view.confident ? view.dial.page.certified.level : null;
    const { served } = view;
    return served !== null && point.tolerance === served.tolerance && level === (served.confidence || null);
  }

  function showSame() {
    byId("apply-button").disabled = true;
    setText(byId("apply-button"), "Apply");
    setText(byId("apply-note"), `${inUse()} Move the slider to choose another limit.`);
  }

  function inUse() {
    const { reason } = view.served;
    return `In use now: ${phrases.limit(view.dial, view.served)}${reason ? ` (${reason})` : ""}.`;
  }

  function showApply(point, text) {
    if (!view.served || !view.served.writable) return;
    const { level } = view.dial.page.certified;
    const { least_confidence: least } = view.served;
    const guaranteed = !view.confident || point.guarantee.able;
    const accepted = !least || (view.confident && level >= least);
    const confidence = view.confident ? `, ${phrases.confidence(level)} confidence` : "";
    setText(byId("apply-button"), `Apply ${phrases.withUnit(text)}${confidence}`);
    byId("apply-button").disabled = !guaranteed || !accepted;
    const used = core.pointIn(view.dial, view.served);
    const change = used ? phrases.differ(view.dial, core.flips(view.dial, used.selected, point.selected)) : "";
    setText(byId("apply-note"), phrases.applying(inUse() + change, guaranteed, accepted ? null : least));
  }

  // Scores of the groups; of a family, its models instead.
  function makeScores() {
    const { dial } = view;
    const { measured, histogram } = dial.page;
    const drawn = !measured && histogram !== null && dial.nGroups <= MANY;
    byId("scores-note").textContent = phrases.aboutScores(dial, drawn);
    if (measured) {
      byId("scores-title").textContent = "The models";
      view.settings = tables.settings(dial, byId("scores"));
    } else if (drawn) {
      view.scores = charts.scores(dial, byId("scores"));
      tables.key(byId("scores-key"), charts.scoresKey(dial));
    }
  }

  // ---- light and dark --------------------------------------------------------------------------

  const prefersDark = root.matchMedia("(prefers-color-scheme: dark)");

  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : prefersDark.matches;
  }

  function showTheme() {
    byId("theme").textContent = isDark() ? "Light mode" : "Dark mode";
    if (view.frontier) view.frontier.chart.redraw(false);
  }

  // ---- the server ------------------------------------------------------------------------------

  async function refresh() {
    const [served, log] = await Promise.all([server.dial(), server.audit()]);
    view.served = served;
    byId("apply-section").hidden = !served.writable;
    byId("audit-section").hidden = false;
    tables.audit(view.dial, byId("audit"), log.entries);
    showUsed();
    show();
  }

  async function apply() {
    const status = byId("apply-status");
    const empty = ["reason", "token"].find((id) => !byId(id).value.trim());
    if (empty) {
      status.textContent = empty === "reason" ? "Enter a reason." : "Enter the token.";
      byId(empty).focus();
      return;
    }
    const by = byId("by").value.trim();
    const change = {
      tolerance: current().tolerance,
      confidence: view.confident ? view.dial.page.certified.level : null,
      reason: byId("reason").value.trim(),
      ...(by ? { by } : {}),
    };
    byId("apply-button").disabled = true;
    status.textContent = "Applying …";
    try {
      const refused = await server.put(change, view.served.version, byId("token").value.trim());
      await refresh();
      status.textContent = refused || `Done. In use now: ${phrases.limit(view.dial, change)}.`;
      if (!refused) ["reason", "token"].forEach((id) => { byId(id).value = ""; });
    } catch {
      status.textContent = "The server could not be reached. Reload the page to see whether the limit was changed.";
      show();
    }
  }

  // ---- what people do --------------------------------------------------------------------------

  function setTyped() {
    const tolerance = phrases.typed(byId("tolerance").value);
    turn(tolerance ?? view.tolerance); // what is no number is replaced
    byId("dial-note").textContent = phrases.typedTo(view.dial, tolerance, view.tolerance);
  }

  function listen() {
    const { dial } = view;
    byId("tolerance").addEventListener("change", setTyped);
    byId("apply").addEventListener("submit", (event) => {
      event.preventDefault();
      clearMessages();
      apply();
    });
    byId("print").addEventListener("click", () => root.print());
    byId("page").addEventListener("input", clearMessages);
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
    [prefersDark, root.matchMedia("print")].forEach((media) => media.addEventListener("change", showTheme));
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
    byId("meaning").textContent = phrases.about(dial);
    byId("software").textContent = `Made with ${page.software}.${view.served ? "" : " Works offline."} Contains counts of people, no individual records.`;
    byId("level").textContent = phrases.confidence(page.certified.level);
    byId("frontier-title").textContent = dial.accuracy ? "What it costs" : "What it changes";
  }

  function start(page) {
    const dial = core.open(page);
    const { slider } = dial;
    const noGap = slider.stops === 0;
    view.dial = dial;
    name(dial);
    ["confidence", "certificate"].forEach((id) => { byId(id).hidden = noGap || (id === "confidence" && dial.certified === null); });
    ["tolerance", "print"].forEach((id) => { byId(id).disabled = noGap; });
    ["frontier-section", "flips-section"].forEach((id) => { byId(id).hidden = noGap; });
    byId("dial-note").textContent = noGap ? "There is no gap to reduce, so there is nothing to set." : "";
    byId("caution").textContent = phrases.caution(dial);
    byId("page").hidden = false;
    byId("loading").hidden = true;
    if (!noGap) {
      view.frontier = charts.frontier(dial, byId("frontier"), (x) => {
        clearMessages();
        goNear(Math.max(x, 0));
      });
    }
    view.picture = picture(dial, byId("picture"));
    tables.key(byId("picture-key"), phrases.pictureKey(dial));
    view.groups = tables.groups(dial, byId("groups"));
    view.flips = tables.flips(dial, byId("flips"));
    if (dial.rising !== null) {
      byId("rising-section").hidden = false;
      view.rising = tables.rising(dial, byId("rising"));
    }
    byId("movement").textContent = phrases.movement(dial);
    tables.curve(dial, byId("curve"));
    tables.help(dial, byId("help"));
    makeScores();
    const used = deployed();
    setConfident(Boolean(used && used.confidence && dial.certified && used.confidence === page.certified.level));
    view.tolerance = core.snap(dial, used ? used.tolerance : core.stop(dial, Math.round((view.first + view.last) / 2)), view.confident);
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
    const [page, served] = await Promise.all([server.frontier(), server.dial()]);
    view.served = served;
    start(page);
    await refresh();
  }

  load().catch((error) => {
    byId("loading").hidden = true;
    byId("trouble").textContent = `The page could not be shown. ${error.message}`;
    byId("trouble").hidden = false;
  });
})(globalThis);
