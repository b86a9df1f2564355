// The kit, part 2: one picture, an SVG with axes, shapes, heat maps and points to drag.

function ticks(low, high, most = 6) {
  const raw = (high - low) / most,
    unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= raw * 0.999);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++)
    out.push(Number((k * step).toPrecision(12)));
  return out;
}

// The next round number: where an axis may end.
function roundUp(v) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(v, 1e-9)));
  return Number(([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((k) => k * unit >= v * 0.999) * unit).toPrecision(6));
}

// What ``pictures`` says of a plane in which points lie, as far as ``limit`` on every side.
const plane = (limit, title, tab, other = {}) => ({
  title,
  tab,
  x: [-limit, limit],
  y: [-limit, limit],
  height: 336,
  margin: [6, 8, 24, 26],
  ...other,
});

// An SVG drawn anew on every change. Elements are used again in the order they come, so that a
// redraw costs little and a point keeps the keyboard focus while it moves.
class Picture {
  constructor(
    name,
    {
      title,
      tab,
      width = 340,
      height = 300,
      margin = [10, 10, 34, 40],
      x = [0, 1],
      y = [0, 1],
      basis = 300,
      widest = 470,
    },
  ) {
    Object.assign(this, { name, title, tab, width, height, margin });
    this.scale({ x, y });
    this.figure = element("div", {
      class: "pfl-panel",
      style: `flex-basis: ${typeof basis === "number" ? `${basis}px` : basis}; max-width: ${widest}px`,
    });
    if (title) this.figure.append(element("div", { class: "pfl-panel-title" }, title));
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("data-panel", name);
    this.layers = ["back", "handles", "front", "names"].map(() =>
      this.svg.appendChild(document.createElementNS(SVG, "g")),
    );
    const [top, right, bottom, left] = margin,
      inside = document.createElementNS(SVG, "clipPath"),
      id = `pfl-clip-${Math.random().toString(36).slice(2, 8)}`;
    inside.id = id;
    set(inside.appendChild(document.createElementNS(SVG, "rect")), {
      x: left,
      y: top,
      width: width - left - right,
      height: height - top - bottom,
    });
    this.svg.prepend(inside);
    this.clip = { "clip-path": `url(#${id})` }; // for shapes that may not leave the axes
    for (const g of this.layers.slice(2)) g.setAttribute("class", "pfl-front"); // above the points, never in their way
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
    this.layers.forEach((g, k) => {
      while (this.next[k]) {
        const old = this.next[k];
        this.next[k] = old.nextSibling;
        old.remove();
      }
    });
    set(this.svg, { role: this.count ? "group" : "img", "aria-label": this.label });
  }

  at(axis, v) {
    const [low, high] = this.domain[axis],
      log = this.domain[axis + "log"] ? Math.log : (k) => k;
    const part = (log(v) - log(low)) / (log(high) - log(low)),
      [top, right, bottom, left] = this.margin;
    return axis === "x"
      ? left + part * (this.width - left - right)
      : this.height - bottom - part * (this.height - top - bottom);
  }
  x(v) {
    return this.at("x", v);
  }
  y(v) {
    return this.at("y", v);
  }
  invert(px, py) {
    // linear scales only: this is where a dragged point lands
    const [top, right, bottom, left] = this.margin,
      { x, y } = this.domain;
    return [
      x[0] + ((px - left) / (this.width - left - right)) * (x[1] - x[0]),
      y[0] + ((this.height - bottom - py) / (this.height - top - bottom)) * (y[1] - y[0]),
    ];
  }

  shape(tag, attributes, text, layer = 0) {
    let node = this.next[layer];
    if (!node || node.tagName !== tag) {
      const fresh = document.createElementNS(SVG, tag);
      if (node) node.replaceWith(fresh);
      else this.layers[layer].append(fresh);
      node = fresh;
    }
    this.next[layer] = node.nextSibling;
    set(node, attributes);
    if (text !== undefined && node.textContent !== text) node.textContent = text;
    return node;
  }

  // In the units of the axes:
  line(a, b, attributes, layer) {
    return this.shape(
      "line",
      {
        x1: this.x(a[0]),
        y1: this.y(a[1]),
        x2: this.x(b[0]),
        y2: this.y(b[1]),
        class: "pfl-line",
        ...attributes,
      },
      undefined,
      layer,
    );
  }
  curve(points, attributes) {
    const d = points
      .map(([a, b], k) => `${k ? "L" : "M"}${this.x(a).toFixed(2)} ${this.y(b).toFixed(2)}`)
      .join("");
    return this.shape("path", { d, fill: "none", class: "pfl-curve", ...attributes });
  }
  circle(point, r, attributes) {
    return this.shape("circle", { cx: this.x(point[0]), cy: this.y(point[1]), r, ...attributes });
  }
  diamond(point, r, attributes, layer) {
    const cx = this.x(point[0]),
      cy = this.y(point[1]);
    return this.shape(
      "path",
      { d: `M${cx} ${cy - r}L${cx + r} ${cy}L${cx} ${cy + r}L${cx - r} ${cy}Z`, ...attributes },
      undefined,
      layer,
    );
  }
  // In the picture's own units:
  text(px, py, text, attributes) {
    return this.shape("text", { x: px, y: py, class: "pfl-text", ...attributes }, text);
  }

  // A name inside a point of the given colour, with a rim of it: what lies on the point cannot hide it.
  inscribe(point, text, colour, layer) {
    const shown = clip(text, 3),
      style = shown.length > 2 ? "font-size: 10px" : "";
    const at = { x: this.x(point[0]), y: this.y(point[1]) + 4.5, fill: onTop(colour), stroke: colour, style };
    return this.shape("text", { ...at, "text-anchor": "middle", class: "pfl-name pfl-rim" }, shown, layer);
  }
  // A dashed upright line in the alarm's colour, where something ends or is best, with its name at the top.
  mark(x, text) {
    const right = this.x(x) < this.width * 0.6;
    this.line([x, this.domain.y[0]], [x, this.domain.y[1]], { class: "pfl-guide pfl-stop" });
    this.text(this.x(x) + (right ? 6 : -6), this.margin[0] + 15, text, {
      "text-anchor": right ? "start" : "end",
    });
  }

  axes({ xlabel = "", ylabel = "", xticks, yticks, xshow = number, yshow = number, grid = true } = {}) {
    const [top, right, bottom, left] = this.margin,
      { x, y, xlog, ylog } = this.domain;
    const decades = ([a, b]) => range(Math.round(Math.log10(b / a)) + 1).map((k) => a * 10 ** k);
    for (const v of xticks || (xlog ? decades(x) : ticks(...x))) {
      if (grid) this.line([v, y[0]], [v, y[1]], { class: "pfl-grid" });
      this.text(this.x(v), this.height - bottom + 15, xshow(v), {
        "text-anchor": "middle",
        class: "pfl-tick",
      });
    }
    for (const v of yticks || (ylog ? decades(y) : ticks(...y))) {
      if (grid) this.line([x[0], v], [x[1], v], { class: "pfl-grid" });
      this.text(left - 5, this.y(v) + 4, yshow(v), { "text-anchor": "end", class: "pfl-tick" });
    }
    this.shape("rect", {
      x: left,
      y: top,
      width: this.width - left - right,
      height: this.height - top - bottom,
      class: "pfl-frame",
    });
    if (xlabel)
      this.text((left + this.width - right) / 2, this.height - 4, xlabel, {
        "text-anchor": "middle",
        class: "pfl-text pfl-axis",
      });
    if (ylabel)
      this.text(12, (top + this.height - bottom) / 2, ylabel, {
        "text-anchor": "middle",
        class: "pfl-text pfl-axis",
        transform: `rotate(-90 12 ${(top + this.height - bottom) / 2})`,
      });
  }

  // A matrix as coloured cells with their numbers. alarm(i, j) marks a cell in the alarm colour,
  // chosen outlines a row, off(i, j) crosses a cell out.
  heat(matrix, { rows, columns = rows, full = 1, alarm, off, chosen = -1, show = short, corner = "" }) {
    const n = matrix.length,
      m = matrix[0].length,
      left = 26,
      top = 24;
    const wide = (this.width - left - 2) / m,
      high = (this.height - top - 2) / n,
      size = clamp(Math.min(wide * 0.36, high * 0.5), 10.5, 15);
    if (corner) this.text(left - 8, top - 8, corner, { "text-anchor": "end", class: "pfl-tick" });
    columns.forEach((c, j) =>
      this.text(left + (j + 0.5) * wide, top - 7, clip(c, m), { "text-anchor": "middle", class: "pfl-tick" }),
    );
    matrix.forEach((row, i) => {
      this.text(left - 6, top + (i + 0.5) * high + 4, clip(rows[i], n), {
        "text-anchor": "end",
        class: i === chosen ? "pfl-tick pfl-strong" : "pfl-tick",
      });
      row.forEach((v, j) => {
        const bad = alarm && alarm(i, j),
          gone = off && off(i, j),
          { paper, heat, cold } = this.theme;
        const fill = gone
          ? paper
          : bad
            ? this.theme.alarm
            : blend(paper, v < 0 ? cold : heat, Math.abs(v) / full);
        const x = left + j * wide,
          y = top + i * high;
        this.shape("rect", {
          x: x + 0.5,
          y: y + 0.5,
          width: wide - 1,
          height: high - 1,
          rx: 2,
          fill,
          class: "pfl-cell",
          "data-row": i,
          "data-column": j,
          "data-value": v,
        });
        this.text(x + wide / 2, y + high / 2 + size * 0.35, gone ? "·" : show(v), {
          "text-anchor": "middle",
          "font-size": size,
          fill: onTop(fill),
          class: bad && wide > 32 ? "pfl-number pfl-strong" : "pfl-number",
        });
      });
    });
    if (chosen >= 0)
      this.shape("rect", {
        x: left,
        y: top + chosen * high,
        width: m * wide,
        height: high,
        class: "pfl-chosen",
        rx: 3,
      });
  }

  // A point one can drag, or focus and move with the arrow keys.
  handle(
    key,
    index,
    point,
    { reach: far = 22, label, text = "", colour, r = 12, hollow = false, alarm = false, chosen = false },
  ) {
    const g = this.shape(
      "g",
      {
        class: `pfl-handle${alarm ? " pfl-alarmed" : ""}${chosen ? " pfl-picked" : ""}`,
        tabindex: 0,
        role: "button",
        "aria-roledescription": "movable point",
        "aria-label": `${label}, at ${number(point[0], 2)}, ${number(point[1], 2)}`,
        "data-key": key,
        "data-index": index,
        transform: `translate(${this.x(point[0])} ${this.y(point[1])})`,
      },
      undefined,
      1,
    );
    if (!g.firstChild)
      for (const tag of ["circle", "circle"]) g.append(document.createElementNS(SVG, tag));
    const [reach, body] = g.children;
    set(reach, { r: Math.max(far, r), class: "pfl-reach" });
    const fill = hollow ? this.theme.paper : colour;
    set(body, {
      r,
      fill,
      class: "pfl-body",
      style: hollow ? `stroke: ${colour}; stroke-width: ${alarm || chosen ? 4 : 3}` : "",
    });
    this.inscribe(point, text, fill, 3); // last: above all that lies on the point
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
