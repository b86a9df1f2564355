/* A look ahead: whoever rests the mouse on a reference to an equation, a theorem, a word of the
   glossary or a figure, or reaches it with Tab, sees what it refers to without leaving the page. */
(function () {
  "use strict";
  const WAIT = 250, // milliseconds: not for a mouse that only passes by
    pages = new Map();
  const tip = document.createElement("div");
  tip.className = "pfl-preview";
  tip.id = "pfl-preview";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  let asked = null,
    timer = 0;

  const plain = (address) => address.href.split("#")[0];
  async function pageOf(link) {
    if (plain(link) === location.href.split("#")[0]) return document;
    if (location.protocol === "file:") return null; // a file may not read another
    const address = plain(link);
    if (!pages.has(address))
      pages.set(
        address,
        fetch(address)
          .then((answer) => (answer.ok ? answer.text() : ""))
          .then((text) => new DOMParser().parseFromString(text, "text/html"))
          .catch(() => null),
      );
    return pages.get(address);
  }
  // What a link points at, if it is something short that can stand alone.
  function partOf(page, id) {
    const at = page.getElementById(id);
    if (!at) return null;
    if (at.matches("div.math")) return [at];
    if (at.matches("dt")) {
      const words = at.parentNode.querySelectorAll(":scope > dt, :scope > dd");
      return [...words].slice([...words].indexOf(at)).filter((_, k, all) => k <= all.findIndex((n) => n.matches("dd")));
    }
    if (at.matches("div.proof, figure")) return [at];
    return null;
  }
  async function look(link) {
    asked = link;
    const page = await pageOf(link),
      parts = page && partOf(page, decodeURIComponent(link.hash.slice(1)));
    if (!parts || asked !== link) return;
    const copies = parts.map((part) => document.importNode(part, true));
    for (const copy of copies) {
      copy.querySelectorAll(".headerlink, script, mjx-assistive-mml").forEach((node) => node.remove());
      for (const node of [copy, ...copy.querySelectorAll("[id]")]) node.removeAttribute("id");
      copy.querySelectorAll("a, button, summary, [tabindex]").forEach((node) => node.setAttribute("tabindex", "-1"));
    }
    tip.replaceChildren(...copies);
    tip.hidden = false;
    if (page !== document && window.MathJax && MathJax.typesetPromise)
      await MathJax.typesetPromise([tip]).catch(() => {});
    if (asked !== link) return;
    link.setAttribute("aria-describedby", tip.id);
    const box = link.getBoundingClientRect(),
      wide = tip.offsetWidth,
      high = tip.offsetHeight,
      above = box.top - high - 8;
    tip.style.left = `${scrollX + Math.max(8, Math.min(box.left, document.documentElement.clientWidth - wide - 8))}px`;
    tip.style.top = `${scrollY + (above > 60 ? above : box.bottom + 8)}px`; // the header covers the top
  }
  function away() {
    clearTimeout(timer);
    if (asked) asked.removeAttribute("aria-describedby");
    asked = null;
    tip.hidden = true;
  }
  // not a situation of the playground or of an explorer: #m=fedamp, #ALABox?eta=1
  const linkAt = (event) =>
    event.target.closest?.(".bd-article a.reference.internal[href*='#']:not([href*='='], [href$='?'])");
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse" || tip.contains(event.target)) return clearTimeout(timer);
    const link = linkAt(event);
    clearTimeout(timer);
    if (link && link !== asked) timer = setTimeout(() => look(link), WAIT);
    else if (!link && asked) timer = setTimeout(away, WAIT); // time to reach the preview itself
  });
  document.addEventListener("focusin", (event) => {
    const link = linkAt(event);
    if (link && link.matches(":focus-visible")) look(link);
    else if (!tip.contains(event.target)) away();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") away();
  });
  addEventListener(
    "scroll",
    () => {
      if (!tip.matches(":hover") && asked !== document.activeElement) away();
    },
    { passive: true },
  );
})();
