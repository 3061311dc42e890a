// The page works without this. With it: a cursor with exact numbers, a copy button, and lost records printed in full.
"use strict";

const figure = document.querySelector("svg.timeline");
if (figure) {
  const tip = document.getElementById("tip");
  const cursor = figure.querySelector(".cursor");
  const hits = [...figure.querySelectorAll(".hit")].map((rect) => {
    const title = rect.querySelector("title");
    title.remove(); // else the browser shows its own tooltip as well
    return { rect, text: title.textContent, middle: +rect.getAttribute("x") + rect.getAttribute("width") / 2 };
  });
  let current = -1;

  const hide = () => {
    current = -1;
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  };
  const show = (index, top) => {
    current = Math.max(0, Math.min(index, hits.length - 1));
    const { rect, text, middle } = hits[current];
    cursor.setAttribute("x1", middle);
    cursor.setAttribute("x2", middle);
    cursor.setAttribute("visibility", "visible");
    tip.textContent = text;
    tip.hidden = false;
    const box = rect.getBoundingClientRect();
    const left = box.right + 14 + tip.offsetWidth < innerWidth ? box.right + 14 : box.left - tip.offsetWidth - 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(top, innerHeight - tip.offsetHeight - 4))}px`;
  };

  hits.forEach(({ rect }, index) => rect.addEventListener("pointermove", (event) => show(index, event.clientY + 12)));
  figure.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    show(current + step, figure.getBoundingClientRect().top + 40);
  });
}

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

addEventListener("beforeprint", () => {
  const lists = [...document.querySelectorAll("details.lost")];
  const rows = lists.reduce((sum, list) => sum + list.querySelectorAll("tr").length, 0);
  for (const list of lists) list.open ||= rows <= 500; // thousands would bury the rest of the print
});
