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
// What a point of a plot stands for, beside it: on hover, on a tap, and when it is reached with the keyboard.
const tip = document.getElementById("tip");
for (const point of document.querySelectorAll(".point")) {
  const title = point.querySelector("title");
  point.setAttribute("aria-label", title.textContent);
  point.dataset.text = title.textContent;
  title.remove();  // the browser would show it a second time
  const show = () => {
    tip.textContent = point.dataset.text;
    tip.hidden = false;
    const mark = point.getBoundingClientRect();
    const left = Math.min(mark.right + 8, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left) + window.scrollX}px`;
    tip.style.top = `${mark.bottom + 6 + window.scrollY}px`;
  };
  const hide = () => { tip.hidden = true; };
  point.addEventListener("pointerenter", show);
  point.addEventListener("pointerleave", hide);
  point.addEventListener("focus", show);
  point.addEventListener("blur", hide);
}
