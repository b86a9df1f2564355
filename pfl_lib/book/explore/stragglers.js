// LGA: a straggler arrives τ rounds late. Where would its model be now?

const CURVATURE = [1, 2]; // of the straggler's loss ½Σ h_q (w_q − c_q)²
const GUESSES = { eq10: "Eq. (10)", eq11: "Eq. (11)", no_leap: "(11), no leap", compensated: "compensated" };
const COLOURS = { eq10: PALETTE[1], eq11: PALETTE[0], no_leap: PALETTE[4], compensated: PALETTE[2] };
const MOST = 10;

export default explorer({
  title: "Stragglers: a leap to where the model would be",
  hint: "Drag S, where the global model starts, G, where it goes, or O, the straggler’s own optimum. The large ring is the truth: the same training, started now.",
  lines: [3, 7],
  controls: [
    slider("staleness", { label: "τ, rounds late", min: 1, max: MOST, step: 1 }),
    slider("lr", { label: "β, local learning rate", min: 0.001, max: 0.5, log: true }),
    slider("steps", { label: "E, local steps", min: 1, max: 50, step: 1 }),
    slider("drift", {
      label: "global model’s way per round",
      min: 0.02,
      max: 0.6,
      step: 0.01,
      show: (v) => `${number(100 * v)} %`,
    }),
  ],
  pictures: {
    time: {
      title: "Time line: pulls ↓ and arrivals ↑",
      width: 340,
      height: 112,
      basis: "100%",
      widest: 520,
      margin: [20, 6, 24, 62],
      x: [0, MOST + 0.6],
      y: [0, 2],
    },
    plane: { title: "The models", x: [-2, 2], y: [-2, 2], height: 336, margin: [6, 8, 24, 26] },
    errors: {
      title: "Distance to the truth, in true local updates",
      height: 336,
      margin: [8, 12, 36, 96],
      y: [0, 4],
    },
  },

  compute({ places: [start, goal, own], staleness, lr, steps, drift }) {
    const path = [start];
    for (let k = 0; k < staleness; k++) path.push(path[k].map((x, q) => x + drift * (goal[q] - x)));
    const train = (w) => {
      for (let k = 0; k < steps; k++) w = w.map((x, q) => x - lr * CURVATURE[q] * (x - own[q]));
      return w;
    };
    const pull = path[0],
      next = path[1],
      now = path[staleness],
      local = train(pull),
      truth = train(now);
    const moved = local.map((x, q) => x - pull[q]),
      server = next.map((x, q) => x - pull[q]);
    const S = clamp(cosine(server, moved), -1, 1),
      trust = 1 / (1 + Math.exp(1 - S));
    const printed = moved.map((d, q) => trust * d * d * (now[q] - next[q])),
      fixed = moved.map((d, q) => (-trust / (lr * steps)) * d * d * (now[q] - pull[q]));
    const from = (base, leap) => base.map((x, q) => x + moved[q] + leap[q]),
      none = moved.map(() => 0);
    const guesses = {
      eq10: from(pull, printed),
      eq11: from(now, printed),
      no_leap: from(now, none),
      compensated: from(now, fixed),
    };
    const size = Math.sqrt(distance2(truth, now));
    const errors = Object.fromEntries(
      Object.entries(guesses).map(([k, w]) => [k, Math.sqrt(distance2(w, truth)) / size]),
    );
    return {
      path,
      local,
      truth,
      S,
      trust,
      leap: Math.hypot(...printed) / Math.hypot(...moved),
      guesses,
      errors,
    };
  },

  draw({ time, plane, errors: bars }, s, { path, local, truth, guesses, errors }) {
    const tau = s.staleness,
      lanes = { server: 2, punctual: 1, straggler: 0 };
    time.text(0, time.y(2) + 4, "server", {});
    time.text(0, time.y(1) + 4, "on time", {});
    time.text(0, time.y(0) + 4, "late", { class: "pfl-text pfl-strong" });
    for (const y of Object.values(lanes)) time.line([0, y], [MOST + 0.4, y], { class: "pfl-grid" });
    const arrow = (x1, y1, x2, y2, colour) => {
      time.line([x1, y1], [x2, y2], { class: "pfl-arrow", stroke: colour });
      const [ax, ay, bx, by] = [time.x(x1), time.y(y1), time.x(x2), time.y(y2)],
        long = Math.hypot(bx - ax, by - ay),
        ex = (bx - ax) / long,
        ey = (by - ay) / long;
      time.shape("path", {
        d: `M${bx} ${by}L${bx - 6 * ex - 3 * ey} ${by - 6 * ey + 3 * ex}L${bx - 6 * ex + 3 * ey} ${by - 6 * ey - 3 * ex}Z`,
        fill: colour,
      });
    };
    for (let k = 0; k <= MOST; k++) {
      const soft = blend(time.theme.paper, time.theme.ink, k < tau ? 0.45 : 0.2);
      time.shape("circle", { cx: time.x(k), cy: time.y(2), r: 4, fill: k <= tau ? time.theme.ink : soft });
      time.text(time.x(k), time.y(2) - 8, k === 0 ? "t0" : String(k), {
        "text-anchor": "middle",
        class: "pfl-tick",
      });
      if (k < MOST) {
        arrow(k + 0.05, 1.9, k + 0.3, 1.05, soft);
        arrow(k + 0.65, 1.05, k + 0.95, 1.9, soft);
      }
    }
    const own = PALETTE[1];
    arrow(0, 1.9, 0.12, 0.1, own);
    time.line([0.12, 0], [tau - 0.2, 0], { class: "pfl-late", stroke: own });
    arrow(tau - 0.2, 0.1, tau, 1.9, own);
    time.text(time.x(tau / 2), time.y(0) + 17, tau === 1 ? "one round late" : `${tau} rounds late`, {
      "text-anchor": "middle",
    });
    time.label = `the straggler pulls in round 0 and arrives ${tau} rounds later`;

    plane.axes({ xticks: ticks(-2, 2, 4), yticks: ticks(-2, 2, 4) });
    plane.curve(path, { class: "pfl-global" });
    path.forEach((w) => plane.circle(w, 3.5, { fill: plane.theme.ink }));
    plane.line(path[0], local, { class: "pfl-leash" });
    plane.circle(local, 5, { fill: PALETTE[6], class: "pfl-model" });
    plane.text(plane.x(path.at(-1)[0]) + 8, plane.y(path.at(-1)[1]) - 6, "now", { class: "pfl-tick" });
    plane.shape(
      "circle",
      { cx: plane.x(truth[0]), cy: plane.y(truth[1]), r: 11, class: "pfl-truth" },
      undefined,
      2,
    );
    for (const [k, w] of Object.entries(guesses))
      plane.diamond(
        w.map((v) => clamp(v, -2, 2)),
        7,
        { fill: COLOURS[k], class: "pfl-cloud" },
        2,
      );
    [
      ["start", PALETTE[6]],
      ["goal", PALETTE[6]],
      ["own", PALETTE[1]],
    ].forEach(([name, colour], i) =>
      plane.handle("places", i, s.places[i], {
        label: ["start of the global model", "goal of the global model", "straggler’s own optimum"][i],
        text: "SGO"[i],
        colour,
        r: 10,
        hollow: true,
      }),
    );
    plane.label = "the global model’s path, the straggler’s model, and four predictions of it";

    const entries = Object.entries(errors),
      top = roundUp(Math.max(...Object.values(errors), 0.05));
    bars.scale({ x: [0, top], y: [0, 4] });
    bars.axes({ xlabel: "error ‖ŵ − truth‖ / ‖true update‖", xticks: ticks(0, top, 4), yticks: [] });
    entries.forEach(([k, e], row) => {
      const y = bars.y(3.5 - row);
      bars.text(bars.margin[3] - 6, y + 4, GUESSES[k], { "text-anchor": "end" });
      bars.shape("rect", {
        x: bars.x(0),
        y: y - 20,
        width: Math.max(1, bars.x(e) - bars.x(0)),
        height: 40,
        fill: COLOURS[k],
        rx: 3,
        "data-error": e,
      });
      const inside = e > 0.6 * top;
      bars.text(bars.x(e) + (inside ? -6 : 6), y + 5, number(e), {
        "text-anchor": inside ? "end" : "start",
        class: inside ? "pfl-name" : "pfl-text pfl-strong",
        ...(inside ? { fill: onTop(COLOURS[k]) } : {}),
      });
    });
    bars.label = `errors: ${entries.map(([k, e]) => `${GUESSES[k]} ${number(e)}`).join(", ")}`;
  },

  say(s, { S, trust, leap, errors }) {
    const best = Object.keys(errors).reduce((a, b) => (errors[b] < errors[a] ? b : a));
    const same = Math.abs(errors.eq11 - errors.no_leap) < 1e-12;
    return {
      text: `Server and straggler go ${S > 0.5 ? "the same way" : S < -0.5 ? "opposite ways" : "different ways"}: S = ${number(S, 2)}, S̃ = ${number(trust, 2)}. The printed leap is ${number(100 * leap, 2)} % of the local update${same && s.staleness === 1 ? " (zero for τ = 1)" : ""}. Nearest to the truth: ${GUESSES[best]} (${number(errors[best], 2)}); Eq. (11) without its leap has ${number(errors.no_leap, 2)}.`,
    };
  },

  tries: [
    {
      name: "The paper’s rate",
      set: (s) => ({ ...s, staleness: 5, lr: 0.001, steps: 20, drift: 0.08 }),
      why: "β = 0.001: the printed leap is next to nothing. What helps is Eq. (11)’s new base, the model of now: so in all of 400 random placements.",
    },
    {
      name: "A lucky place",
      set: (s) => ({
        ...s,
        places: [
          [-1.5, 0],
          [1, -0.1],
          [0.4, 1.2],
        ],
        staleness: 5,
        lr: 0.02,
        steps: 20,
        drift: 0.08,
      }),
      why: "Searched for: here the compensated leap cuts the error to a quarter. It helped in 70 % of 400 random placements, mostly far less.",
    },
    {
      name: "Overshoot",
      set: (s) => ({
        ...s,
        places: [
          [-1.4, -1.2],
          [1.2, 0.3],
          [-0.3, 1.5],
        ],
        staleness: 5,
        lr: 0.01,
        steps: 20,
        drift: 0.15,
      }),
      why: "The compensated form takes the squared gradient for the curvature. Where gradients are large that is too much: no leap is best.",
    },
    {
      name: "Barely late",
      set: (s) => ({ ...s, staleness: 1, lr: 0.02, steps: 20, drift: 0.08 }),
      why: "τ = 1: the printed leap is exactly zero, and (11) with or without it is the same.",
    },
  ],
});
