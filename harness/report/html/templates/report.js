// The page works without this. With it: a cursor with exact numbers, zoom, tables that filter, violations that open, a
// copy button, and lost records printed in full.
"use strict";

const tip = document.getElementById("tip");
const figures = [...document.querySelectorAll("svg.timeline")];
const main = figures[0];
const SVG = "http://www.w3.org/2000/svg";
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const element = (name, text, css) => {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (css) made.className = css;
  return made;
};

// Zoom: all drawings show the same part of the run.

const zoom = main && { start: 0, end: +main.dataset.end, whole: +main.dataset.end, left: +main.dataset.left, right: +main.dataset.right };
const clock = (second) => {
  const digits = zoom.end - zoom.start < 0.1 ? 3 : zoom.end - zoom.start < 10 ? 2 : 0;
  if (zoom.whole <= 300 || digits) return String(+second.toFixed(Math.max(digits, 1)));
  const pad = (value) => String(Math.floor(value)).padStart(2, "0");
  return zoom.whole <= 7200 ? `${Math.floor(second / 60)}:${pad(second % 60)}` : `${Math.floor(second / 3600)}:${pad((second % 3600) / 60)}`;
};
const show = (start, end) => {
  const length = Math.min(Math.max(end - start, 0.005), zoom.whole);
  zoom.start = Math.max(0, Math.min(start, zoom.whole - length));
  zoom.end = zoom.start + length;
  const width = zoom.right - zoom.left;
  const scale = zoom.whole / length;
  const shift = zoom.left - (zoom.left + (zoom.start / zoom.whole) * width) * scale;
  for (const figure of figures) {
    const moved = figure.querySelector(".zoomed");
    moved.setAttribute("transform", `translate(${shift} 0) scale(${scale} 1)`);
    for (const text of moved.querySelectorAll("text")) {
      const x = text.getAttribute("x");
      text.setAttribute("transform", scale === 1 ? "" : `translate(${x} 0) scale(${1 / scale} 1) translate(${-x} 0)`);
    }
    const axis = figure.querySelector(".axis");
    axis.replaceChildren();
    const step = STEPS.find((each) => length / each <= 13) || STEPS[STEPS.length - 1];
    for (let at = Math.ceil(zoom.start / step) * step; at <= zoom.end + 1e-9; at += step) {
      const x = zoom.left + ((at - zoom.start) / length) * width;
      const line = document.createElementNS(SVG, "line");
      for (const [name, value] of Object.entries({ class: "grid", x1: x, x2: x, y1: axis.dataset.top, y2: +axis.dataset.bottom + 5 })) line.setAttribute(name, value);
      const text = document.createElementNS(SVG, "text");
      for (const [name, value] of Object.entries({ class: "tick", x, y: +axis.dataset.bottom + 19, "text-anchor": "middle" })) text.setAttribute(name, value);
      text.textContent = clock(at);
      axis.append(line, text);
    }
  }
  const part = document.querySelector(".zoom [aria-live]");
  if (part) part.textContent = scale === 1 ? "" : `${zoom.start.toFixed(3)} s to ${zoom.end.toFixed(3)} s of ${zoom.whole.toFixed(1)} s`;
};
const zoomed = (how) => {
  const length = zoom.end - zoom.start;
  const middle = (zoom.start + zoom.end) / 2;
  ({
    in: () => show(middle - length / 4, middle + length / 4),
    out: () => show(middle - length, middle + length),
    left: () => show(zoom.start - length / 4, zoom.end - length / 4),
    right: () => show(zoom.start + length / 4, zoom.end + length / 4),
    all: () => show(0, zoom.whole),
  })[how]();
};

if (main) {
  const bar = document.querySelector(".zoom");
  bar.hidden = false;
  for (const button of bar.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoomed(button.dataset.zoom));
  const hits = [...main.querySelectorAll(".hit")].map((rect) => {
    const title = rect.querySelector("title");
    title.remove(); // else the browser shows its own tooltip as well
    return { rect, text: title.textContent, middle: +rect.getAttribute("x") + rect.getAttribute("width") / 2 };
  });
  let current = -1;
  const cursors = figures.map((figure) => figure.querySelector(".cursor"));
  const place = (box, top) => {
    const left = box.right + 14 + tip.offsetWidth < innerWidth ? box.right + 14 : box.left - tip.offsetWidth - 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(top, innerHeight - tip.offsetHeight - 4))}px`;
  };
  const hide = () => {
    current = -1;
    tip.hidden = true;
    for (const cursor of cursors) cursor.setAttribute("visibility", "hidden");
  };
  const point = (index, top) => {
    current = Math.max(0, Math.min(index, hits.length - 1));
    const { rect, text, middle } = hits[current];
    for (const cursor of cursors) {
      cursor.setAttribute("x1", middle);
      cursor.setAttribute("x2", middle);
      cursor.setAttribute("visibility", "visible");
    }
    tip.textContent = text;
    tip.hidden = false;
    place(rect.getBoundingClientRect(), top);
  };
  hits.forEach(({ rect }, index) => rect.addEventListener("pointermove", (event) => point(index, event.clientY + 12)));
  for (const title of [...document.querySelectorAll(".lanes .zoomed title")]) {
    const of = title.parentNode;
    const text = title.textContent;
    of.addEventListener("pointermove", (event) => {
      tip.textContent = text;
      tip.hidden = false;
      place({ left: event.clientX, right: event.clientX }, event.clientY + 12);
    });
    if (of.tagName !== "a") title.remove();
  }
  for (const figure of figures) {
    figure.addEventListener("pointerleave", hide);
    figure.addEventListener("blur", hide);
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      const how = { "+": "in", "=": "in", "-": "out", 0: "all" }[event.key];
      if (event.key === "Escape") hide();
      if (how) zoomed(how);
      if (!step) return;
      event.preventDefault();
      point(current + step, main.getBoundingClientRect().top + 40);
    });
    let from = null;
    const second = (event) => {
      const box = figure.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * figure.viewBox.baseVal.width;
      return zoom.start + ((x - zoom.left) / (zoom.right - zoom.left)) * (zoom.end - zoom.start);
    };
    figure.addEventListener("pointerdown", (event) => (from = event.button === 0 ? second(event) : null));
    figure.addEventListener("pointerup", (event) => {
      const to = second(event);
      if (from !== null && Math.abs(to - from) > (zoom.end - zoom.start) / 100) show(Math.min(from, to), Math.max(from, to));
      from = null;
    });
    figure.addEventListener("dragstart", (event) => event.preventDefault());
    for (const link of figure.querySelectorAll("a")) link.setAttribute("draggable", "false");
  }
}

// Violations: each row of a table opens with its operations, the disks, and what nodes said then.

const source = document.getElementById("evidence");
let evidence = null;
const number = (value) => (value === null || value === undefined ? "—" : String(value));
const second = (value) => (value === null || value === undefined ? "—" : `${value.toFixed(3)} s`);
const table = (caption, head, rows) => {
  const made = element("table", null, "dense");
  made.append(element("caption", caption));
  const top = made.createTHead().insertRow();
  for (const name of head) {
    const cell = element("th", name);
    cell.scope = "col";
    top.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const cell of row) line.insertCell().textContent = cell;
  }
  const scroll = element("div", null, "scroll");
  scroll.append(made);
  return scroll;
};
const detail = (name) => {
  evidence = evidence || JSON.parse(source.textContent);
  const of = evidence.violations[name];
  const made = element("div", null, "detail");
  const ops = of.ops.map((op) => evidence.operations[op]).filter(Boolean);
  if (ops.length) {
    const head = ["op", "kind", "process", "outcome", "invoked", "completed", "offset", "watermark", "epoch", "value", "error"];
    made.append(table("Its operations", head, ops.map((op) => [op.op, op.kind, number(op.process), op.outcome, second(op.invoked), second(op.completed), number(op.offset), number(op.high_watermark), number(op.leader_epoch), number(op.value), op.error || ""])));
  }
  if (of.disks) {
    const rows = of.disks.rows.map(([at, ...cells]) => [at, ...cells.map((cell) => (cell ? `${number(cell[0])} e${cell[1]}` : "nothing"))]);
    made.append(table("On the replicas’ disks after the run: value and leader epoch", ["offset", ...of.disks.nodes], rows));
  }
  const within = ([at, , kind, where]) => of.spans.some(([start, end]) => start <= at && at <= end) && (kind === "fault" || !where || !of.where || where === of.where);
  const lines = evidence.lines.filter(within);
  made.append(element("p", lines.length ? `What nodes said then (${lines.length} lines)` : "No line of a node of that time is on this page.", "quiet"));
  const list = element("ol", null, "lines");
  for (const [at, node, kind, where, level, text] of lines) {
    const item = element("li", null, kind + (level ? " severe" : ""));
    item.append(element("span", at.toFixed(6), "n"), " ", element("b", node || "—"), " ", element("i", kind), " ", element("span", [kind === "log" ? "" : where, level, text].filter(Boolean).join(" "), "text"));
    list.append(item);
  }
  made.append(list);
  const command = element("p", "All of it: ", "quiet");
  command.append(element("code", `chaos logs ${document.querySelector(".bar .run").textContent} --around ${name}`));
  made.append(command);
  if (zoom && of.spans.length) {
    const button = element("button", "Show on the time line");
    button.type = "button";
    button.addEventListener("click", () => {
      show(of.spans[0][0] - 0.5, of.spans[0][1] + 0.5);
      (document.getElementById("leaders") || main).scrollIntoView({ block: "start" });
      main.focus({ preventScroll: true });
    });
    made.append(button);
  }
  return made;
};
for (const button of source ? document.querySelectorAll("[data-violation]") : []) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const row = button.closest("tr");
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) {
      row.nextElementSibling.remove();
      return;
    }
    const cell = element("td");
    cell.colSpan = row.cells.length;
    cell.append(detail(button.dataset.violation));
    const more = element("tr", null, "opened");
    more.append(cell);
    row.after(more);
  });
}

for (const input of document.querySelectorAll("[data-filter]")) {
  const rows = [...document.getElementById(input.dataset.filter).tBodies[0].rows].map((row) => ({ row, text: row.textContent.toLowerCase() }));
  const told = document.querySelector(`[data-filtered="${input.dataset.filter}"]`);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const { row, text } of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      if (row.nextElementSibling && row.nextElementSibling.className === "opened") row.nextElementSibling.hidden = row.hidden;
      left += !row.hidden;
    }
    told.textContent = words.length ? `${left} of ${rows.length}` : "";
  });
}

// What can be scrolled must be reachable without a mouse; what cannot is no place to stop at.
const reach = () => {
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.hasAttribute("role")) continue;
    const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
addEventListener("resize", reach);
document.addEventListener("toggle", reach, true);
addEventListener("load", () => setTimeout(reach)); // once the page can be used

// Whoever follows a link to something inside a closed list wants to see it.
const reveal = () => {
  const id = decodeURIComponent(location.hash.slice(1));
  const target = id && document.getElementById(id);
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target.scrollIntoView({ block: "start" });
};
addEventListener("hashchange", reveal);
reveal();

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

addEventListener("beforeprint", () => {
  if (main) show(0, zoom.whole);
  for (const list of document.querySelectorAll("details")) {
    const rows = list.querySelectorAll("tr, li").length;
    list.open ||= rows <= 60; // thousands would bury the rest of the print
  }
});
