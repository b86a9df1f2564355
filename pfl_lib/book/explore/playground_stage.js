// The playground's stage: twelve coins round a server, links as wide as the weights, models that
// fly along them. A coin: a ring (how many test digits are right), what the client's model looks
// for when it says one name, and three of its digits.

const TURN = 2 * Math.PI;
const MODEL_LINES = { light: ["#1c2733", "#8a3fc0"], dark: ["#e6e9ee", "#d3a8ff"] }; // A and B

// Where the coins lie, as angles, group by group with a gap between; and the arcs of the groups.
function seats(s) {
  const groups = groupsOf(s),
    several = grouped(s),
    gap = several ? 0.16 : 0,
    arc = (TURN - GROUPS * gap) / CLIENTS;
  const angle = [],
    arcs = [];
  let at = -Math.PI / 2;
  for (const g of several ? range(GROUPS) : [0]) {
    const members = range(CLIENTS).filter((i) => groups[i] === g);
    arcs.push({ g, from: at, to: at + Math.max(members.length, 0.35) * arc });
    members.forEach((i, k) => {
      angle[i] = at + (k + 0.5) * arc;
    });
    at = arcs[arcs.length - 1].to + gap;
  }
  return { angle, arcs };
}
const RADIUS = 0.4; // of the stage's width

function paintPicture(canvas, values, colour) {
  const pen = canvas.getContext("2d"),
    image = (canvas.pgImage ??= pen.createImageData(8, 8)); // made once: there are many, every round
  for (let p = 0; p < PIXELS; p++) {
    const [r, g, b] = colour(values[p]),
      at = 4 * p;
    image.data[at] = r;
    image.data[at + 1] = g;
    image.data[at + 2] = b;
    image.data[at + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
}
// What a model looks for: blue where it wants ink, pale orange where it wants none. Eight pixels a
// side are too coarse to be read, so the weights are interpolated (cubic, through the given values).
const FINE = 32;
const LOOKED_FOR = {
  light: ["#0b3c6e", "#e68c3c"],
  dark: ["#a8d8ff", "#d98032"],
};
const between = range(FINE).map((k) => {
  const x = (k + 0.5) / (FINE / 8) - 0.5,
    row = new Float64Array(8);
  for (let j = Math.floor(x) - 1; j <= Math.floor(x) + 2; j++) {
    const d = Math.abs(x - j),
      near = 1.5 * d ** 3 - 2.5 * d ** 2 + 1,
      far = -0.5 * d ** 3 + 2.5 * d ** 2 - 4 * d + 2;
    row[clamp(j, 0, 7)] += d < 1 ? near : far;
  }
  return row;
});
const fine = new Float64Array(FINE * FINE),
  half = new Float64Array(FINE * 8);
function paintTemplate(canvas, weights, theme) {
  let full = 0.35; // below it a model has hardly learned anything: pale
  for (let k = 0; k < FINE; k++)
    for (let x = 0; x < 8; x++) {
      let v = 0;
      for (let y = 0; y < 8; y++) v += between[k][y] * weights[8 * y + x];
      half[8 * k + x] = v;
    }
  for (let k = 0; k < FINE; k++)
    for (let l = 0; l < FINE; l++) {
      let v = 0;
      for (let x = 0; x < 8; x++) v += between[l][x] * half[8 * k + x];
      fine[FINE * k + l] = v;
      if (Math.abs(v) > full) full = Math.abs(v);
    }
  const pen = canvas.getContext("2d"),
    image = (canvas.pgImage ??= pen.createImageData(FINE, FINE)),
    paper = channels(theme.paper),
    [up, down] = LOOKED_FOR[theme.dark ? "dark" : "light"].map(channels);
  for (let p = 0; p < fine.length; p++) {
    const v = fine[p],
      part = Math.min(1, Math.abs(v) / (0.9 * full)) ** 0.7 * (v > 0 ? 1 : 0.45),
      to = v > 0 ? up : down;
    for (let c = 0; c < 3; c++) image.data[4 * p + c] = paper[c] + (to[c] - paper[c]) * part;
    image.data[4 * p + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
}
const templateCanvas = () =>
  element("canvas", { width: FINE, height: FINE, class: "pg-pixels pg-template" });
const inkColour = (theme) => {
  const [paper, ink] = [theme.paper, theme.ink].map(channels);
  return (v) => paper.map((c, k) => c + ((ink[k] - c) * v) / 15);
};
const small = (attributes = {}) =>
  element("canvas", { width: 8, height: 8, class: "pg-pixels", ...attributes });

function disc(pen, x, y, r, fill) {
  pen.beginPath();
  pen.arc(x, y, r, 0, TURN);
  pen.fillStyle = fill;
  pen.fill();
}
function write(pen, text, x, y, font, fill, align = "center") {
  pen.font = `${font} system-ui, "Segoe UI", "Liberation Sans", sans-serif`;
  pen.fillStyle = fill;
  pen.textAlign = align;
  pen.fillText(text, x, y);
}

class Stage {
  constructor(which, page) {
    Object.assign(this, { which, page, run: null, theme: null, box: 0, coins: [], scene: [] });
    this.sky = element("canvas", { class: "pg-sky", "aria-hidden": "true" }); // the links
    this.birds = element("canvas", { class: "pg-sky", "aria-hidden": "true" }); // what flies along them
    this.server = element("div", { class: "pg-server", "aria-hidden": "true" });
    this.node = element("div", { class: "pg-stage", role: "group" }, this.sky, this.birds, this.server);
    for (const i of range(CLIENTS)) {
      const template = templateCanvas(),
        hand = element("canvas", { width: 26, height: 8, class: "pg-pixels pg-hand" });
      const coin = element(
        "button",
        { type: "button", class: "pg-coin", "data-client": i, tabindex: i ? -1 : 0 },
        element("span", { class: "pg-inner" }, template, hand),
        element("span", { class: "pg-number" }, String(i + 1)),
      );
      this.coins.push({ coin, template, hand });
      this.node.append(coin);
    }
    this.listen();
    // asked for once in a while, not in every frame: asking makes the browser lay out the page
    this.size = new ResizeObserver(() => {
      this.box = this.node.clientWidth;
      if (this.theme) this.fly(null, this.theme);
    });
    this.size.observe(this.node);
  }

  // Choose a client, drag it into another group, or do both with the keyboard.
  listen() {
    const { node, page } = this;
    let held = null;
    const groupAt = (event) => {
      const box = node.getBoundingClientRect(),
        x = event.clientX - box.left - box.width / 2,
        y = event.clientY - box.top - box.height / 2;
      if (Math.hypot(x, y) < 0.12 * box.width) return null; // over the server: nobody's group
      const at = Math.atan2(y, x),
        off = ({ from, to }) =>
          Math.abs(Math.atan2(Math.sin(at - (from + to) / 2), Math.cos(at - (from + to) / 2)));
      return seats(page.state()).arcs.reduce((best, arc) =>
        off(arc) - (arc.to - arc.from) / 2 < off(best) - (best.to - best.from) / 2 ? arc : best,
      ).g;
    };
    const move = (i, g) => {
      const groups = [...page.state().groups];
      if (g === null || groups[i] === g) return;
      groups[i] = g;
      page.change({ groups });
    };
    // ``touch-action`` is not enough everywhere: a finger on a coin drags the coin, not the page
    node.addEventListener(
      "touchstart",
      (event) => {
        if (event.target.closest(".pg-coin") && grouped(page.state())) event.preventDefault();
      },
      { passive: false },
    );
    node.addEventListener("pointerdown", (event) => {
      const coin = event.target.closest(".pg-coin");
      if (!coin || event.button > 0) return;
      held = { coin, i: Number(coin.dataset.client), x: event.clientX, y: event.clientY, moved: false };
      if (grouped(page.state())) coin.setPointerCapture(event.pointerId);
    });
    node.addEventListener("pointermove", (event) => {
      if (!held || !grouped(page.state())) return;
      const x = event.clientX - held.x,
        y = event.clientY - held.y;
      held.moved ||= Math.hypot(x, y) > 6;
      if (!held.moved) return;
      held.coin.classList.add("pg-held");
      held.coin.style.transform = `translate(calc(-50% + ${x}px), calc(-50% + ${y}px))`;
    });
    const end = (event) => {
      if (!held) return;
      const { coin, i, moved } = held;
      held = null;
      coin.classList.remove("pg-held");
      coin.style.transform = "";
      if (moved && event.type === "pointerup") move(i, groupAt(event));
      else if (event.pointerType === "touch" && event.type === "pointerup") page.choose(i);
    };
    node.addEventListener("pointerup", end);
    node.addEventListener("pointercancel", end);
    node.addEventListener("click", (event) => {
      const coin = event.target.closest(".pg-coin");
      if (coin) page.choose(Number(coin.dataset.client));
    });
    node.addEventListener("keydown", (event) => {
      const coin = event.target.closest(".pg-coin"),
        along = { ArrowDown: 1, ArrowUp: -1 }[event.key],
        across = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!coin || !(along || across)) return;
      event.preventDefault();
      const i = Number(coin.dataset.client),
        s = page.state();
      if (across && grouped(s)) return move(i, (s.groups[i] + across + GROUPS) % GROUPS);
      const next = this.coins[(i + (along || across) + CLIENTS) % CLIENTS].coin;
      this.focusable(next);
      next.focus();
      page.choose(Number(next.dataset.client));
    });
  }
  focusable(one) {
    for (const { coin } of this.coins) coin.tabIndex = coin === one ? 0 : -1;
  }

  // What stands still between rounds: seats, rings, templates, digits.
  show(run, fed, theme, chosen) {
    const { s } = fed,
      { angle, arcs } = seats(s),
      groups = groupsOf(s),
      { pixels } = digits();
    this.arcs = arcs;
    this.angle = angle;
    this.groups = groups;
    this.run = run;
    this.theme = theme;
    const moved = this.seated !== groups.join() + s.data;
    this.seated = groups.join() + s.data;
    this.coins.forEach(({ coin, template, hand }, i) => {
      const colour = PALETTE[groups[i]],
        away = run.k > 0 && !run.who.includes(i),
        liar = s.liar === i + 1,
        right = Math.round(100 * run.accuracy[i]);
      if (moved) {
        coin.style.left = `${50 + 100 * RADIUS * Math.cos(angle[i])}%`;
        coin.style.top = `${50 + 100 * RADIUS * Math.sin(angle[i])}%`;
        coin.style.setProperty("--x", Math.cos(angle[i]));
        coin.style.setProperty("--y", Math.sin(angle[i]));
        coin.style.setProperty("--group", colour);
      }
      coin.style.setProperty("--part", run.accuracy[i]);
      coin.classList.toggle("pg-away", away);
      coin.classList.toggle("pg-liar", liar);
      coin.classList.toggle("pg-chosen", i === chosen);
      const where = grouped(s) ? `, group ${groups[i] + 1}` : "";
      coin.setAttribute(
        "aria-label",
        `client ${i + 1}${where}, ${right} % right${away ? ", away this round" : ""}${liar ? ", lies" : ""}`,
      );
      paintTemplate(template, fed.model.template(run.models[i], s.shown), theme);
      const key = [fed.clients[i].hand.slice(0, 3), theme.paper].join();
      if (hand.dataset.key !== key) {
        hand.dataset.key = key;
        const pen = hand.getContext("2d"),
          one = small();
        pen.clearRect(0, 0, 26, 8);
        fed.clients[i].hand.slice(0, 3).forEach((k, at) => {
          paintPicture(one, pixels.subarray(k * PIXELS, (k + 1) * PIXELS), inkColour(theme));
          pen.drawImage(one, 9 * at, 0);
        });
      }
    });
    if (this.page.small)
      this.server.replaceChildren(
        element("b", {}, percent(run.mean)),
        element("small", {}, "read correctly"),
      );
    else this.server.textContent = run.name === "separate" ? "nobody talks" : "server";
    const label = METHODS[run.name].label;
    this.node.setAttribute(
      "aria-label",
      `${label}: twelve clients round a server. Up and down arrows go from client to client${grouped(s) ? ", left and right move one to another group" : ""}.`,
    );
  }

  // Links, drawn anew when they change; the models on their way, in every frame: ``part`` of the
  // flight is done (null: none flies).
  fly(part, theme, weights = this.run && this.run.xi) {
    if (!this.box || !this.run) return;
    const scene = [weights, this.box, devicePixelRatio, theme.paper, this.seated];
    if (scene.some((v, k) => v !== this.scene[k])) this.link(weights, theme);
    this.scene = scene;
    const { links, at } = this,
      pen = this.clean(this.birds);
    if (part === null) return;
    const t = part < 0.5 ? 2 * part * part : 1 - 2 * (1 - part) ** 2,
      u = 1 - t,
      c = this.box / 2;
    pen.strokeStyle = theme.paper;
    pen.lineWidth = 1;
    for (const [i, j, v] of links) {
      // j's model on its way to i, by way of the server
      const [x, y] = [0, 1].map((q) => u * u * at[j][q] + 2 * u * t * c + t * t * at[i][q]);
      pen.beginPath();
      pen.arc(x, y, this.box * (0.006 + 0.018 * Math.sqrt(v)), 0, TURN);
      pen.fillStyle = PALETTE[this.groups[j]];
      pen.fill();
      pen.stroke();
    }
  }
  // An empty canvas of the stage's size, and its pen.
  clean(canvas) {
    const ratio = Math.min(2, devicePixelRatio || 1),
      wide = Math.round(this.box * ratio),
      pen = canvas.getContext("2d");
    // a canvas begins as 300 by 150: its width alone may be right already
    if (canvas.width !== wide || canvas.height !== wide) canvas.width = canvas.height = wide;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.box, this.box);
    return pen;
  }
  // The same on another canvas: a picture to keep, with name and score in the middle.
  paintOn(pen, left, top, side, colour) {
    const { run, theme } = this,
      [cx, cy] = [left + side / 2, top + side / 2];
    pen.imageSmoothingEnabled = true;
    pen.drawImage(this.sky, left, top, side, side);
    pen.globalAlpha = 0.86;
    disc(pen, cx, cy, 0.15 * side, theme.paper);
    pen.globalAlpha = 1;
    write(pen, METHODS[run.name].label, cx, cy - 0.05 * side, `600 ${0.052 * side}px`, colour);
    write(pen, percent(run.mean), cx, cy + 0.07 * side, `700 ${0.11 * side}px`, colour);
    this.coins.forEach(({ template, hand }, i) => {
      const [x, y] = [Math.cos(this.angle[i]), Math.sin(this.angle[i])],
        [mx, my] = [cx + RADIUS * side * x, cy + RADIUS * side * y],
        [r, ring] = [0.088 * side, 0.015 * side];
      disc(pen, mx, my, r, blend(theme.paper, theme.ink, 0.1));
      pen.beginPath();
      pen.moveTo(mx, my);
      pen.arc(mx, my, r, -TURN / 4, -TURN / 4 + TURN * run.accuracy[i]);
      pen.fillStyle = PALETTE[this.groups[i]];
      pen.fill();
      disc(pen, mx, my, r - ring, theme.paper);
      pen.imageSmoothingEnabled = true;
      pen.drawImage(template, mx - 0.044 * side, my - 0.058 * side, 0.088 * side, 0.088 * side);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(hand, mx - 0.043 * side, my + 0.034 * side, 0.086 * side, 0.0265 * side);
      disc(pen, mx + r * x, my + r * y, 0.026 * side, blend(theme.paper, theme.ink, 0.25));
      disc(pen, mx + r * x, my + r * y, 0.024 * side, theme.paper);
      write(pen, String(i + 1), mx + r * x, my + r * y + 0.01 * side, `700 ${0.028 * side}px`, theme.ink);
    });
  }
  link(weights, theme) {
    const { box } = this,
      pen = this.clean(this.sky),
      c = box / 2,
      r = RADIUS * box,
      at = this.angle.map((a) => [c + r * Math.cos(a), c + r * Math.sin(a)]);
    this.at = at;
    if (this.arcs.length > 1)
      for (const { g, from, to } of this.arcs) {
        pen.beginPath();
        pen.arc(c, c, r, from - 0.04, to + 0.04);
        pen.lineWidth = 0.2 * box;
        pen.strokeStyle = PALETTE[g];
        pen.globalAlpha = theme.dark ? 0.2 : 0.12;
        pen.stroke();
      }
    this.links = weights.flatMap((row, i) =>
      [...row].flatMap((v, j) => (i !== j && v > 0.015 ? [[i, j, v]] : [])),
    );
    for (const [i, j, v] of this.links) {
      pen.beginPath();
      pen.moveTo(...at[j]);
      pen.quadraticCurveTo(c, c, ...at[i]);
      pen.lineWidth = Math.max(0.5, v * 0.035 * box);
      pen.strokeStyle = PALETTE[this.groups[j]];
      pen.globalAlpha = theme.dark ? 0.42 : 0.34;
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }
}
