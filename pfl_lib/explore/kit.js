// What every explorer shares. This text is put before the explorer's own, live and static alike,
// so that an explorer's file holds its formula and its picture, and nothing else.

const SVG = "http://www.w3.org/2000/svg";
// Okabe and Ito's palette, told apart by colour-blind readers too; vermilion is kept for alarms.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442", "#8c8c8c"];
const THEMES = {
  light: { paper: "#ffffff", ink: "#1c2733", heat: "#0b4f8a", cold: "#8a4b08", alarm: "#b03000" },
  dark: { paper: "#161b22", ink: "#e6e9ee", heat: "#8fcbff", cold: "#f2b36b", alarm: "#ff9c73" },
};

// ---- small mathematics ---------------------------------------------------------------------------

const range = (n) => Array.from({ length: n }, (_, i) => i);
function sum(row) { // plain loops here: these run thousands of times between two frames
  let total = 0;
  for (let k = 0; k < row.length; k++) total += row[k];
  return total;
}
function dot(a, b) {
  let total = 0;
  for (let k = 0; k < a.length; k++) total += a[k] * b[k];
  return total;
}
function distance2(a, b) {
  let total = 0;
  for (let k = 0; k < a.length; k++) total += (a[k] - b[k]) ** 2;
  return total;
}
function mix(weights, rows) { // weights @ rows
  return weights.map((row) => {
    const out = new Array(rows[0].length).fill(0);
    for (let j = 0; j < row.length; j++) for (let k = 0; k < out.length; k++) out[k] += row[j] * rows[j][k];
    return out;
  });
}
const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
const table = (rows, columns, f) => range(rows).map((i) => range(columns).map((j) => f(i, j)));
const argmax = (row) => row.reduce((best, x, i) => (x > row[best] ? i : best), 0);
function cosine(a, b) {
  const scale = Math.sqrt(dot(a, a)) * Math.sqrt(dot(b, b));
  return scale > 0 ? dot(a, b) / scale : 0;
}
function softmax(row) {
  const top = Math.max(...row), e = row.map((x) => Math.exp(x - top)), z = sum(e);
  return e.map((x) => x / z);
}

// ---- numbers and words ---------------------------------------------------------------------------

const minus = (text) => String(text).replace("-", "−");
function number(x, digits = 3) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "undefined" : x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (size < 1e-12) return "0";
  if (size >= 1e-3 && size < 1e5) return minus(Number(x.toPrecision(digits)));
  const [a, b] = x.toExponential(digits - 1).split("e");
  const up = String(Number(b)).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
  return `${Number(a) === 1 ? "" : minus(Number(a)) + "·"}10${up}`;
}
// A weight in a small cell: .42, −.31, 1, 3.9
function short(x) {
  if (Math.abs(x) < 0.005) return "0";
  if (Math.abs(x) >= 9.95) return minus(Math.round(x));
  const text = Math.abs(x) >= 0.995 ? String(Number(x.toFixed(1))) : x.toFixed(2).replace("0.", ".");
  return minus(text);
}
function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
// How client i is called: its label if one was given, else its number.
const named = (s, i) => (s.labels && s.labels[i]) || String(i + 1);

// ---- colours -------------------------------------------------------------------------------------

const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
function blend(a, b, part) {
  const from = channels(a), to = channels(b);
  return "#" + from.map((x, k) => Math.round(x + (to[k] - x) * clamp(part, 0, 1)).toString(16).padStart(2, "0")).join("");
}
function onTop(colour) { // black or white, whichever reads better: never below 4.5 to 1
  const [r, g, b] = channels(colour).map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
const groupColour = (s, i) => PALETTE[((s.groups && s.groups[i]) || 0) % PALETTE.length];

function darkPage() {
  const html = document.documentElement, body = document.body;
  const said = html.dataset.theme || html.getAttribute("theme");
  if (said) return said === "dark";
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (body.classList.contains("vscode-dark")) return true;
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// ---- one picture ---------------------------------------------------------------------------------

function ticks(low, high, most = 6) {
  const raw = (high - low) / most, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= raw * 0.999);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) out.push(Number((k * step).toPrecision(12)));
  return out;
}

// The next round number: where an axis may end.
function roundUp(v) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(v, 1e-9)));
  return Number(([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((k) => k * unit >= v * 0.999) * unit).toPrecision(6));
}

// An SVG drawn anew on every change. Elements are used again in the order they come, so that a
// redraw costs little and a point keeps the keyboard focus while it moves.
class Picture {
  constructor(name, { title, width = 340, height = 300, margin = [10, 10, 34, 40], x = [0, 1], y = [0, 1], basis = 300, widest = 470 }) {
    Object.assign(this, { name, title, width, height, margin });
    this.scale({ x, y });
    this.figure = element("div", { class: "pfl-panel", style: `flex-basis: ${typeof basis === "number" ? `${basis}px` : basis}; max-width: ${widest}px` });
    if (title) this.figure.append(element("div", { class: "pfl-panel-title" }, title));
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("data-panel", name);
    this.layers = ["back", "handles", "front"].map(() => this.svg.appendChild(document.createElementNS(SVG, "g")));
    const [top, right, bottom, left] = margin, inside = document.createElementNS(SVG, "clipPath"), id = `pfl-clip-${Math.random().toString(36).slice(2, 8)}`;
    inside.id = id;
    set(inside.appendChild(document.createElementNS(SVG, "rect")), { x: left, y: top, width: width - left - right, height: height - top - bottom });
    this.svg.prepend(inside);
    this.clip = { "clip-path": `url(#${id})` }; // for shapes that may not leave the axes
    this.layers[2].setAttribute("class", "pfl-front"); // seen above the points, never in their way
    this.figure.append(this.svg);
  }

  scale({ x = this.domain.x, y = this.domain.y, xlog = false, ylog = false }) {
    this.domain = { x, y, xlog, ylog };
  }

  begin(theme) {
    this.theme = theme;
    this.next = this.layers.map((g) => g.firstChild);
    this.count = 0;
    this.label = this.title || "";
  }

  end() {
    this.layers.forEach((g, k) => { while (this.next[k]) { const old = this.next[k]; this.next[k] = old.nextSibling; old.remove(); } });
    set(this.svg, { role: this.count ? "group" : "img", "aria-label": this.label });
  }

  at(axis, v) {
    const [low, high] = this.domain[axis], log = this.domain[axis + "log"] ? Math.log : (k) => k;
    const part = (log(v) - log(low)) / (log(high) - log(low)), [top, right, bottom, left] = this.margin;
    return axis === "x" ? left + part * (this.width - left - right) : this.height - bottom - part * (this.height - top - bottom);
  }
  x(v) { return this.at("x", v); }
  y(v) { return this.at("y", v); }
  invert(px, py) { // linear scales only: this is where a dragged point lands
    const [top, right, bottom, left] = this.margin, { x, y } = this.domain;
    return [
      x[0] + ((px - left) / (this.width - left - right)) * (x[1] - x[0]),
      y[0] + ((this.height - bottom - py) / (this.height - top - bottom)) * (y[1] - y[0]),
    ];
  }

  shape(tag, attributes, text, layer = 0) {
    let node = this.next[layer];
    if (!node || node.tagName !== tag) {
      const fresh = document.createElementNS(SVG, tag);
      if (node) node.replaceWith(fresh); else this.layers[layer].append(fresh);
      node = fresh;
    }
    this.next[layer] = node.nextSibling;
    set(node, attributes);
    if (text !== undefined && node.textContent !== text) node.textContent = text;
    return node;
  }

  // In the units of the axes:
  line(a, b, attributes, layer) {
    return this.shape("line", { x1: this.x(a[0]), y1: this.y(a[1]), x2: this.x(b[0]), y2: this.y(b[1]), class: "pfl-line", ...attributes }, undefined, layer);
  }
  curve(points, attributes) {
    const d = points.map(([a, b], k) => `${k ? "L" : "M"}${this.x(a).toFixed(2)} ${this.y(b).toFixed(2)}`).join("");
    return this.shape("path", { d, fill: "none", class: "pfl-curve", ...attributes });
  }
  circle(point, r, attributes) {
    return this.shape("circle", { cx: this.x(point[0]), cy: this.y(point[1]), r, ...attributes });
  }
  diamond(point, r, attributes, layer) {
    const cx = this.x(point[0]), cy = this.y(point[1]);
    return this.shape("path", { d: `M${cx} ${cy - r}L${cx + r} ${cy}L${cx} ${cy + r}L${cx - r} ${cy}Z`, ...attributes }, undefined, layer);
  }
  // In the picture's own units:
  text(px, py, text, attributes) {
    return this.shape("text", { x: px, y: py, class: "pfl-text", ...attributes }, text);
  }

  axes({ xlabel = "", ylabel = "", xticks, yticks, grid = true } = {}) {
    const [top, right, bottom, left] = this.margin, { x, y, xlog, ylog } = this.domain;
    const decades = ([a, b]) => range(Math.round(Math.log10(b / a)) + 1).map((k) => a * 10 ** k);
    for (const v of xticks || (xlog ? decades(x) : ticks(...x))) {
      if (grid) this.line([v, y[0]], [v, y[1]], { class: "pfl-grid" });
      this.text(this.x(v), this.height - bottom + 15, number(v), { "text-anchor": "middle", class: "pfl-tick" });
    }
    for (const v of yticks || (ylog ? decades(y) : ticks(...y))) {
      if (grid) this.line([x[0], v], [x[1], v], { class: "pfl-grid" });
      this.text(left - 5, this.y(v) + 4, number(v), { "text-anchor": "end", class: "pfl-tick" });
    }
    this.shape("rect", { x: left, y: top, width: this.width - left - right, height: this.height - top - bottom, class: "pfl-frame" });
    if (xlabel) this.text((left + this.width - right) / 2, this.height - 4, xlabel, { "text-anchor": "middle" });
    if (ylabel) this.text(12, (top + this.height - bottom) / 2, ylabel, { "text-anchor": "middle", transform: `rotate(-90 12 ${(top + this.height - bottom) / 2})` });
  }

  // A matrix as coloured cells with their numbers. alarm(i, j) marks a cell in the alarm colour,
  // chosen outlines a row, off(i, j) crosses a cell out.
  heat(matrix, { rows, columns = rows, full = 1, alarm, off, chosen = -1, show = short, corner = "" }) {
    const n = matrix.length, m = matrix[0].length, left = 26, top = 24;
    const wide = (this.width - left - 2) / m, high = (this.height - top - 2) / n, size = clamp(Math.min(wide * 0.36, high * 0.5), 10.5, 15);
    if (corner) this.text(left - 8, top - 8, corner, { "text-anchor": "end", class: "pfl-tick" });
    columns.forEach((c, j) => this.text(left + (j + 0.5) * wide, top - 7, clip(c, m), { "text-anchor": "middle", class: "pfl-tick" }));
    matrix.forEach((row, i) => {
      this.text(left - 6, top + (i + 0.5) * high + 4, clip(rows[i], n), { "text-anchor": "end", class: i === chosen ? "pfl-tick pfl-strong" : "pfl-tick" });
      row.forEach((v, j) => {
        const bad = alarm && alarm(i, j), gone = off && off(i, j), { paper, heat, cold } = this.theme;
        const fill = gone ? paper : bad ? this.theme.alarm : blend(paper, v < 0 ? cold : heat, Math.abs(v) / full);
        const x = left + j * wide, y = top + i * high;
        this.shape("rect", { x: x + 0.5, y: y + 0.5, width: wide - 1, height: high - 1, rx: 2, fill, class: "pfl-cell", "data-row": i, "data-column": j, "data-value": v });
        this.text(x + wide / 2, y + high / 2 + size * 0.35, gone ? "·" : show(v), { "text-anchor": "middle", "font-size": size, fill: onTop(fill), class: bad && wide > 32 ? "pfl-number pfl-strong" : "pfl-number" });
      });
    });
    if (chosen >= 0) this.shape("rect", { x: left, y: top + chosen * high, width: m * wide, height: high, class: "pfl-chosen", rx: 3 });
  }

  // A point one can drag, or focus and move with the arrow keys.
  handle(key, index, point, { reach: far = 22, label, text = "", colour, r = 12, hollow = false, alarm = false, chosen = false }) {
    const g = this.shape("g", {
      class: `pfl-handle${alarm ? " pfl-alarmed" : ""}${chosen ? " pfl-picked" : ""}`, tabindex: 0, role: "button",
      "aria-roledescription": "movable point", "aria-label": `${label}, at ${number(point[0], 2)}, ${number(point[1], 2)}`,
      "data-key": key, "data-index": index, transform: `translate(${this.x(point[0])} ${this.y(point[1])})`,
    }, undefined, 1);
    if (!g.firstChild) for (const tag of ["circle", "circle", "text"]) g.append(document.createElementNS(SVG, tag));
    const [reach, body, words] = g.children;
    set(reach, { r: Math.max(far, r), class: "pfl-reach" });
    const fill = hollow ? this.theme.paper : colour;
    set(body, { r, fill, class: "pfl-body", style: hollow ? `stroke: ${colour}; stroke-width: ${alarm || chosen ? 4 : 3}` : "" });
    set(words, { "text-anchor": "middle", y: 4.5, fill: onTop(fill), class: "pfl-name" });
    const shown = clip(text, 9);
    if (words.textContent !== shown) words.textContent = shown;
    this.count++;
    g.pflPoint = point;
    return g;
  }
}

// Long labels are cut in the picture (never in the words below it).
function clip(text, among) {
  const room = among > 8 ? 2 : 3;
  return text.length > room ? text.slice(0, room - 1) + "…" : text;
}

function set(node, attributes) {
  const old = node.pflAttributes || {};
  for (const [k, v] of Object.entries(attributes)) if (old[k] !== v) node.setAttribute(k, v);
  for (const k of Object.keys(old)) if (!(k in attributes)) node.removeAttribute(k);
  node.pflAttributes = attributes;
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  node.append(...children); // strings become text nodes: a label is never read as HTML
  return node;
}

// ---- controls: each is (page) -> { node, refresh(state, result) } -----------------------------------

let serial = 0;

// A slider; log sliders move through two-digit numbers, so that 1, 10 and 100 are met exactly;
// with ``values`` it moves through a given list.
function slider(key, { label, values, min = 0, max = values && values.length - 1, step = 1, log = false, show = (v) => number(v), off, mark }) {
  return (page) => {
    const id = `pfl-${key}-${page.id}-${serial++}`, span = log ? Math.round(Math.log10(max / min) * 100) : max - min;
    const input = element("input", { type: "range", id, "data-key": key, ...(log ? { min: 0, max: span, step: 1 } : { min, max, step }) });
    const output = element("output", { for: id }), tick = element("span", { class: "pfl-mark", hidden: "" });
    const place = (v) => (values ? values.indexOf(v) : log ? Math.log10(clamp(v, min, max) / min) * 100 : clamp(v, min, max));
    const value = () => (values ? values[input.value] : log ? clamp(Number((min * 10 ** (input.value / 100)).toPrecision(2)), min, max) : Number(input.value));
    input.addEventListener("input", () => page.change({ [key]: value() }));
    const node = element("div", { class: "pfl-control pfl-slider" },
      element("label", { for: id }, label), output, element("div", { class: "pfl-track" }, input, tick));
    return { node, refresh(s, r) {
      const disabled = Boolean(off && off(s, r)), goal = mark && !disabled ? mark(s, r) : null;
      if (value() !== s[key]) input.value = place(s[key]);
      input.disabled = disabled;
      node.classList.toggle("pfl-off", disabled);
      output.textContent = show(s[key], s, r);
      input.setAttribute("aria-valuetext", output.textContent);
      tick.hidden = !(goal && goal.value >= min && goal.value <= max);
      if (!tick.hidden) {
        const low = log ? 0 : min;
        tick.style.setProperty("--part", (place(goal.value) - low) / span);
        tick.title = goal.label;
      }
    } };
  };
}

function choice(key, { label, options, off }) {
  return (page) => {
    const name = `pfl-${key}-${page.id}-${serial++}`, inputs = {};
    const buttons = Object.entries(options).map(([value, text]) => {
      inputs[value] = element("input", { type: "radio", name, value, "data-key": key });
      inputs[value].addEventListener("change", () => page.change({ [key]: value }));
      return element("label", {}, inputs[value], element("span", {}, text));
    });
    const node = element("div", { class: "pfl-control pfl-choice", role: "radiogroup", "aria-label": label }, element("span", { class: "pfl-legend" }, label), element("div", {}, ...buttons));
    return { node, refresh(s, r) {
      const disabled = Boolean(off && off(s, r));
      for (const [value, input] of Object.entries(inputs)) {
        input.checked = value === s[key];
        input.disabled = disabled;
      }
      node.classList.toggle("pfl-off", disabled);
    } };
  };
}

function check(key, { label, off }) {
  return (page) => {
    const input = element("input", { type: "checkbox", "data-key": key });
    input.addEventListener("change", () => page.change({ [key]: input.checked }));
    const node = element("label", { class: "pfl-control pfl-check" }, input, element("span", {}, label));
    return { node, refresh(s, r) { input.checked = s[key]; input.disabled = Boolean(off && off(s, r)); } };
  };
}

// A whole number that can run by itself: play, one step, back to the start.
function player(key, { label, min = 0, max, every = 120, show = (v) => number(v) }) {
  return (page) => {
    const inner = slider(key, { label, min, max, step: 1, show })(page);
    const play = element("button", { type: "button", "data-play": key }), step = element("button", { type: "button", "data-step": key }, "Step"), back = element("button", { type: "button", "data-back": key }, "To start");
    let timer = null;
    const stop = () => { clearInterval(timer); timer = null; paint(); };
    const paint = () => { play.textContent = timer ? "❚❚ Pause" : "▶ Play"; };
    const forward = () => {
      if (!page.el.isConnected || page.state()[key] >= max) return stop();
      page.change({ [key]: page.state()[key] + 1 });
    };
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (page.state()[key] >= max) page.change({ [key]: min });
      timer = setInterval(forward, every);
      paint();
    });
    step.addEventListener("click", () => { stop(); forward(); });
    back.addEventListener("click", () => { stop(); page.change({ [key]: min }); });
    paint();
    inner.node.classList.add("pfl-player");
    inner.node.prepend(element("div", { class: "pfl-buttons" }, play, step, back));
    return inner;
  };
}

// ---- the explorer --------------------------------------------------------------------------------

// title, controls, pictures: what there is to see; compute(state): the formula; draw(pictures,
// state, result): the picture; say(state, result): the same in words, with the alarm in front;
// tries: settings worth trying; hint: what a reader may do first; move(state, key, index, point): what a dragged point changes.
function explorer({ title, controls, pictures, compute, draw, say, tries = [], hint = "", lines = [2, 4], move, report = (r) => r }) {
  function render({ model, el }) {
    const keys = model.get("_settings"), page = { id: Math.random().toString(36).slice(2, 8), el };
    const state = page.state = () => Object.fromEntries(keys.map((k) => [k, model.get(k)]));
    const first = state();
    page.change = (values) => {
      const fresh = Object.entries(values).filter(([k, v]) => keys.includes(k) && JSON.stringify(v) !== JSON.stringify(model.get(k)));
      if (!fresh.length) return;
      for (const [k, v] of fresh) model.set(k, v);
      model.save_changes();
      later();
    };

    const shown = Object.fromEntries(Object.entries(pictures).map(([k, o]) => [k, new Picture(k, o)]));
    const knobs = controls.map((make) => make(page));
    const words = element("p", { class: "pfl-say", "aria-hidden": "true" });
    const aloud = element("p", { class: "pfl-aloud", role: "status", "aria-live": "polite" });
    const why = element("p", { class: "pfl-why" }, hint);
    const reset = element("button", { type: "button", class: "pfl-reset" }, "Reset");
    reset.addEventListener("click", () => { why.textContent = hint; page.change(structuredClone(first)); });
    const attempts = tries.map((attempt) => {
      const button = element("button", { type: "button", "data-try": attempt.name }, attempt.name);
      button.addEventListener("click", () => {
        why.textContent = attempt.why;
        page.change(typeof attempt.set === "function" ? attempt.set(structuredClone(first)) : attempt.set);
      });
      return button;
    });
    el.classList.add("pfl-explorer", "tex2jax_ignore", "mathjax_ignore");
    el.style.setProperty("--lines", lines[0]);
    el.style.setProperty("--lines-narrow", lines[1]);
    const card = element("section", { class: "pfl-card", "aria-label": title },
      element("div", { class: "pfl-head" }, element("strong", {}, title), reset),
      element("div", { class: "pfl-controls" }, ...knobs.map((k) => k.node)),
      element("div", { class: "pfl-panels" }, ...Object.values(shown).map((p) => p.figure)),
      words, aloud);
    if (tries.length) card.append(element("div", { class: "pfl-tries" }, element("span", {}, "Try this:"), ...attempts), why);
    el.replaceChildren(card);

    let printing = false, spoken = 0, waiting = false;
    function redraw() {
      waiting = false;
      const start = performance.now(), s = state(), dark = !printing && darkPage(), theme = THEMES[dark ? "dark" : "light"];
      const result = compute(s);
      el.classList.toggle("pfl-dark", dark);
      for (const picture of Object.values(shown)) picture.begin(theme);
      draw(shown, s, result);
      for (const picture of Object.values(shown)) picture.end();
      for (const knob of knobs) knob.refresh(s, result);
      const { alarm = "", text } = say(s, result);
      words.replaceChildren(...(alarm ? [element("strong", { class: "pfl-alarm" }, alarm), " "] : []), text);
      clearTimeout(spoken);
      spoken = setTimeout(() => { aloud.textContent = words.textContent; }, 600); // not at every pixel of a drag
      el.dataset.result = JSON.stringify(report(result));
      el.dataset.state = JSON.stringify(s, (k, v) => (k === "tables" ? undefined : v)); // data, not a setting
      el.dataset.ms = (performance.now() - start).toFixed(2);
    }
    function later() { // several settings changed at once: one redraw, before the next frame
      if (!waiting) { waiting = true; queueMicrotask(redraw); }
    }

    function moved(key, index, point) {
      const s = state();
      if (move) return page.change(move(s, key, index, point));
      page.change({ [key]: s[key].map((old, i) => (i === index ? point : old)), chosen: index });
    }
    for (const picture of Object.values(shown)) {
      const inside = ([x, y]) => [clamp(x, ...picture.domain.x), clamp(y, ...picture.domain.y)].map((v) => Number(v.toFixed(4)));
      const place = (event) => {
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.svg.getScreenCTM().inverse());
        return inside(picture.invert(at.x, at.y));
      };
      let held = null;
      picture.svg.addEventListener("pointerdown", (event) => {
        const g = event.target.closest(".pfl-handle");
        if (!g) return;
        event.preventDefault();
        g.focus({ preventScroll: true });
        held = g;
        picture.svg.setPointerCapture(event.pointerId);
        page.change({ chosen: Number(g.dataset.index) });
      });
      picture.svg.addEventListener("pointermove", (event) => { if (held) moved(held.dataset.key, Number(held.dataset.index), place(event)); });
      for (const end of ["pointerup", "pointercancel"]) picture.svg.addEventListener(end, () => { held = null; });
      picture.svg.addEventListener("focusin", (event) => {
        const g = event.target.closest(".pfl-handle");
        if (g) page.change({ chosen: Number(g.dataset.index) });
      });
      picture.svg.addEventListener("keydown", (event) => {
        const g = event.target.closest(".pfl-handle"), way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
        if (!g || !way) return;
        event.preventDefault();
        const { x, y } = picture.domain, by = event.shiftKey ? 10 : 60, at = g.pflPoint;
        moved(g.dataset.key, Number(g.dataset.index), inside([at[0] + (way[0] * (x[1] - x[0])) / by, at[1] + (way[1] * (y[1] - y[0])) / by]));
      });
    }

    for (const k of keys) model.on(`change:${k}`, later);
    const watch = new MutationObserver(later), scheme = matchMedia("(prefers-color-scheme: dark)");
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "theme"] });
    watch.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
    scheme.addEventListener("change", later);
    const before = () => { printing = true; redraw(); }, after = () => { printing = false; redraw(); };
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    redraw();
    return () => {
      watch.disconnect();
      scheme.removeEventListener("change", later);
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
      for (const k of keys) model.off(`change:${k}`, later);
    };
  }
  // On a static page there is no kernel: the settings lie in PFL_STATIC, put in front of this text.
  if (typeof PFL_STATIC !== "undefined") render({ model: still(PFL_STATIC.state), el: document.getElementById(PFL_STATIC.id) });
  return { render };
}

function still(state) {
  return { get: (k) => state[k], set: (k, v) => { state[k] = v; }, save_changes() {}, on() {}, off() {} };
}

// ---- the explorer's own text follows ---------------------------------------------------------------
