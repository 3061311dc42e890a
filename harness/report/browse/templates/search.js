// Search and filters of a site without a server: the same as those of chaos serve, over what this page holds.
"use strict";
(() => {
  const data = document.getElementById("entries");
  const form = document.getElementById("filters");
  const found = document.getElementById("found");
  if (!data || !form || !found) return;
  const entries = JSON.parse(data.textContent);
  const table = document.querySelector("table.entries");
  const written = table ? [...table.tBodies[0].rows] : [];
  const saidAtFirst = found.textContent;
  const pages = document.getElementById("pages");
  const tones = { pass: "pass", fail: "fail", unknown: "unknown", running: "running" };
  const glyphs = { pass: "✓", fail: "✕", unknown: "?", running: "▶" };
  const most = 50;
  const hidden = ["plan", "parent"];
  let shown = most;

  const element = (name, text, css) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (css) made.className = css;
    return made;
  };

  const isolated = (text) => element("bdi", text);

  const day = (text) => {
    const at = Date.parse(text + "T00:00:00Z");
    return Number.isNaN(at) ? null : at / 1000;
  };

  const seeds = (text) => {
    const parts = /^\s*(\d{1,19})\s*(?:\.\.\s*(\d{1,19})\s*)?$/.exec(text);
    return parts ? [BigInt(parts[1]), BigInt(parts[2] ?? parts[1])] : null;
  };

  const fits = (entry, wanted) => {
    for (const name of ["verdict", "kind", "workload", "target", "suite", "plan", "parent"]) {
      if (wanted[name] && entry[name] !== wanted[name]) return false;
    }
    const family = wanted.nemesis;
    if (family && !entry.nemeses.some((each) => each === family || each.startsWith(family + ":"))) return false;
    if (wanted.q && !wanted.q.toLowerCase().split(/\s+/).every((word) => entry.words.includes(word))) return false;
    if (wanted.setting) {
      const at = wanted.setting.indexOf("=");
      const name = (at < 0 ? wanted.setting : wanted.setting.slice(0, at)).trim();
      const value = at < 0 ? "" : wanted.setting.slice(at + 1).trim();
      if (!Object.hasOwn(entry.settings, name)) return false;
      if (value && entry.settings[name] !== value) return false;
    }
    if (wanted.seed) {
      const range = seeds(wanted.seed);
      if (range && (entry.seed === null || BigInt(entry.seed) < range[0] || BigInt(entry.seed) > range[1])) return false;
    }
    const since = wanted.since ? day(wanted.since) : null;
    const until = wanted.until ? day(wanted.until) : null;
    return (since === null || entry.started >= since) && (until === null || entry.started < until + 86400);
  };

  const cell = (label, text, css) => {
    const made = element("td", undefined, css);
    made.dataset.label = label;
    made.append(isolated(text));
    return made;
  };

  const row = (entry) => {
    const made = element("tr");
    const verdict = element("td");
    verdict.dataset.label = "Verdict";
    const word = element("span", undefined, "verdict-word " + (tones[entry.verdict] ?? "none"));
    const glyph = element("span", glyphs[entry.verdict] ?? "–");
    glyph.setAttribute("aria-hidden", "true");
    word.append(glyph, " " + entry.verdict);
    verdict.append(word);
    const head = element("th");
    head.scope = "row";
    const link = element("a", undefined, "name");
    link.href = entry.link;
    link.append(isolated(entry.name));
    head.append(link);
    if (entry.kind !== "run") head.append(" ", element("span", entry.kind, "tag"));
    const reason = element("span", undefined, "reason");
    reason.append(isolated(entry.reason));
    head.append(reason);
    if (entry.note) {
      const note = element("span", "Note: ", "note-line");
      note.append(isolated(entry.note));
      head.append(note);
    }
    const labels = ["Acknowledged", "Lost", "A second", "p99", "Recovery"];
    const report = element("td");
    report.dataset.label = "Report";
    if (entry.report) {
      const to = element("a", "report");
      to.href = entry.report;
      to.append(element("span", " of " + entry.name, "hidden"));
      report.append(to);
    } else report.append(element("span", "none", "quiet"));
    made.append(
      verdict, head, cell("Started", entry.when, "when"), cell("Nemeses", entry.nemeses.join(", ") || "—"),
      cell("Target", entry.target || "—"), cell("Seed", entry.seed ?? "—", "num"),
      ...entry.numbers.map((text, at) => cell(labels[at], text, text === "—" ? "num nothing" : "num")), report,
    );
    return made;
  };

  const wantedNow = () => {
    const wanted = {};
    for (const [name, value] of new FormData(form)) if (value) wanted[name] = value;
    const query = new URLSearchParams(location.search);
    for (const name of hidden) if (query.get(name)) wanted[name] = query.get(name);
    return wanted;
  };

  const show = () => {
    const wanted = wantedNow();
    const body = table?.tBodies[0];
    if (!body) return;
    if (Object.keys(wanted).length === 0) {
      body.replaceChildren(...written);
      found.textContent = saidAtFirst;
      if (pages) pages.hidden = false;
      return;
    }
    const fitting = entries.filter((entry) => fits(entry, wanted));
    body.replaceChildren(...fitting.slice(0, shown).map(row));
    if (pages) pages.hidden = true;
    const problem = wanted.seed && !seeds(wanted.seed) ? ` The seed ${wanted.seed} is neither a number nor a range such as 1..20.` : "";
    const count = fitting.length.toLocaleString("en");
    found.textContent = (fitting.length === 0 ? "Nothing fits these filters."
      : fitting.length > shown ? `The newest ${shown} of ${count} that fit. ` : `${count} fit, the newest first`) + problem;
    if (fitting.length > shown) {
      const more = element("button", "Show all");
      more.type = "button";
      more.addEventListener("click", () => {
        shown = entries.length;
        show();
      });
      found.append(more);
    }
  };

  for (const [name, value] of new URLSearchParams(location.search)) {
    const field = form.elements.namedItem(name);
    if (field) field.value = value;
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    shown = most;
    const query = new URLSearchParams(wantedNow());
    // A page of a file's address may not change it in every browser.
    try {
      history.replaceState(null, "", query.size ? "?" + query : location.pathname);
    } catch {}
    show();
  });
  show();
})();
