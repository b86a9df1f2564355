// The playground itself: what the reader sets, the clock of rounds, the chart and the words.

const SPEEDS = { slow: 1700, normal: 750, fast: 160 }; // milliseconds per round
const FEDERATIONS = {
  alike: { label: "All alike", words: "Everybody has digits of all kinds and calls them by the same names." },
  classes: { label: "Own digits", words: "Three groups; each sees only some of the ten digits." },
  names: { label: "Other names", words: "Three groups; they call the same digits by different names." },
  natural: {
    label: "As collected",
    words: "Twelve stretches of the file, in the order the digits were collected: few writers each.",
  },
};
const HOW = {
  alike: () => "not at all",
  classes: (s) => `${HELD[s.how]} of 10`,
  names: (s) => (s.how ? `${s.how} swap${s.how > 1 ? "s" : ""}` : "same names"),
  natural: (s) => (s.how ? `${percent(s.how / MOST)} own` : "shuffled"),
};
// How settings are written in the address, behind #: m=fedamp&d=names&s=.1&seed=3
const ADDRESS = {
  a: "m", b: "b", data: "d", how: "h", groups: "g", size: "n", steps: "l", sigma: "s", unit: "u",
  width: "w", self_weight: "t", sharpness: "x", p: "p", away: "away", liar: "liar", model: "net",
  seed: "seed", shown: "c",
}; // prettier-ignore

function readAddress(text, first) {
  const given = new URLSearchParams(text.replace(/^#/, "")),
    out = {};
  for (const [key, name] of Object.entries(ADDRESS)) {
    const value = given.get(name);
    if (value === null) continue;
    if (key === "groups") {
      if (/^[0-2]{12}$/.test(value)) out.groups = [...value].map(Number);
    } else if (typeof first[key] === "number") {
      const limits = LIMITS[key],
        number = Number(value);
      if (value !== "" && Number.isFinite(number))
        out[key] = clamp(limits[2] ? Math.round(number) : number, limits[0], limits[1]);
    } else if ((WORDS[key] || []).includes(value)) out[key] = value;
  }
  return out;
}
function writeAddress(s, first, tab) {
  const parts = tab === "client" ? [] : [`look=${tab}`];
  for (const [key, name] of Object.entries(ADDRESS)) {
    const now = key === "groups" ? s.groups.join("") : String(s[key]),
      was = key === "groups" ? first.groups.join("") : String(first[key]);
    if (now !== was) parts.push(`${name}=${encodeURIComponent(now)}`);
  }
  return parts.join("&");
}
// the least and the most of each number, and whether it is a whole one; as in playground.py
const LIMITS = {
  how: [0, MOST, true], size: [10, 60, true], steps: [1, 20, true], sigma: [0.001, 100],
  width: [1e-4, 1e4], self_weight: [0, 1], sharpness: [0, 200], p: [0, 1], away: [0, 6, true],
  liar: [0, CLIENTS, true], seed: [0, 9999, true], shown: [0, 9, true],
}; // prettier-ignore
const WORDS = {
  a: Object.keys(METHODS),
  b: Object.keys(METHODS),
  data: Object.keys(FEDERATIONS),
  unit: ["median", "absolute"],
  model: Object.keys(MODELS),
};
const QUIET = new Set(["shown", "round"]); // settings that do not start the runs anew
const BEHIND = ["size", "steps", "unit", "self_weight", "away", "liar", "seed", "model"]; // "More to set"

function playground({ model, el }) {
  const keys = model.get("_settings"),
    page = { id: Math.random().toString(36).slice(2, 8), el },
    onPage = typeof PFL_STATIC !== "undefined",
    tiny = Boolean(model.get("small")) || el.dataset.small !== undefined,
    calm = matchMedia("(prefers-reduced-motion: reduce)");
  const state = (page.state = () => Object.fromEntries(keys.map((k) => [k, model.get(k)])));
  const first = structuredClone(state());
  if (onPage && !tiny && location.hash.includes("="))
    for (const [k, v] of Object.entries(readAddress(location.hash, first))) model.set(k, v);
  page.small = tiny;

  let fed, runs, curves, theme, chosen = 0, playing = false, phase = 0, last = 0, frame = 0, speed = "normal",
    visible = false, pending = null, printing = false, drawn = null, step = null, guess = null, sketch = null, asked = false,
    solo = false, alive = true, spoken = "", ghosts = [], tab = "client", job = 0, showB = true, act = 0, next = 0; // prettier-ignore
  const names = () => ({ a: state().a, b: state().b });

  // ---- what there is to see ------------------------------------------------------------------
  const stages = { a: new Stage("a", page), b: new Stage("b", page) };
  const picks = Object.fromEntries(
    ["a", "b"].map((which) => {
      const select = element("select", { "data-key": which, "aria-label": `Method ${which.toUpperCase()}` });
      for (const [value, { label }] of Object.entries(METHODS))
        select.append(element("option", { value }, label));
      select.addEventListener("change", () => page.change({ [which]: select.value }));
      return [
        which,
        {
          select,
          words: element("span", { class: "pg-words" }),
          lead: element("span", { class: "pg-lead" }),
          mean: element("output", { class: "pg-mean" }),
        },
      ];
    }),
  );
  const halves = Object.fromEntries(
    ["a", "b"].map((w) => [
      w,
      element(
        "div",
        { class: `pg-half pg-${w}` },
        element(
          "div",
          { class: "pg-title" },
          element("span", { class: "pg-mark", "aria-hidden": "true" }, w.toUpperCase()),
          picks[w].select,
          picks[w].lead,
          picks[w].mean,
        ),
        picks[w].words,
        stages[w].node,
      ),
    ]),
  );
  const chart = new Picture("chart", {
    title: "",
    width: 720,
    height: 210,
    margin: [8, 136, 34, 44],
    widest: 2000,
  });
  const words = element("p", { class: "pfl-say pg-say", "aria-hidden": "true" });
  const aloud = element("p", { class: "pfl-aloud", role: "status", "aria-live": "polite" });
  const play = element("button", { type: "button", "data-play": "", class: "pg-play" }),
    one = element("button", { type: "button", "data-step": "" }, "Step"),
    again = element("button", { type: "button", "data-restart": "" }, "Restart");
  const pace = element("select", { "data-speed": "", "aria-label": "Speed" });
  for (const word of Object.keys(SPEEDS)) pace.append(element("option", { value: word }, word));
  pace.value = speed;
  // where there is room for one stage only: which of the two
  const flips = ["a", "b"].map((w) => {
    const button = element("button", { type: "button", "data-flip": w });
    button.addEventListener("click", () => {
      showB = w === "b";
      paint();
    });
    return button;
  });
  const flip = element("div", { class: "pg-flip", role: "group", "aria-label": "Which method" }, ...flips);
  const guide = element("button", { type: "button", class: "pg-go", "data-tour": "" }, "Six-step tour"),
    share = element("button", { type: "button", "data-share": "" }, "Copy link"),
    keep = element("button", { type: "button", "data-keep": "" }, "Save picture");
  guide.addEventListener("click", () => enter(0));
  const toPad = element("button", { type: "button", "data-to-pad": "" }, "Draw a digit");
  toPad.addEventListener("click", () => {
    openTab("draw");
    address();
    bar.scrollIntoView({ block: "start", behavior: calm.matches ? "auto" : "smooth" });
    tabs.draw.focus({ preventScroll: true });
  });

  const change = (page.change = (values) => {
    const whole = new Set(keys.filter((k) => LIMITS[k] && LIMITS[k][2]));
    const fresh = Object.entries(values)
      .map(([k, v]) => [k, whole.has(k) ? Number(v) : v])
      .filter(([k, v]) => keys.includes(k) && JSON.stringify(v) !== JSON.stringify(model.get(k)));
    if (!fresh.length) return;
    for (const [k, v] of fresh) model.set(k, v);
    model.save_changes();
    settled(fresh.map(([k]) => k));
  });
  page.choose = (i) => {
    chosen = i;
    for (const w of ["a", "b"]) stages[w].focusable(stages[w].coins[i].coin);
    if (tab !== "client" && tab !== "draw") openTab("client");
    paint();
  };

  const knobs = [];
  const knob = (make) => {
    const made = make(page);
    knobs.push(made);
    return made.node;
  };
  const uses =
    (...some) =>
    (s) =>
      !some.some((m) => s.a === m || s.b === m);
  // a knob that only its method has: there while the method is
  const ofMethod = (key, used, spec) =>
    knob((p) => {
      const { node, refresh } = slider(key, spec)(p);
      return {
        node,
        refresh(s) {
          node.hidden = !used(s);
          refresh(s);
        },
      };
    });
  const has = (m) => (s) => s.a === m || s.b === m;
  const federations = Object.fromEntries(Object.entries(FEDERATIONS).map(([k, f]) => [k, f.label]));
  const about = element("p", { class: "pg-about" });
  const different = slider("how", {
    label: "How different?",
    min: 0,
    max: MOST,
    show: (v, s) => HOW[s.data](s),
    off: (s) => s.data === "alike",
  });
  const front = element(
    "div",
    { class: "pfl-controls pg-front" },
    knob(choice("data", { label: "The twelve clients", options: federations })),
    knob((p) => {
      const { node, refresh } = different(p);
      return { node, refresh: (s) => refresh(s.data === "alike" ? { ...s, how: 0 } : s) }; // alike: at zero
    }),
    ofMethod("sigma", (s) => has("fedamp")(s) && s.unit === "median", {
      label: "FedAMP’s σ",
      values: [0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 3, 10],
      show: (v) => `${v} × median`,
    }),
    ofMethod("width", (s) => has("fedamp")(s) && s.unit === "absolute", {
      label: "FedAMP’s σ",
      values: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100],
    }),
    ofMethod("sharpness", has("heurfedamp"), {
      label: "HeurFedAMP’s sharpness",
      min: 0,
      max: 100,
      step: 5,
    }),
    ofMethod("p", has("fedacs"), {
      label: "FedACS’s p, which sets δ",
      min: 0,
      max: 1,
      step: 0.05,
    }),
  );
  const more = element(
    "details",
    { class: "pg-more" },
    element("summary", {}, "More to set"),
    element(
      "div",
      { class: "pfl-controls" },
      knob(slider("size", { label: "digits per client", min: 10, max: 60, step: 5 })),
      knob(slider("steps", { label: "local steps per round", min: 1, max: 20 })),
      knob(
        choice("unit", {
          label: "FedAMP’s σ",
          options: { median: "× median distance", absolute: "absolute" },
          off: uses("fedamp"),
        }),
      ),
      knob(
        slider("self_weight", {
          label: "self-weight 1\u00a0−\u00a0τ",
          min: 0,
          max: 1,
          step: 0.05,
          off: uses("fedamp", "heurfedamp"),
        }),
      ),
      knob(slider("away", { label: "clients away each round", min: 0, max: 6 })),
      knob(
        slider("liar", {
          label: "a liar",
          min: 0,
          max: CLIENTS,
          show: (v) => (v ? `client ${v}` : "nobody"),
        }),
      ),
      knob(slider("seed", { label: "seed", min: 0, max: 99 })),
      knob(
        choice("model", {
          label: "Model",
          options: { softmax: "softmax regression", mlp: "network 64-16-10" },
        }),
      ),
    ),
  );
  const classes = knob(
    choice("shown", {
      label: "What their models look for when they say",
      options: Object.fromEntries(range(CLASSES).map((c) => [c, String(c)])),
    }),
  );
  classes.classList.add("pg-classes");
  const refreshClasses = knobs[knobs.length - 1].refresh;
  knobs[knobs.length - 1].refresh = (s) => refreshClasses({ ...s, shown: String(s.shown) });

  const key = element(
    "ul",
    { class: "pg-key", "aria-label": "How to read the pictures" },
    ...Object.entries({
      ring: "ring: new digits read correctly",
      inside: "inside: what its model looks for",
      digits: "below: digits of its own",
      link: "line: who hears whom",
    }).map(([kind, text]) =>
      element("li", {}, element("span", { class: `pg-sign pg-sign-${kind}`, "aria-hidden": "true" }), text),
    ),
  );

  // ---- the story -----------------------------------------------------------------------------
  const tour = element("div", { class: "pg-tour" });
  function tell() {
    guide.hidden = step !== null;
    tour.hidden = step === null;
    el.classList.toggle("pg-touring", step !== null);
    el.classList.toggle("pg-last", step === STORY.length - 1);
    if (step === null) return tour.replaceChildren();
    const { title, ask, tell: truth } = STORY[step];
    const leave = element("button", { type: "button", class: "pg-quiet" }, "Leave the tour");
    leave.addEventListener("click", () => {
      leaveTour();
      paint();
      guide.focus({ preventScroll: true });
    });
    const done = runs.b.k >= ROUNDS && asked;
    const parts = [
      element(
        "div",
        { class: "pg-step" },
        element("strong", {}, `${step + 1} of ${STORY.length} · ${title}`),
        leave,
      ),
      element("p", {}, ask),
    ];
    if (!asked) {
      const input = element("input", {
          type: "range",
          min: 0,
          max: 100,
          step: 1,
          value: Math.round(100 * (guess ?? 0.5)),
          id: `guess-${page.id}`,
          "data-guess": "",
        }),
        shown = element("output", { for: input.id }, `${input.value} %`),
        run = element("button", { type: "button", class: "pg-go", "data-reveal": "" }, "Let it run");
      input.addEventListener("input", () => {
        guess = input.value / 100;
        sketch = null;
        shown.textContent = `${input.value} %`;
        drawChart();
      });
      run.addEventListener("click", () => {
        guess ??= input.value / 100;
        asked = true;
        tell();
        if (calm.matches) finish();
        else start();
      });
      parts.push(
        element("p", { class: "pg-hint" }, "Draw its curve into the chart, or slide to where it will end."),
        element(
          "div",
          { class: "pg-guess" },
          element("label", { for: input.id }, "Your guess for ", METHODS[state().b].label, ":"),
          element("span", { class: "pfl-track" }, input),
          shown,
          run,
        ),
      );
    } else if (!done) parts.push(element("p", { class: "pg-wait" }, `You said ${percent(guess)}. Watch …`));
    else {
      const next = element(
        "button",
        { type: "button", class: "pg-go", "data-next": "" },
        step + 1 < STORY.length ? "Next" : "Play on your own",
      );
      next.addEventListener("click", () => (step + 1 < STORY.length ? enter(step + 1) : leave.click()));
      parts.push(
        element(
          "p",
          { class: "pg-truth" },
          element("strong", {}, `You said ${percent(guess)}. `),
          sketch ? `Your curve was ${points(offBy())} off on average. ` : "",
          truth({ a: runs.a.mean, b: runs.b.mean, own: ownGroup(runs.b) }),
        ),
        next,
      );
    }
    tour.replaceChildren(...parts);
  }
  const points = (v) => `${Math.round(100 * v)} point${Math.round(100 * v) === 1 ? "" : "s"}`;
  const offBy = () => sum(curves.b.map((q) => Math.abs(q.mean - sketch[q.k]))) / curves.b.length;
  // The reader draws the curve; where nothing is drawn it runs straight on, from the one in ten of pure chance.
  let pen = null,
    marks = new Map();
  function pencil(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(
        chart.svg.getScreenCTM().inverse(),
      ),
      [x, y] = chart.invert(at.x, at.y),
      k = clamp(Math.round(x), 0, ROUNDS);
    const between = (j) => (j - (pen ?? k)) * (j - k) < 0;
    for (const j of marks.keys()) if (between(j)) marks.delete(j); // drawn over
    marks.set(k, clamp(y, 0, 1));
    pen = k;
    const known = [...new Map([[0, 0.1], ...marks])].sort((p, q) => p[0] - q[0]);
    sketch = range(ROUNDS + 1).map((j) => {
      const after = known.findIndex(([at_]) => at_ >= j);
      if (after < 0) return known.at(-1)[1];
      const [k1, v1] = known[after],
        [k0, v0] = known[Math.max(0, after - 1)];
      return k1 === k0 ? v1 : v0 + ((v1 - v0) * (j - k0)) / (k1 - k0);
    });
    guess = sketch[ROUNDS];
    const input = tour.querySelector("[data-guess]");
    input.value = Math.round(100 * guess);
    tour.querySelector(".pg-guess output").textContent = `${input.value} %`;
    drawChart();
  }
  const toDraw = () => step !== null && !asked;
  chart.svg.addEventListener(
    "touchstart",
    (event) => {
      if (toDraw() && event.cancelable) event.preventDefault();
    },
    { passive: false },
  );
  chart.svg.addEventListener("pointerdown", (event) => {
    if (!toDraw()) return;
    event.preventDefault();
    chart.svg.setPointerCapture(event.pointerId);
    if (!sketch) marks = new Map();
    pencil(event);
  });
  chart.svg.addEventListener("pointermove", (event) => {
    if (pen !== null && toDraw()) pencil(event);
  });
  for (const end of ["pointerup", "pointercancel"])
    chart.svg.addEventListener(end, () => {
      pen = null;
    });
  function leaveTour() {
    step = null;
    solo = asked = false;
    guess = sketch = null;
    tell();
  }
  function enter(k) {
    step = k;
    asked = false;
    guess = sketch = null;
    ghosts = [];
    stop();
    const { solo: alone = false, ...set } = STORY[k].set;
    solo = alone;
    const plain = {
      how: 5,
      sigma: 0.1,
      unit: "median",
      groups: [...HOME],
      size: 30,
      steps: 5,
      away: 0,
      liar: 0,
      model: "softmax",
      seed: 0,
      self_weight: first.self_weight,
    };
    change({ ...plain, ...set });
    restart();
    stop();
    showB = true;
    tell();
    paint();
    const target = tour.querySelector("[data-guess], [data-next]");
    if (target) target.focus({ preventScroll: true });
    // question, chart and clients are seen together, as far as the screen reaches
    const { top } = tour.getBoundingClientRect();
    if (top < 60 || top > innerHeight / 2 || both.getBoundingClientRect().bottom > innerHeight)
      tour.scrollIntoView({ block: "start", behavior: calm.matches ? "auto" : "smooth" });
  }

  // ---- tabs: one client, a pad, 100 seeds, the map ----------------------------------------------
  const panels = {
    client: element("div", { class: "pg-panel" }),
    draw: element("div", { class: "pg-panel" }),
    seeds: element("div", { class: "pg-panel" }),
    map: element("div", { class: "pg-panel" }),
  };
  const titles = { client: "One client", draw: "Draw a digit", seeds: "100 seeds", map: "The map" };
  const tabs = Object.fromEntries(
    Object.entries(titles).map(([k, text]) => {
      const button = element(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${k}-${page.id}`,
          "aria-controls": `panel-${k}-${page.id}`,
          "data-tab": k,
        },
        text,
      );
      button.addEventListener("click", () => {
        openTab(k);
        address();
      });
      Object.entries({
        role: "tabpanel",
        id: `panel-${k}-${page.id}`,
        "aria-labelledby": button.id,
        tabindex: 0,
      }).forEach(([a, v]) => panels[k].setAttribute(a, v));
      return [k, button];
    }),
  );
  const bar = element(
    "div",
    { class: "pg-tabs", role: "tablist", "aria-label": "Look closer" },
    ...Object.values(tabs),
  );
  bar.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key],
      all = Object.keys(titles);
    if (!way) return;
    event.preventDefault();
    openTab(all[(all.indexOf(tab) + way + all.length) % all.length]);
    tabs[tab].focus();
    address();
  });
  function openTab(k) {
    tab = k;
    for (const [name, button] of Object.entries(tabs)) {
      button.setAttribute("aria-selected", String(name === k));
      button.tabIndex = name === k ? 0 : -1;
      panels[name].hidden = name !== k;
    }
    if (fed) paint();
  }

  // one client
  const rows = Object.fromEntries(
    ["a", "b"].map((w) => [w, range(CLASSES).map(templateCanvas)]),
  );
  const labelled = (canvas, text) => element("figure", {}, canvas, element("figcaption", {}, text));
  const heads = { a: element("p", { class: "pg-line" }), b: element("p", { class: "pg-line" }) };
  const holds = element("div", { class: "pg-row pg-holds" }),
    who = element("h2", { class: "pg-h" }),
    hears = element("p", { class: "pg-line" });
  const looks = ["a", "b"].map((w) =>
    element(
      "div",
      {},
      heads[w],
      element("div", { class: "pg-row" }, ...rows[w].map((c, k) => labelled(c, String(k)))),
    ),
  );
  panels.client.append(
    who,
    element(
      "div",
      { class: "pg-one" },
      element(
        "div",
        {},
        element("p", { class: "pg-line" }, "Some of its digits, under the names it uses:"),
        holds,
      ),
      hears,
      ...looks,
    ),
  );
  function paintClient() {
    const s = fed.s,
      { pixels, labels } = digits(),
      mine = fed.clients[chosen];
    who.textContent = `Client ${chosen + 1}${grouped(s) ? `, group ${groupsOf(s)[chosen] + 1}` : ""}`;
    const ten = mine.hand.slice(0, 10),
      key = [chosen, ten, mine.names, theme.paper].join();
    if (holds.dataset.key !== key) {
      holds.dataset.key = key;
      holds.replaceChildren(
        ...ten.map((k) => {
          const canvas = small();
          paintPicture(canvas, pixels.subarray(k * PIXELS, (k + 1) * PIXELS), inkColour(theme));
          return labelled(canvas, String(mine.names[labels[k]]));
        }),
      );
    }
    for (const w of ["a", "b"]) {
      const run = runs[w];
      heads[w].textContent =
        `${METHODS[run.name].label} (${percent(run.accuracy[chosen])} right): what it looks for, name by name`;
      rows[w].forEach((canvas, c) => paintTemplate(canvas, fed.model.template(run.models[chosen], c), theme));
    }
    const heard = runs.b.xi[chosen].map((v, j) => [v, j]).filter(([v, j]) => j !== chosen && v > 0.015);
    heard.sort((x, y) => y[0] - x[0]);
    hears.textContent = heard.length
      ? `Under ${METHODS[runs.b.name].label} it hears mostly ${heard
          .slice(0, 4)
          .map(([v, j]) => `client ${j + 1} (${percent(v)})`)
          .join(", ")}.`
      : `Under ${METHODS[runs.b.name].label} it hears nobody but itself.`;
  }

  // a pad
  const replies = Object.fromEntries(
    ["a", "b"].map((w) => [
      w,
      { head: element("p", { class: "pg-line" }), row: element("div", { class: "pg-replies" }) },
    ]),
  );
  const seen = small({
    class: "pg-pixels pg-seen",
    role: "img",
    "aria-label": "What the models see: 8 by 8 pixels",
  });
  const pad = new Pad((picture) => ask(picture));
  const wipe = element("button", { type: "button", "data-clear": "" }, "Clear"),
    sample = element("button", { type: "button", "data-example": "" }, "Take one from the test digits");
  let examples = 0,
    truth = null; // which digit it is, where that is known
  wipe.addEventListener("click", () => {
    pad.clear();
    ask(null);
  });
  sample.addEventListener("click", () => {
    const { pixels, labels, all } = digits(),
      k = all.test[(examples++ * 37) % all.test.length];
    const picture = pixels.slice(k * PIXELS, (k + 1) * PIXELS);
    pad.show(picture);
    ask(picture, labels[k]);
  });
  const verdict = element("p", { class: "pg-line", role: "status" });
  panels.draw.append(
    element(
      "div",
      { class: "pg-one pg-asked" },
      element(
        "div",
        { class: "pg-draw" },
        pad.canvas,
        element(
          "div",
          { class: "pg-drawn" },
          element("p", { class: "pg-line" }, "Draw a digit, large; twelve models answer."),
          seen,
          wipe,
          sample,
        ),
      ),
      element("div", {}, replies.a.head, replies.a.row, replies.b.head, replies.b.row, verdict),
    ),
  );
  function ask(picture, digit = null) {
    drawn = picture;
    truth = digit;
    pad.canvas.classList.toggle("pg-empty", !picture);
    paintAnswers();
  }
  function paintAnswers() {
    paintPicture(seen, drawn || new Uint8Array(PIXELS), inkColour(theme));
    const said = {},
      named = fed.clients.map(({ names }) => names[truth]); // what each client calls it
    for (const w of ["a", "b"]) {
      const run = runs[w];
      replies[w].head.textContent = `${METHODS[run.name].label}, round ${run.k}:`;
      const answers = drawn ? run.models.map((model_) => answer(fed.model, model_, drawn)) : [];
      said[w] = answers.map(argmax);
      replies[w].row.replaceChildren(
        ...range(CLIENTS).map((i) => {
          const best = drawn ? said[w][i] : null,
            right = best !== null && best === named[i],
            chip = element("span", { class: "pg-reply", style: `--group: ${PALETTE[groupsOf(fed.s)[i]]}` });
          chip.append(
            element("b", {}, best === null ? "·" : String(best)),
            element("small", {}, best === null ? `${i + 1}` : `${right ? "✓\u2009" : ""}${percent(answers[i][best])}`),
          );
          chip.title = `client ${i + 1}`;
          return chip;
        }),
      );
    }
    const words_ = (w) => {
      const kinds = [...new Set(said[w])],
        shapes = new Set(said[w].map((name, i) => fed.clients[i].names.indexOf(name)));
      if (kinds.length === 1) return `all say ${kinds[0]}`;
      const counts = kinds.map((c) => `${said[w].filter((v) => v === c).length} say ${c}`).join(", ");
      return shapes.size === 1 ? `${counts}, and all mean the same shape` : counts;
    };
    const calls = [...new Set(groupsOf(fed.s))].sort().map((g) => {
      const name = named[groupsOf(fed.s).indexOf(g)];
      return `group ${g + 1} calls it ${name}`;
    });
    const it = new Set(named).size > 1 ? `${listed(calls).replace(/^g/, "G")}. ` : `It is a ${truth}. `;
    const text = drawn
      ? `${truth === null ? "" : it}${METHODS[runs.a.name].label}: ${words_("a")}. ${METHODS[runs.b.name].label}: ${words_("b")}.`
      : "";
    if (verdict.textContent !== text) verdict.textContent = text;
  }

  // 100 seeds, and the map
  const spread = new Picture("seeds", {
    title: "",
    width: 720,
    height: 190,
    margin: [8, 14, 36, 14],
    widest: 2000,
  });
  const plane = new Picture("map", {
    title: "",
    width: 720,
    height: 300,
    margin: [8, 14, 40, 120],
    widest: 2000,
  });
  const lab = {};
  for (const [k, text, picture] of [
    ["seeds", "Replay with 100 seeds", spread],
    ["map", "Draw the map", plane],
  ]) {
    const go = element("button", { type: "button", class: "pg-go", [`data-${k}`]: "" }, text),
      quit = element("button", { type: "button", hidden: "" }, "Cancel"),
      bar_ = element("progress", { max: 1, value: 0, hidden: "", "aria-label": `${text}: how far` }),
      line = element("p", { class: "pg-line", role: "status" });
    lab[k] = { go, quit, bar: bar_, line, picture, found: [], s: null };
    go.addEventListener("click", () => compute(k));
    quit.addEventListener("click", () => {
      job++;
      rest(k);
    });
    panels[k].append(element("div", { class: "pg-lab" }, go, quit, bar_), line, picture.figure);
  }
  panels.seeds.prepend(
    element(
      "p",
      { class: "pg-line" },
      "One run is one draw of the dice. A hundred runs, each with other digits and another start, show what is luck and what is not.",
    ),
  );
  panels.map.prepend(
    element(
      "p",
      { class: "pg-line" },
      "Who wins where? Every field is its own federation: more digits per client to the right, more disagreement upwards. Separate, FedAvg, Ditto and FedAMP run in each, with three seeds. Click a field to see its two best at work.",
    ),
  );
  function rest(k) {
    for (const name of ["seeds", "map"]) {
      lab[name].quit.hidden = lab[name].bar.hidden = true;
      lab[name].go.disabled = false;
    }
    if (k) paintLab(k);
  }
  async function compute(k) {
    const mine = ++job,
      here = lab[k],
      s = state(),
      total = k === "seeds" ? 100 : MAP.seeds * MAP.hows.length * MAP.sizes.length;
    stop();
    rest();
    Object.assign(here, { found: [], s });
    here.quit.hidden = here.bar.hidden = false;
    here.go.disabled = true;
    const found = (one) => {
      here.found.push(one);
      here.bar.value = here.found.length / total;
      if (here.found.length % (k === "seeds" ? 2 : 3) === 0) paintLab(k);
    };
    const done = await inPieces(
      k === "seeds" ? manySeeds(s, total, found) : mapOf(s, found),
      () => alive && job === mine,
      () => visible && !document.hidden,
    );
    if (done) {
      rest(k);
      el.dataset[k] = JSON.stringify(here.found);
    }
  }
  function paintLab(k) {
    const { picture, found, s, line } = lab[k];
    if (!found.length || panels[k].hidden) return;
    picture.begin(theme);
    (k === "seeds" ? drawSeeds : drawMap)(picture, found, s, line);
    picture.end();
  }
  function drawSeeds(p, found, s, line) {
    // the tenths in which they lie, two at least
    const all = found.flatMap((f) => [f.a, f.b]),
      high = Math.max(2, Math.ceil(10 * Math.max(...all) - 1e-9)),
      low = Math.min(high - 2, Math.floor(10 * Math.min(...all) + 1e-9)),
      bins = 10 * (high - low),
      counts = ["a", "b"].map((w) => {
        const out = range(bins).map(() => 0);
        for (const f of found) out[clamp(Math.floor(100 * f[w] - 10 * low + 1e-9), 0, bins - 1)]++;
        return out;
      }),
      left = (k) => low / 10 + k / 100;
    p.scale({ x: [low / 10, high / 10], y: [0, 1.4 * Math.max(6, ...counts.flat())] });
    p.axes({
      xlabel: "mean accuracy after 30 rounds",
      xticks: range(high - low + 1).map((k) => (low + k) / 10),
      xshow: percent,
      yticks: [],
    });
    ["a", "b"].forEach((w, at) => {
      counts[at].forEach((count, k) => {
        if (count)
          p.shape("rect", {
            x: p.x(left(k + 0.06)),
            y: p.y(count),
            width: p.x(left(k + 0.94)) - p.x(left(k + 0.06)),
            height: p.y(0) - p.y(count),
            rx: 2,
            fill: lineColour(at),
            "fill-opacity": 0.62,
          });
      });
      const middle = median(found.map((f) => f[w]));
      p.text(
        clamp(p.x(middle), 60, p.width - 60),
        22 + 18 * at,
        `${METHODS[s[w]].label} ${percent(middle)}`,
        {
          "text-anchor": "middle",
          class: "pfl-text pfl-strong",
          fill: lineColour(at),
          style: `fill: ${lineColour(at)}`,
        },
      );
    });
    const wins = found.filter((f) => f.b > f.a).length,
      ties = found.filter((f) => f.b === f.a).length;
    line.textContent = `${METHODS[s.b].label} beats ${METHODS[s.a].label} in ${wins} of ${found.length} seeds${ties ? `, ${ties} tied` : ""}; medians ${percent(median(found.map((f) => f.b)))} and ${percent(median(found.map((f) => f.a)))}.`;
    p.label = line.textContent;
  }
  const MAP_COLOURS = { separate: "#8c8c8c", fedavg: "#56b4e9", ditto: "#e69f00", fedamp: "#009e73" };
  function drawMap(p, found, s, line) {
    const { sizes, hows, methods } = MAP,
      data = s.data === "alike" ? "names" : s.data,
      [top, right, bottom, left] = p.margin,
      wide = (p.width - left - right) / sizes.length,
      high = (p.height - top - bottom) / hows.length;
    for (const how of hows) {
      p.text(left - 8, p.height - bottom - (how + 0.5) * high + 4, HOW[data]({ how }), {
        "text-anchor": "end",
        class: "pfl-tick",
      });
      sizes.forEach((size, k) => {
        const here = found.filter((f) => f.how === how && f.size === size);
        if (!here.length) return;
        const mean = Object.fromEntries(
            methods.map((m) => [m, sum(here.map((f) => f.result[m])) / here.length]),
          ),
          [best, second] = [...methods].sort((a, b) => mean[b] - mean[a]);
        const fill = blend(
            theme.paper,
            MAP_COLOURS[best],
            0.35 + Math.min(0.65, (mean[best] - mean[second]) * 12),
          ),
          x = left + k * wide,
          y = p.height - bottom - (how + 1) * high;
        p.shape(
          "rect",
          {
            x: x + 1,
            y: y + 1,
            width: wide - 2,
            height: high - 2,
            rx: 5,
            fill,
            class: "pg-field",
            role: "button",
            tabindex: p.count++ ? -1 : 0,
            "data-best": best,
            "data-second": second,
            "data-how": how,
            "data-size": size,
            "aria-label": `${size} digits per client, ${HOW[data]({ how })}: ${METHODS[best].label} ${percent(mean[best])}, then ${METHODS[second].label} ${percent(mean[second])}. Let them run.`,
          },
          undefined,
          1,
        );
        const name =
          wide > 74
            ? METHODS[best].label
            : { separate: "alone", fedavg: "Avg", ditto: "Ditto", fedamp: "AMP" }[best];
        const over = { x: x + wide / 2, "text-anchor": "middle", style: `fill: ${onTop(fill)}` };
        p.shape("text", { ...over, y: y + high / 2 - 2, class: "pfl-text pfl-strong" }, name, 2);
        p.shape("text", { ...over, y: y + high / 2 + 14, class: "pfl-tick" }, percent(mean[best]), 2);
      });
    }
    sizes.forEach((size, k) =>
      p.text(left + (k + 0.5) * wide, p.height - bottom + 16, String(size), {
        "text-anchor": "middle",
        class: "pfl-tick",
      }),
    );
    p.text((left + p.width - right) / 2, p.height - 5, "digits per client", { "text-anchor": "middle" });
    const seeds = Math.ceil(found.length / (sizes.length * hows.length));
    line.textContent = `${FEDERATIONS[data].label}: best mean accuracy after 30 rounds, ${seeds} seed${seeds > 1 ? "s" : ""}; the paler, the closer the second.`;
    p.label = line.textContent;
  }

  // A field of the map is a situation: whoever clicks it sees its two best methods run.
  function visit(field) {
    const { best, second, how, size } = field.dataset,
      { round, shown, ...same } = lab.map.s;
    leaveTour();
    change({ ...same, data: same.data === "alike" ? "names" : same.data, how, size, a: second, b: best, seed: 0 });
    card.scrollIntoView({ block: "start", behavior: calm.matches ? "auto" : "smooth" });
    if (calm.matches) finish();
    else start();
  }
  plane.svg.addEventListener("click", (event) => {
    const field = event.target.closest(".pg-field");
    if (field) visit(field);
  });
  plane.svg.addEventListener("keydown", (event) => {
    const field = event.target.closest(".pg-field"),
      [across, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] || [];
    if (!field || !(across !== undefined || event.key === "Enter" || event.key === " ")) return;
    event.preventDefault();
    if (across === undefined) return visit(field);
    const size = MAP.sizes[MAP.sizes.indexOf(Number(field.dataset.size)) + across],
      next = plane.svg.querySelector(`[data-how="${Number(field.dataset.how) + up}"][data-size="${size}"]`);
    if (next) next.focus();
  });

  // ---- the chart --------------------------------------------------------------------------------
  const lineColour = (k) => MODEL_LINES[theme.dark ? "dark" : "light"][k];
  function drawChart() {
    if (!theme) return;
    chart.begin(theme);
    chart.scale({ x: [0, ROUNDS], y: [0, 1] });
    chart.axes({
      xlabel: "round (band: weakest to best client)",
      xticks: [0, 5, 10, 15, 20, 25, 30],
      yticks: [0, 0.25, 0.5, 0.75, 1],
      yshow: percent,
    });
    for (const ghost of ghosts) chart.curve(ghost.points, { class: "pg-ghost" });
    const ends = [];
    ["a", "b"].forEach((w, k) => {
      if (solo && w === "a") return;
      const points = curves[w];
      if (points.length > 1) {
        const band = [...points.map((q) => [q.k, q.high]), ...points.map((q) => [q.k, q.low]).reverse()];
        const d =
          band
            .map(([x, y], at) => `${at ? "L" : "M"}${chart.x(x).toFixed(1)} ${chart.y(y).toFixed(1)}`)
            .join("") + "Z";
        chart.shape("path", { d, fill: lineColour(k), "fill-opacity": 0.1 });
      }
      chart.curve(
        points.map((q) => [q.k, q.mean]),
        { class: "pg-curve", stroke: lineColour(k), style: `stroke: ${lineColour(k)}` },
      );
      const end = points[points.length - 1];
      chart.circle([end.k, end.mean], 4.5, { fill: lineColour(k) });
      ends.push({ y: chart.y(end.mean), k, text: `${METHODS[names()[w]].label} ${percent(end.mean)}` });
    });
    ends.sort((p, q) => p.y - q.y);
    const lowest = chart.height - 38; // the names stay above the numbers of the axis, and apart
    ends.forEach((end, at) => {
      const below = 16 * (ends.length - 1 - at);
      end.y = clamp(end.y + 4, 14 + 16 * at, lowest - below);
    });
    if (ends.length > 1 && ends[1].y - ends[0].y < 16) {
      const middle = clamp((ends[0].y + ends[1].y) / 2, 22, lowest - 8);
      ends[0].y = middle - 8;
      ends[1].y = middle + 8;
    }
    const narrow = chart.margin[1] < 40; // then the names stand inside, at the bottom
    ends.forEach((end, at) =>
      chart.text(
        chart.width - chart.margin[1] + (narrow ? -8 : 7),
        narrow ? chart.height - 62 + 16 * at : end.y,
        end.text,
        {
          "text-anchor": narrow ? "end" : "start",
          class: "pfl-text pfl-strong",
          style: `fill: ${lineColour(end.k)}; font-size: 12px`,
        },
      ),
    );
    chart.svg.classList.toggle("pg-paper", toDraw());
    if (sketch)
      chart.curve(
        sketch.map((v, k) => [k, v]),
        { class: "pg-sketch" },
      );
    else if (guess !== null) chart.line([0, guess], [ROUNDS, guess], { class: "pfl-guide" });
    if (guess !== null)
      chart.text(chart.x(ROUNDS) - 8, clamp(chart.y(guess) - 7, 14, chart.height - 44), `your guess: ${percent(guess)}`, { "text-anchor": "end" });
    else if (toDraw())
      chart.text((chart.x(0) + chart.x(ROUNDS)) / 2, chart.y(0.5), "✎ draw the curve here", { "text-anchor": "middle", class: "pfl-text pg-here" });
    chart.label = `Accuracy by round. ${ends.map((e) => e.text).join(", ")} in round ${runs.b.k}.${ghosts.length ? ` ${ghosts.length} earlier runs in grey.` : ""}`;
    chart.end();
  }

  // The two stages, their curves and the sentence as a picture, for a slide or a friend.
  function asPicture() {
    const canvas = element("canvas", { width: 2400, height: 1260 }),
      pen = canvas.getContext("2d"),
      soft = blend(theme.paper, theme.ink, 0.66),
      [x, y] = [(k) => 896 + (270 * k) / ROUNDS, (v) => 460 - 310 * v];
    const curve = (at, colour, wide) => {
      pen.beginPath();
      for (const [k, v] of at) pen.lineTo(x(k), y(v));
      pen.strokeStyle = colour;
      pen.lineWidth = wide;
      pen.stroke();
    };
    pen.scale(2, 2);
    pen.fillStyle = theme.paper;
    pen.fillRect(0, 0, 1200, 630);
    write(pen, FEDERATIONS[fed.s.data].words, 32, 58, "700 27px", theme.ink, "left");
    ["a", "b"].forEach((w, k) => stages[w].paintOn(pen, 22 + 404 * k, 96, 392, lineColour(k)));
    for (const v of [0, 0.5, 1]) {
      curve([[0, v], [ROUNDS, v]], blend(theme.paper, theme.ink, 0.14), 1); // prettier-ignore
      write(pen, percent(v), x(0) - 8, y(v) + 5, "15px", soft, "right");
    }
    write(pen, `${ROUNDS} rounds`, x(ROUNDS), y(0) + 22, "15px", soft, "right");
    ["a", "b"].forEach((w, k) => {
      const last = curves[w].at(-1);
      curve(curves[w].map((q) => [q.k, q.mean]), lineColour(k), 3.5); // prettier-ignore
      disc(pen, x(last.k), y(last.mean), 5.5, lineColour(k));
    });
    let line = "",
      at = 540;
    for (const word of sentence().split(" ")) {
      if (line.length + word.length > 96) {
        write(pen, line, 32, at, "21px", theme.ink, "left");
        [line, at] = ["", at + 30];
      }
      line += `${line && " "}${word}`;
    }
    write(pen, line, 32, at, "21px", theme.ink, "left");
    if (location.host) write(pen, location.host + location.pathname, 1168, 612, "15px", soft, "right");
    return canvas;
  }

  // ---- the clock of rounds --------------------------------------------------------------------
  const ownGroup = (run) => {
    const groups = groupsOf(fed.s),
      parts = run.xi.map((row, i) => {
        const others = sum(row.filter((_, j) => j !== i));
        return others > 1e-9 ? sum(row.filter((_, j) => j !== i && groups[j] === groups[i])) / others : 1;
      });
    return sum(parts) / CLIENTS;
  };
  const point = (run) => ({
    k: run.k,
    mean: run.mean,
    low: Math.min(...honest(fed.s).map((i) => run.accuracy[i])),
    high: Math.max(...honest(fed.s).map((i) => run.accuracy[i])),
  });
  function restart() {
    if (runs && curves.b.length > 3 && step === null)
      for (const w of ["a", "b"]) ghosts.push({ points: curves[w].map((q) => [q.k, q.mean]) });
    ghosts = ghosts.slice(-6);
    fed = federationOf(state());
    runs = { a: begin(names().a, fed), b: begin(names().b, fed) };
    curves = { a: [point(runs.a)], b: [point(runs.b)] };
    pending = null;
    phase = 0;
  }
  // the round is computed when its flight begins, and shown when the models have landed
  function prepare(both = true) {
    if (!pending) {
      pending = { a: advance(runs.a, fed), b: null };
      if (!both) return; // in a frame of its own
    }
    pending.b ??= names().a === names().b ? pending.a : advance(runs.b, fed);
  }
  const rounds = () => (tiny ? ACTS[act].rounds : ROUNDS);
  function land() {
    prepare();
    runs = pending;
    pending = null;
    for (const w of ["a", "b"]) curves[w].push(point(runs[w]));
    const over = runs.b.k >= rounds();
    if (over) {
      const going = playing;
      stop();
      if (step !== null && asked) tell();
      if (tiny && going && act + 1 < ACTS.length) next = setTimeout(() => alive && perform(act + 1), 1100);
    }
    if (!tiny || over) speak(); // small, it speaks once an act
    paint(false);
    hand_over(!playing);
  }
  function start() {
    clearTimeout(next);
    next = 0;
    if (runs.b.k >= rounds()) {
      if (tiny) return perform((act + 1) % ACTS.length);
      restart();
    }
    playing = true;
    phase = 0;
    last = performance.now();
    paint();
    request();
  }
  function stop() {
    playing = false;
    phase = 0;
    cancelAnimationFrame(frame);
    frame = 0;
    clearTimeout(next);
    next = 0;
    paintButtons();
  }
  // small: the story in three acts
  function perform(k) {
    act = k;
    el.dataset.act = k;
    clearTimeout(next);
    next = 0;
    playing = false;
    change({ ...ACTS[k].set, a: ACTS[k].set.b });
    restart();
    if (calm.matches) return finish();
    start();
  }
  function finish() {
    while (runs.b.k < rounds()) {
      prepare();
      runs = pending;
      pending = null;
      for (const w of ["a", "b"]) curves[w].push(point(runs[w]));
    }
    stop();
    if (step !== null && asked) tell();
    speak();
    paint();
    hand_over(true);
  }
  const request = () => {
    if (!frame && playing && visible) frame = requestAnimationFrame(tick);
  };
  function tick(now) {
    frame = 0;
    if (!playing || !visible || !alive) return;
    if (!el.isConnected) return stop();
    phase += Math.min(100, now - last) / (tiny ? ACTS[act].pace : SPEEDS[speed]);
    last = now;
    prepare(false);
    if (phase >= 1) {
      phase = 0;
      land();
    }
    // while models fly, the links of the coming round; they land at 0.85 of it
    else
      for (const w of ["a", "b"])
        if (stages[w].box) stages[w].fly(Math.min(1, phase / 0.85), theme, (pending[w] || runs[w]).xi);
    request();
  }

  // ---- words ------------------------------------------------------------------------------------
  function sentence() {
    const s = fed.s,
      [a, b] = [METHODS[runs.a.name].label, METHODS[runs.b.name].label];
    if (tiny) return ACTS[act].say(percent(runs.b.mean), runs.b.k);
    if (runs.b.k === 0)
      return `${FEDERATIONS[s.data].words} ${step !== null ? "First your guess, above." : calm.matches ? "Press Step." : "Press Play."}`;
    const both =
      runs.a.name === runs.b.name || solo
        ? `${b} reads ${percent(runs.b.mean)}`
        : `${a} reads ${percent(runs.a.mean)}, ${b} ${percent(runs.b.mean)}`;
    const links = { fedamp: 1, heurfedamp: 1, fedacs: 1, spfl: 1 };
    const circle =
      grouped(s) && links[runs.b.name]
        ? ` Of what ${b}’s clients hear, ${percent(ownGroup(runs.b))} comes from their own group.`
        : "";
    const missing =
      s.away && METHODS[runs.b.name].everyone ? ` ${b} needs everybody, so nobody is away.` : "";
    const lie = s.liar ? " The liar sends its model with all signs turned; its own is not counted." : "";
    return `Round ${runs.b.k} of ${ROUNDS}: ${both} of the test digits correctly.${circle}${missing}${lie}`;
  }
  let speaking = 0;
  function speak() {
    clearTimeout(speaking);
    speaking = setTimeout(() => {
      if (spoken !== words.textContent) aloud.textContent = spoken = words.textContent;
    }, 300);
  }

  // ---- painting ---------------------------------------------------------------------------------
  function paintButtons() {
    play.textContent = playing ? "❚❚ Pause" : "▶ Play";
    play.hidden = pace.hidden = calm.matches;
    play.disabled = one.disabled = again.disabled = step !== null && !asked; // a guess comes first
    if (!tiny) return;
    const going = playing || next > 0;
    play.textContent = going ? "❚❚" : runs && runs.b.k >= rounds() && act + 1 === ACTS.length ? "↻" : "▶";
    play.setAttribute("aria-label", going ? "Pause" : "Play");
  }
  // after a round only what a round changes; otherwise everything
  function paint(all = true) {
    const dark = !printing && darkPage();
    theme = { ...THEMES[dark ? "dark" : "light"], dark };
    el.classList.toggle("pfl-dark", dark);
    el.classList.toggle("pg-solo", solo);
    el.classList.toggle("pg-only-a", !showB);
    const s = state(),
      [a, b] = [runs.a, runs.b].map((run) => Math.round(100 * run.mean)); // as they are shown
    for (const w of ["a", "b"]) {
      const { select, words: about_, mean, lead } = picks[w],
        ahead = solo || s.a === s.b || !runs.b.k ? 0 : w === "a" ? a - b : b - a;
      lead.textContent = ahead > 0 ? `${points(ahead / 100)} ahead` : "";
      if (all) {
        select.value = s[w];
        about_.textContent = METHODS[s[w]].words;
      }
      mean.textContent = percent(runs[w].mean);
      stages[w].show(runs[w], fed, theme, tiny ? -1 : chosen);
      if (!playing || !pending) stages[w].fly(null, theme);
    }
    words.textContent = sentence();
    flips.forEach((button, k) => {
      const w = "ab"[k];
      button.textContent = `${METHODS[s[w]].label} ${percent(runs[w].mean)}`;
      button.setAttribute("aria-pressed", String(showB === (w === "b")));
    });
    scenes.forEach((button, k) => button.setAttribute("aria-pressed", String(k === act)));
    if (all) {
      about.textContent =
        FEDERATIONS[s.data].words + (grouped(s) ? " Drag a client into another group." : "");
      for (const { refresh } of knobs) refresh(s);
      el.dataset.state = JSON.stringify(s);
    }
    paintButtons();
    el.dataset.round = runs.b.k;
    if (tiny) return;
    drawChart();
    if (tab === "client") paintClient();
    if (tab === "draw") paintAnswers();
    if (tab === "seeds" || tab === "map") paintLab(tab);
    el.dataset.means = JSON.stringify([runs.a.mean, runs.b.mean]);
  }

  // ---- settings, the address, Python --------------------------------------------------------------
  function settled(changed) {
    if (changed.some((k) => !QUIET.has(k))) {
      const going = playing || (runs && runs.b.k > 0);
      if (step !== null && !changed.every((k) => k === "shown")) asked = asked && false;
      restart();
      if (going && !calm.matches && step === null) {
        playing = true;
        last = performance.now();
        request();
      } else stop();
      speak();
    }
    if (step !== null && !asked) tell();
    paint();
    address();
  }
  let writing = 0;
  function address() {
    if (!onPage || tiny) return;
    clearTimeout(writing);
    writing = setTimeout(() => {
      const text = writeAddress(state(), first, tab);
      if (text || location.hash.includes("="))
        history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    }, 120);
  }
  function fromAddress(event) {
    clearTimeout(writing); // what was to be written is older than the address that has just come
    if (event.newURL !== location.href) history.replaceState(null, "", event.newURL);
    if (!onPage || tiny || !location.hash.includes("=")) return;
    const found = readAddress(location.hash, first);
    change({ ...structuredClone(first), ...found });
    look();
    if (tab === "client") el.scrollIntoView({ block: "start" });
  }
  // What an address asks to see: a tab, and the knobs that it turns.
  function look() {
    const given = new URLSearchParams(location.hash.slice(1)),
      wanted = given.get("look");
    more.open ||= BEHIND.some((k) => given.has(ADDRESS[k]));
    openTab(wanted in panels ? wanted : "client");
    if (tab !== "client") bar.scrollIntoView({ block: "start" });
  }
  share.addEventListener("click", async () => {
    const text = writeAddress(state(), first, tab),
      link = location.href.split("#")[0] + (text ? `#${text}` : "");
    try {
      if (navigator.share && matchMedia("(pointer: coarse)").matches)
        return await navigator.share({ title: document.title, url: link });
      await navigator.clipboard.writeText(link);
      share.textContent = "Copied";
      aloud.textContent = spoken = "The link to what you see is copied.";
      setTimeout(() => {
        share.textContent = "Copy link";
      }, 1800);
    } catch (problem) {
      if (problem.name !== "AbortError") prompt("The link to what you see:", link);
    }
  });
  keep.addEventListener("click", () =>
    asPicture().toBlob((blob) => {
      const link = element("a", {
        href: URL.createObjectURL(blob),
        download: `${names().a}-${names().b}-round-${runs.b.k}.png`,
      });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }),
  );
  const rowsOf = (run) => {
    const d = fed.model.d,
      all = new Float64Array(CLIENTS * d);
    run.models.forEach((w, i) => all.set(inTorchOrder(fed.s.model, w), i * d));
    return new DataView(all.buffer);
  };
  function hand_over(now) {
    if (onPage || !now) return; // a kernel hears of the models when the page rests
    model.set("round", runs.b.k);
    model.set("_from_a", rowsOf(runs.a));
    model.set("_from_b", rowsOf(runs.b));
    model.save_changes();
  }
  // Models made in Python take the place of this round's.
  function takeBack(which) {
    const given = model.get(`_to_${which}`),
      d = fed.model.d;
    if (!given || given.byteLength !== CLIENTS * d * 8) return;
    const all = new Float64Array(given.buffer.slice(given.byteOffset, given.byteOffset + given.byteLength));
    stop();
    const models = range(CLIENTS).map((i) => fromTorchOrder(fed.s.model, all.slice(i * d, (i + 1) * d)));
    const accuracy = models.map((w, i) => accuracyOf(fed.model, w, fed.clients[i].test));
    runs = { ...runs, [which]: { ...runs[which], models, accuracy, mean: averageOf(accuracy, fed.s) } };
    curves[which][curves[which].length - 1] = point(runs[which]);
    paint();
  }

  // ---- put together -------------------------------------------------------------------------------
  play.addEventListener("click", () => {
    if (playing || next) {
      stop();
      paint();
      hand_over(true);
    } else start();
  });
  one.addEventListener("click", () => {
    stop();
    if (runs.b.k >= rounds()) restart();
    land();
    hand_over(true);
  });
  again.addEventListener("click", () => {
    const going = playing;
    restart();
    if (going) start();
    else stop();
    paint();
  });
  pace.addEventListener("change", () => {
    speed = pace.value;
  });
  el.classList.add("pfl-explorer", "pg", "tex2jax_ignore", "mathjax_ignore");
  el.classList.toggle("pg-small", tiny);
  const both = element("div", { class: "pg-stages" }, halves.a, halves.b);
  const link = el.dataset.link || model.get("link");
  const card = element("section", { class: "pfl-card pg-card", "aria-label": "The federation playground" });
  const scenes = tiny
    ? ACTS.map(({ title }, k) => {
        const button = element("button", { type: "button", "data-act": k }, title);
        button.addEventListener("click", () => perform(k));
        return button;
      })
    : [];
  if (tiny)
    card.append(
      both,
      words,
      aloud,
      element("div", { class: "pg-scenes" }, play, ...scenes),
      element("a", { class: "pg-link", href: link }, "Play with it"),
    );
  else
    card.append(
      element(
        "div",
        { class: "pg-top" },
        element("div", { class: "pg-drive" }, play, one, again, pace),
        element("div", { class: "pg-doors" }, guide, toPad, ...(onPage ? [share] : []), keep),
      ),
      tour,
      front,
      about,
      flip,
      both,
      key,
      classes,
      words,
      aloud,
      chart.figure,
      more,
      bar,
      ...Object.values(panels),
    );
  el.replaceChildren(card);

  const measure = () => {
    for (const p of [chart, spread, plane]) {
      const wide = Math.round(clamp(card.clientWidth - 30, 300, 1400));
      if (p.width === wide) continue;
      p.width = wide;
      p.svg.setAttribute("viewBox", `0 0 ${wide} ${p.height}`);
    }
    plane.margin[3] = 100;
    chart.margin[1] = chart.width < 500 ? 12 : 136;
    if (theme) paint();
  };
  const size = new ResizeObserver(measure);
  size.observe(card);
  const sight = new IntersectionObserver((entries) => {
    visible = entries[entries.length - 1].isIntersecting;
    last = performance.now();
    if (visible) request();
    else {
      cancelAnimationFrame(frame);
      frame = 0;
    }
  });
  sight.observe(card);
  const repaint = () => paint(),
    before = () => {
      printing = true;
      paint();
    },
    after = () => {
      printing = false;
      paint();
    };
  const watch = new MutationObserver(repaint),
    scheme = matchMedia("(prefers-color-scheme: dark)");
  watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "theme"] });
  watch.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  scheme.addEventListener("change", repaint);
  calm.addEventListener("change", () => {
    if (calm.matches) stop();
    paint();
  });
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  addEventListener("hashchange", fromAddress);
  const wires = keys
    .filter((k) => k !== "round")
    .map((k) => [
      `change:${k}`,
      () => JSON.stringify(fed.s[k]) !== JSON.stringify(model.get(k)) && settled([k]),
    ]);
  wires.push(["change:_to_a", () => takeBack("a")], ["change:_to_b", () => takeBack("b")]);
  for (const [event, act] of wires) model.on(event, act);

  if (tiny) for (const [k, v] of Object.entries({ ...ACTS[0].set, a: ACTS[0].set.b })) model.set(k, v);
  restart();
  openTab("client");
  tell();
  measure();
  paint();
  if (onPage && !tiny && location.hash.includes("=")) look();
  if (calm.matches) {
    if (tiny) perform(ACTS.length - 1);
  } else {
    playing = true; // alive from the first second, while in view
    paintButtons();
  }
  return () => {
    alive = false;
    stop();
    size.disconnect();
    for (const w of ["a", "b"]) stages[w].size.disconnect();
    sight.disconnect();
    watch.disconnect();
    scheme.removeEventListener("change", repaint);
    removeEventListener("beforeprint", before);
    removeEventListener("afterprint", after);
    removeEventListener("hashchange", fromAddress);
    for (const [event, act] of wires) model.off(event, act);
  };
}

if (typeof PFL_STATIC !== "undefined")
  playground({ model: still(PFL_STATIC.state), el: document.getElementById(PFL_STATIC.id) });
export default { render: playground };
