// The kit, part 4: the explorer itself. The four parts are put before an explorer's own text, live
// and static alike, so that its file holds its formula and its picture, and nothing else.

// title, ask: its name and the question it opens with; controls, more: what one turns at once, and
// what waits behind "More to set"; pictures: the first has the stage, the others stand beside it, two
// at a time (on a phone one at a time), unless all belong side by side; compute(state): the formula;
// draw(pictures, state, result): the picture; say(state, result): the same in words, with the alarm in
// front; tries: settings worth trying; hint: what a reader may do first; move(state, key, index,
// point): what a dragged point changes.
function explorer({
  title,
  ask = "",
  controls,
  more = [],
  pictures,
  all = false,
  compute,
  draw,
  say,
  tries = [],
  hint = "",
  lines = [2, 4],
  move,
  report = (r) => r,
}) {
  function render({ model, el }) {
    const keys = model.get("_settings"),
      page = { id: Math.random().toString(36).slice(2, 8), el, still: typeof PFL_STATIC !== "undefined" };
    const state = (page.state = () => Object.fromEntries(keys.map((k) => [k, model.get(k)])));
    const first = structuredClone(state());
    page.change = (values) => {
      const fresh = Object.entries(values).filter(
        ([k, v]) => keys.includes(k) && JSON.stringify(v) !== JSON.stringify(model.get(k)),
      );
      if (!fresh.length) return;
      for (const [k, v] of fresh) model.set(k, v);
      model.save_changes();
      later();
      if (address && !page.moving) address.write(state());
    };

    const shown = Object.fromEntries(Object.entries(pictures).map(([k, o]) => [k, new Picture(k, o)]));
    const front = controls.map((make) => make(page)),
      behind = more.map((make) => make(page)),
      knobs = [...front, ...behind];
    const words = element("p", { class: "pfl-say", "aria-hidden": "true" });
    const aloud = element("p", { class: "pfl-aloud", role: "status", "aria-live": "polite" });
    const why = element("p", { class: "pfl-why" }, hint);
    const reset = element("button", { type: "button", class: "pfl-reset" }, "Reset");
    reset.addEventListener("click", () => {
      why.textContent = hint;
      page.change(structuredClone(first));
    });
    const attempts = tries.map(({ name, set, why: words }) => {
      const button = element("button", { type: "button", "data-try": name }, name),
        goal = typeof set === "function" ? set(structuredClone(first)) : set;
      button.addEventListener("click", () => {
        why.textContent = words;
        page.change(structuredClone(goal));
      });
      // pressed as long as the page shows what the button asked for, whoever is looked at
      const refresh = (s) => button.setAttribute("aria-pressed", String(alike(goal, s)));
      return { button, refresh };
    });
    el.classList.add("pfl-explorer", "tex2jax_ignore", "mathjax_ignore");
    el.style.setProperty("--lines", lines[0]);
    el.style.setProperty("--lines-narrow", lines[1]);
    const card = element(
      "section",
      { class: "pfl-card", "aria-label": title },
      element("div", { class: "pfl-head" }, element("strong", {}, title), reset),
      ...(ask ? [element("p", { class: "pfl-ask" }, ask)] : []),
      ...views(Object.values(shown), all),
      element("div", { class: "pfl-controls pfl-near" }, ...front.map((k) => k.node)),
      words,
      aloud,
    );
    if (behind.length)
      card.append(
        element(
          "details",
          { class: "pfl-more" },
          element("summary", {}, "More to set"),
          element("div", { class: "pfl-controls" }, ...behind.map((k) => k.node)),
        ),
      );
    if (tries.length)
      card.append(element("div", { class: "pfl-tries" }, element("span", {}, "Try this:"), ...attempts.map((a) => a.button)), why);
    el.replaceChildren(card);

    let printing = false,
      spoken = 0,
      waiting = false;
    function redraw() {
      waiting = false;
      const start = performance.now(),
        s = state(),
        dark = !printing && darkPage(),
        theme = THEMES[dark ? "dark" : "light"];
      const result = compute(s);
      el.classList.toggle("pfl-dark", dark);
      for (const picture of Object.values(shown)) picture.begin(theme);
      draw(shown, s, result);
      for (const picture of Object.values(shown)) picture.end();
      for (const knob of [...knobs, ...attempts]) knob.refresh(s, result);
      const { alarm = "", text } = say(s, result);
      words.replaceChildren(...(alarm ? [element("strong", { class: "pfl-alarm" }, alarm), " "] : []), text);
      clearTimeout(spoken);
      spoken = setTimeout(() => {
        aloud.textContent = words.textContent;
      }, 600); // not at every pixel of a drag
      el.dataset.result = JSON.stringify(report(result));
      el.dataset.state = JSON.stringify(s, (k, v) => (k === "tables" ? undefined : v)); // data, not a setting
      el.dataset.ms = (performance.now() - start).toFixed(2);
    }
    function later() {
      // several settings changed at once: one redraw, before the next frame
      if (!waiting) {
        waiting = true;
        queueMicrotask(redraw);
      }
    }

    function moved(key, index, point) {
      const s = state();
      if (move) return page.change(move(s, key, index, point));
      page.change({ [key]: s[key].map((old, i) => (i === index ? point : old)), chosen: index });
    }
    for (const picture of Object.values(shown)) {
      const inside = ([x, y]) =>
        [clamp(x, ...picture.domain.x), clamp(y, ...picture.domain.y)].map((v) => Number(v.toFixed(4)));
      const place = (event) => {
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(
          picture.svg.getScreenCTM().inverse(),
        );
        return inside(picture.invert(at.x, at.y));
      };
      let held = null;
      // ``touch-action`` does nothing inside an SVG: a finger on a point moves the point, not the page
      picture.svg.addEventListener(
        "touchstart",
        (event) => {
          if (event.target.closest(".pfl-handle") && event.cancelable) event.preventDefault();
        },
        { passive: false },
      );
      picture.svg.addEventListener("pointerdown", (event) => {
        const g = event.target.closest(".pfl-handle");
        if (!g) return;
        event.preventDefault();
        g.focus({ preventScroll: true });
        held = g;
        picture.svg.setPointerCapture(event.pointerId);
        page.change({ chosen: Number(g.dataset.index) });
      });
      picture.svg.addEventListener("pointermove", (event) => {
        if (held) moved(held.dataset.key, Number(held.dataset.index), place(event));
      });
      for (const end of ["pointerup", "pointercancel"])
        picture.svg.addEventListener(end, () => {
          held = null;
        });
      // not on the svg: one that listens to the focus becomes a stop of the Tab key itself
      picture.figure.addEventListener("focusin", (event) => {
        const g = event.target.closest(".pfl-handle");
        if (g) page.change({ chosen: Number(g.dataset.index) });
      });
      picture.svg.addEventListener("keydown", (event) => {
        const g = event.target.closest(".pfl-handle"),
          way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
        if (!g || !way) return;
        event.preventDefault();
        const { x, y } = picture.domain,
          by = event.shiftKey ? 10 : 60,
          at = g.pflPoint;
        moved(
          g.dataset.key,
          Number(g.dataset.index),
          inside([at[0] + (way[0] * (x[1] - x[0])) / by, at[1] + (way[1] * (y[1] - y[0])) / by]),
        );
      });
    }

    for (const k of keys) model.on(`change:${k}`, later);
    const watch = new MutationObserver(later),
      scheme = matchMedia("(prefers-color-scheme: dark)");
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "theme"] });
    watch.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
    scheme.addEventListener("change", later);
    const before = () => {
        printing = true;
        redraw();
      },
      after = () => {
        printing = false;
        redraw();
      };
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    // a frame, as in slides, has no address that one could share; of two alike the first has it
    const onPage = typeof PFL_STATIC !== "undefined" && self === top,
      chief = onPage && document.querySelector(`[data-explorer="${PFL_STATIC.name}"]`) === el,
      address = chief && inAddress(PFL_STATIC.name, page, first, knobs);
    redraw();
    if (address) address.read();
    return () => {
      watch.disconnect();
      scheme.removeEventListener("change", later);
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
      for (const k of keys) model.off(`change:${k}`, later);
    };
  }
  // On a static page there is no kernel: the settings lie in PFL_STATIC, put in front of this text.
  if (typeof PFL_STATIC !== "undefined")
    render({ model: still(PFL_STATIC.state), el: document.getElementById(PFL_STATIC.id) });
  return { render };
}

// The pictures, and a row of buttons that says which of them are seen where not all have room: the
// first and one beside it, on a phone one alone.
function views(all, together) {
  const stage = element("div", { class: "pfl-panels" }, ...all.map((p) => p.figure));
  if (all.length === 1) return [stage];
  const buttons = all.map((p, k) => {
    const button = element("button", { type: "button", "data-view": p.name }, p.tab || p.title);
    button.addEventListener("click", () => look(k));
    return button;
  });
  function look(k) {
    all.forEach((p, j) => {
      p.figure.classList.toggle("pfl-on", j === k);
      p.figure.classList.toggle("pfl-beside", j === Math.max(k, 1));
      buttons[j].setAttribute("aria-current", String(j === k));
    });
  }
  look(0);
  stage.classList.add(together ? "pfl-together" : "pfl-apart");
  const kind = together || all.length < 3 ? "pfl-views pfl-phone" : "pfl-views";
  return [element("div", { class: kind, role: "group", "aria-label": "Pictures" }, ...buttons), stage];
}

// What the reader has set, behind # in the address: FedAMPPlane?sigma=2&points=0,1;2,1.5. A link to it
// shows the same again; what no control can show is left alone.
function inAddress(name, page, first, knobs) {
  const here = `#${name}?`,
    rows = (v) => Array.isArray(v) && v.length > 0 && v.every(Array.isArray);
  const text = (v) => (rows(v) ? v.map((row) => row.join()).join(";") : String(v));
  function value(key, given) {
    const was = first[key];
    if (rows(was)) {
      const points = given.split(";").map((row) => row.split(",").map(Number));
      const fit = points.length === was.length && points.every((p, i) => p.length === was[i].length);
      return fit && points.flat().every(Number.isFinite) ? points : was;
    }
    if (key === "chosen") return clamp(Math.round(Number(given)) || 0, 0, 11);
    const v = { number: Number(given), boolean: given === "true", string: given }[typeof was];
    return knobs.some((knob) => knob.key === key && knob.takes(v)) ? v : was;
  }
  let waiting = 0;
  function write(s) {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const parts = Object.keys(first)
        .filter((k) => JSON.stringify(s[k]) !== JSON.stringify(first[k]))
        .map((k) => `${k}=${encodeURIComponent(text(s[k])).replaceAll("%2C", ",").replaceAll("%3B", ";")}`);
      if (parts.length) history.replaceState(null, "", here + parts.join("&"));
      else if (location.hash.startsWith(here)) history.replaceState(null, "", location.pathname + location.search);
    }, 150);
  }
  function read(event) {
    if (event && event.newURL !== location.href && new URL(event.newURL).hash.startsWith(here)) {
      clearTimeout(waiting); // what was to be written is older than the address that has just come
      history.replaceState(null, "", event.newURL);
    }
    if (!location.hash.startsWith(here)) return;
    const given = [...new URLSearchParams(location.hash.slice(here.length))].filter(([k]) => k in first);
    page.change({ ...structuredClone(first), ...Object.fromEntries(given.map(([k, v]) => [k, value(k, v)])) });
    page.el.scrollIntoView({ block: "center" });
  }
  addEventListener("hashchange", read);
  return { write, read };
}

// Does the state show what was asked for? Who is picked out does not matter.
const alike = (goal, s) =>
  Object.entries(goal).every(([k, v]) => k === "chosen" || JSON.stringify(v) === JSON.stringify(s[k]));

function still(state) {
  return {
    get: (k) => state[k],
    set: (k, v) => {
      state[k] = v;
    },
    save_changes() {},
    on() {},
    off() {},
  };
}

// ---- the explorer's own text follows ---------------------------------------------------------------
