/* A derivation's pictures go with the reader. A figure named fig-story-… holds one picture for each
   step; its title begins with "Step 3" where the heading does. On a wide screen the picture of the
   step that is being read stands in the margin and changes as one scrolls; on a narrow one each
   picture moves to its step. Without scripts, on paper and where no motion is wanted, all stand
   together in the figure. */
(function () {
  "use strict";
  const figure = document.querySelector("figure[id^='fig-story-']");
  if (!figure || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const stepOf = (text) => (/^Step (\d+)/.exec(text.trim()) || [])[1];
  const pictures = new Map(
    [...figure.querySelectorAll("svg")].map((svg) => [stepOf(svg.querySelector("title").textContent), svg]),
  );
  const headings = [...document.querySelectorAll(".bd-article h3")].filter((h) => stepOf(h.textContent)),
    margin = document.querySelector(".bd-sidebar-secondary .sidebar-secondary-item"),
    wide = matchMedia("(min-width: 1200px)"); // where the theme has a margin
  if (!headings.length) return;
  const after = document.evaluate("following::h2[1]", headings.at(-1), null, 9).singleNodeValue;

  // a copy is not read out, since the figure is; its line of words, too small here, stands below it
  const copy = (svg) => {
    const twin = svg.cloneNode(true),
      says = twin.querySelector("text"),
      page = document.createElement("div"),
      line = document.createElement("p"),
      { width, height } = svg.viewBox.baseVal;
    twin.removeAttribute("aria-labelledby");
    twin.removeAttribute("role");
    twin.querySelectorAll("[id]").forEach((node) => node.removeAttribute("id"));
    twin.setAttribute("viewBox", `20 0 ${width - 40} ${height - 26}`);
    line.textContent = says.textContent;
    says.remove();
    page.append(twin, line);
    return page;
  };
  const stage = document.createElement("div"),
    copies = new Map([...pictures].map(([step, svg]) => [step, copy(svg)]));
  stage.className = "pfl-stage drawn";
  stage.setAttribute("aria-hidden", "true");
  stage.hidden = true;
  stage.append(...copies.values());

  function follow() {
    const line = innerHeight * 0.4,
      read = headings.filter((h) => h.getBoundingClientRect().top < line).at(-1),
      over = after && after.getBoundingClientRect().top < line;
    stage.hidden = !wide.matches || !read || over;
    if (!read) return;
    let step = Number(stepOf(read.textContent));
    while (step > 0 && !copies.has(String(step))) step--; // a step without a picture keeps the last
    for (const [name, page] of copies) page.classList.toggle("pfl-seen", name === String(step));
  }
  const homes = [...pictures.values()].map((svg) => svg.parentNode);
  function settle() {
    const narrow = !wide.matches;
    [...pictures].forEach(([step, svg], k) => {
      const heading = headings.find((h) => stepOf(h.textContent) === step);
      if (!narrow || !heading || k === 0) return homes[k].append(svg);
      let place = heading.nextElementSibling;
      if (!place || !place.classList.contains("pfl-step")) {
        place = document.createElement("div");
        place.className = "drawn pfl-step";
        heading.after(place);
      }
      place.append(svg);
    });
    follow();
  }
  if (margin) margin.prepend(stage);
  let waiting = 0;
  addEventListener("scroll", () => {
    if (!waiting)
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        follow();
      });
  }, { passive: true });
  wide.addEventListener("change", settle);
  addEventListener("beforeprint", () => [...pictures.values()].forEach((svg, k) => homes[k].append(svg)));
  addEventListener("afterprint", settle);
  settle();
})();
