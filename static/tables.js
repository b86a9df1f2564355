// Tables that can be sorted by any column and filtered by a word. Without this script they are
// plain tables in the order in which the page has them.
(function () {
  "use strict";

  // "+1.2 [3.4]" and "98.1 ± 0.2" are sorted by their first number, words by the alphabet
  function value(cell) {
    const text = cell.textContent.trim().replace("−", "-");
    const number = parseFloat(text.replace(/[,%]/g, ""));
    return Number.isNaN(number) || !/^[-+]?[\d.]/.test(text) ? text.toLowerCase() : number;
  }

  function compare(a, b) {
    if (a === "" || b === "") return (a === "") - (b === ""); // empty cells come last
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1;
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "pfl-sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
        const sign = down ? -1 : 1;
        rows.sort(([a], [b]) => (a === "" || b === "" ? compare(a, b) : sign * compare(a, b)));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  function filterable(table) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 8) return; // one sees them all
    const label = document.createElement("label");
    label.className = "pfl-filter";
    const input = document.createElement("input");
    input.type = "search";
    const told = document.createElement("span");
    told.setAttribute("role", "status");
    label.append("Only rows with ", input);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      told.textContent = input.value ? `${shown} of ${rows.length} rows` : "";
    });
    const line = document.createElement("div");
    line.className = "pfl-filter-line";
    line.append(label, told);
    table.parentElement.before(line);
  }

  for (const table of document.querySelectorAll("table.pfl-sortable")) {
    sortable(table);
    filterable(table);
  }
})();
