"use strict";
// A click on a heading sorts its table: by the leading number where cells have one, else by text; missing cells last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const descending = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => {
      const text = row.cells[column].textContent.trim();
      const number = /^[+-]?\d/.test(text) ? Number.parseFloat(text) : NaN;
      return { row, text, number, last: text === "" || text.startsWith("missing") || text === "none" };
    });
    rows.sort((a, b) => {
      if (a.last !== b.last) return a.last ? 1 : -1;
      const numbers = !Number.isNaN(a.number) && !Number.isNaN(b.number);
      const order = numbers ? a.number - b.number : a.text.localeCompare(b.text);
      return descending ? -order : order;
    });
    table.tBodies[0].append(...rows.map((item) => item.row));
  }));
}
