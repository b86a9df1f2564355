/* Small services to every page: where am I in the contents, which tables go on to the right, columns
   that stay columns, and black on white on paper. */
(function () {
  "use strict";

  // The theme remembers where the contents were scrolled to; whoever comes to a page wants to see it.
  function youAreHere() {
    const contents = document.querySelector(".bd-sidebar-primary"),
      here = [...document.querySelectorAll(".bd-sidebar-primary li.current > a.reference")].at(-1);
    if (!contents || !here) return;
    const box = contents.getBoundingClientRect(),
      line = here.getBoundingClientRect();
    if (line.top < box.top + 40 || line.bottom > Math.min(box.bottom, innerHeight) - 40)
      contents.scrollTop += line.top - box.top - Math.min(box.height, innerHeight) / 3;
  }
  addEventListener("load", () => setTimeout(youAreHere)); // after the theme's own scrolling

  // What a cell prints in columns stays in columns, which scroll; prose wraps.
  for (const pre of document.querySelectorAll(".cell_output .output:not(.text_html) pre")) {
    const lines = pre.textContent.split("\n").filter((line) => line.trim()),
      columns = lines.filter((line) => /\S {2,}\S/.test(line));
    if (columns.length > 1 && columns.length > lines.length / 2) pre.classList.add("pfl-columns");
  }

  // A table that is wider than its box says so.
  const BOXES =
    ".pst-scrollable-table-container, .cell_output [role='region'], .pfl-sortable-box, .pfl-matrix-box, .pfl-columns";
  const byKeyboard = (box) => {
    if (box.clientWidth + 1 < box.scrollWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  const look = (box) => {
    box.classList.toggle("pfl-goes-on", box.scrollLeft + box.clientWidth < box.scrollWidth - 4);
    if (box.localName === "pre") byKeyboard(box);
  };
  const size = new ResizeObserver((seen) => seen.forEach(({ target }) => look(target)));
  for (const box of document.querySelectorAll(BOXES)) {
    size.observe(box);
    box.addEventListener("scroll", () => look(box), { passive: true });
  }
  // A formula that is wider than a phone scrolls, too; it is there once it has been typeset.
  const typeset = new ResizeObserver((seen) => {
    for (const { target } of seen) [target, ...target.querySelectorAll("mjx-container")].forEach(byKeyboard);
  });
  for (const formula of document.querySelectorAll(".bd-article div.math")) typeset.observe(formula);

  // Paper is white: a page in dark mode is printed in light mode.
  const html = document.documentElement;
  let before = null;
  function printing(now) {
    if (now && before === null && html.dataset.theme === "dark") {
      before = html.dataset.theme;
      html.dataset.theme = "light";
    } else if (!now && before !== null) {
      html.dataset.theme = before;
      before = null;
    }
  }
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  matchMedia("print").addEventListener("change", (media) => printing(media.matches));
})();
