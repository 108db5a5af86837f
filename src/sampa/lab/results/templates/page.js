// What a page can do besides being read; without this script it is complete, but stands still.
"use strict";

const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

function made(tag, name, text = "") {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  return element;
}

// ---- tables sort by a click on a header -----------------------------------------------------

// Numbers by their value, text by its letters; what has no value stays last both ways.
function compare(a, b, direction) {
  const [x, y] = [a, b].map((cell) => cell.dataset.value);
  if (x !== undefined && y !== undefined) return direction * (Number(x) - Number(y));
  if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1;
  return direction * a.textContent.trim().localeCompare(b.textContent.trim(), "en", { numeric: true });
}

function sortBy(table, header) {
  const ascending = header.getAttribute("aria-sort") !== "ascending";
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const [column, body] = [header.cellIndex, table.tBodies[0]];
  const rows = [...body.rows];
  rows.sort((a, b) => compare(a.cells[column], b.cells[column], ascending ? 1 : -1));
  body.append(...rows);
  markRepeated(rows);
}

// A name that the row above has too is shown more softly.
function markRepeated(rows) {
  const name = (row) => row.cells[0].textContent;
  rows.forEach((row, i) => row.classList.toggle("again", i > 0 && name(row) === name(rows[i - 1])));
}

for (const table of all("table.sortable")) {
  for (const header of table.tHead.rows[0].cells) {
    const button = made("button", "");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(table, header));
    header.append(button);
  }
}

// ---- tables that are wider than the window say so, and show no half of a number --------------

function fit(frame) {
  const { left, right } = frame.getBoundingClientRect();
  const over = frame.scrollWidth - frame.clientWidth;
  frame.classList.toggle("more-right", frame.scrollLeft < over - 1);
  frame.classList.toggle("more-left", frame.scrollLeft > 1);
  frame.nextElementSibling.hidden = over <= 1;
  for (const row of all("tr", frame)) {
    const [name, ...cells] = row.cells;
    const label = name.getBoundingClientRect();
    const stays = getComputedStyle(name).position === "sticky";
    for (const cell of cells) {
      const box = cell.getBoundingClientRect();
      // On a phone the name of a group stands above its cells, and hides none of them.
      const start = stays && label.bottom > box.top + 1 ? label.right : left;
      cell.classList.toggle("cut", box.left < start - 1 || box.right > right + 1);
    }
  }
}

for (const frame of all(".scroll")) {
  const hint = made("p", "hint", "Scroll the table sideways for more columns →");
  hint.setAttribute("aria-hidden", "true");
  frame.after(hint);
  frame.addEventListener("scroll", () => fit(frame), { passive: true });
  new ResizeObserver(() => fit(frame)).observe(frame);
}

// ---- charts tell their values: pointed at, touched, or with the arrow keys -------------------

function distance(place, x, y) {
  return Math.hypot(place[0] === null ? 0 : place[0] - x, place[1] === null ? 0 : place[1] - y);
}

function tip(told, [, , head, values]) {
  const shown = made("div", "tip");
  shown.append(made("strong", "", head));
  values.forEach((value, i) => {
    if (!value) return;
    const row = made("span", "", `${told.names[i]} `);
    if (told.colors.length) row.style.borderColor = `var(--series-${told.colors[i]})`;
    row.append(made("b", "", value));
    shown.append(row);
  });
  return shown;
}

function readable(chart) {
  const svg = chart.querySelector("svg");
  const told = JSON.parse(svg.dataset.readings);
  const [status, guide] = [made("div", "readings"), made("div", "guide")];
  let at = -1;
  status.setAttribute("role", "status");
  chart.append(guide, status);
  chart.tabIndex = 0;

  function show(next) {
    if (next === at) return;
    at = next;
    const place = told.places[at];
    chart.classList.toggle("told", place !== undefined);
    if (place === undefined) return status.replaceChildren();
    const [x, y] = place;
    Object.assign(guide.style, {
      left: x === null ? "0" : `${x}%`, top: y === null ? "0" : `${y}%`,
      width: x === null ? "100%" : "0", height: y === null ? "100%" : "0",
    });
    status.classList.toggle("left", (x ?? 100) > 50); // aside of what it is about
    status.classList.toggle("low", x === null && y < 50);
    return status.replaceChildren(tip(told, place));
  }

  function point(event) {
    const box = svg.getBoundingClientRect();
    const x = (100 * (event.clientX - box.left)) / box.width;
    const y = (100 * (event.clientY - box.top)) / box.height;
    const far = told.places.map((place) => distance(place, x, y));
    show(far.indexOf(Math.min(...far)));
  }

  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(-1));
  chart.addEventListener("blur", () => show(-1));
  chart.addEventListener("keydown", (event) => {
    const last = told.places.length - 1;
    const next = {
      ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last, Escape: -1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    show(event.key === "Escape" ? -1 : Math.max(0, Math.min(last, next)));
  });
}

const charts = all(".chart:has([data-readings])");
charts.forEach(readable);
if (charts.length) {
  const how = "Point at a chart, touch it, or step through it with the arrow keys to read its values.";
  document.getElementById("summary")?.parentElement.append(made("p", "note how", how));
}

// ---- links open what is folded, and the list of sections follows the reader ------------------

function unfold() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
}

const links = all("nav.sections a");
const watch = new IntersectionObserver(
  (seen) => {
    const part = seen.find((entry) => entry.isIntersecting)?.target;
    const link = part && links.find((each) => each.hash === `#${part.getAttribute("aria-labelledby")}`);
    if (!link) return;
    for (const other of links) other.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    const list = link.closest("ul");
    list.scrollLeft = link.offsetLeft - list.offsetLeft - 40;
  },
  { rootMargin: "-20% 0px -75% 0px" },
);
all("main > section").forEach((part) => watch.observe(part));
window.addEventListener("hashchange", unfold);
for (const link of links) link.addEventListener("click", () => setTimeout(unfold));
unfold();

// Paper has no way to open what is folded; hundreds of single runs stay out of it.
window.addEventListener("beforeprint", () => {
  for (const part of all("details:not(.single)")) part.open = true;
});
