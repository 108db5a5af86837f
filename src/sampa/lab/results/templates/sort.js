// Tables sort by a click on a header; without this script they stay as they are.
"use strict";

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

for (const table of document.querySelectorAll("table.sortable")) {
  for (const header of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(table, header));
    header.append(button);
  }
}

// Paper has no way to open what is folded; hundreds of single runs stay out of it.
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not(.single)")) part.open = true;
});
