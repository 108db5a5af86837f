// Shows the numbers of a heat map's cell under the pointer or finger; without it, titles do.
"use strict";

for (const map of document.querySelectorAll("svg.heat")) {
  const shown = map.closest("figure").querySelector("output");
  const show = (event) => {
    const title = event.target.querySelector("title");
    if (title !== null) shown.textContent = title.textContent;
  };
  map.addEventListener("pointerover", show);
  map.addEventListener("pointerdown", show);
  map.addEventListener("pointerleave", () => { shown.textContent = ""; });
}
