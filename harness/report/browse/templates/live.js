// While a run goes on: takes what is on record so far from the server, every second and a half.
"use strict";
(() => {
  const place = document.getElementById("live");
  if (!place) return;
  const look = async () => {
    try {
      const answer = await fetch(place.dataset.from, { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.querySelector(".live");
      if (!found) throw new Error("no answer");
      const open = place.querySelector("details[open]") !== null;
      const details = found.querySelector("details");
      if (details && open) details.open = true;
      const before = place.querySelector("[role=status]");
      const after = found.querySelector("[role=status]");
      // The line that is read aloud stays the same element, so that a change of it is noticed.
      if (before && after) {
        if (before.textContent !== after.textContent) before.textContent = after.textContent;
        after.replaceWith(before);
      }
      place.replaceChildren(document.adoptNode(found));
      if (found.dataset.running === "no") {
        location.reload();
        return;
      }
    } catch {
      const status = place.querySelector("[role=status]");
      const said = "The server does not answer; what is shown may be old.";
      if (status && status.textContent !== said) status.textContent = said;
    }
    setTimeout(look, 1500);
  };
  setTimeout(look, 1500);
})();
