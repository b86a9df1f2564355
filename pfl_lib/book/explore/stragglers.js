// LGA: a straggler arrives τ rounds late. Where would its model be now?

const CURVATURE = [1, 2]; // of the straggler's loss ½Σ h_q (w_q − c_q)²
const GUESSES = { eq10: "Eq. (10)", eq11: "Eq. (11)", no_leap: "(11), no leap", compensated: "compensated" };
const COLOURS = { eq10: PALETTE[1], eq11: PALETTE[0], no_leap: PALETTE[4], compensated: PALETTE[2] };
const MOST = 10;

// Two lanes above the plane: the server, round by round, and the straggler from its pull to its arrival.
function drawTime(p, s, arrived) {
  const x = (k) => 78 + (k / MOST) * (p.width - 92),
    [server, late] = [20, 52],
    own = PALETTE[1],
    until = Math.min(s.round, s.staleness);
  const stroke = (x1, y1, x2, y2, attributes) => p.shape("line", { x1, y1, x2, y2, ...attributes });
  p.text(0, server + 4, "server", {});
  p.text(0, late + 4, "straggler", { class: "pfl-text pfl-strong" });
  stroke(x(0), server, x(MOST), server, { class: "pfl-grid" });
  stroke(x(0), late, x(MOST), late, { class: "pfl-grid" });
  stroke(x(0), server, x(0), late, { class: "pfl-arrow", stroke: own });
  stroke(x(0), late, x(s.staleness), late, { class: "pfl-late", stroke: own, "stroke-opacity": 0.25 });
  if (until) stroke(x(0), late, x(until), late, { class: "pfl-late", stroke: own });
  if (arrived) stroke(x(s.staleness), late, x(s.staleness), server, { class: "pfl-arrow", stroke: own });
  range(MOST + 1).forEach((k) => {
    p.shape("circle", { cx: x(k), cy: server, r: k === s.round ? 6 : 3.5, fill: k <= s.round ? p.theme.ink : blend(p.theme.paper, p.theme.ink, 0.3) });
    p.text(x(k), server - 9, String(k), { "text-anchor": "middle", class: k === s.round ? "pfl-tick pfl-strong" : "pfl-tick" });
  }); // prettier-ignore
  p.shape("circle", { cx: x(until), cy: late, r: 7, fill: own, class: "pfl-model" });
}

// The word "truth" beside its ring, on the side that is farthest from everything else.
function nameTruth(p, truth, others) {
  const [x, y] = [p.x(truth[0]), p.y(truth[1])],
    far = ([dx, dy]) => Math.min(...others.map((w) => Math.hypot(p.x(w[0]) - x - dx, p.y(w[1]) - y - dy)));
  const [dx, dy] = [[0, -22], [0, 22], [34, 0], [-34, 0]].reduce((a, b) => (far(b) > far(a) ? b : a)); // prettier-ignore
  p.text(x + dx, y + dy + 4, "truth", { "text-anchor": "middle" });
}

export default explorer({
  title: "Stragglers: a leap to where the model would be",
  ask: "A client pulls a model, trains, and is late. The server has moved on: what should it make of what arrives?",
  hint: "Drag S, where the global model starts, G, where it goes, or O, the straggler’s own optimum. The truth is the same training, started now.",
  lines: [3, 7],
  controls: [
    player("round", { label: "round", max: MOST, every: 350 }),
    slider("staleness", { label: "τ, rounds late", min: 1, max: MOST, step: 1 }),
    slider("drift", {
      label: "global model’s way per round",
      min: 0.02,
      max: 0.6,
      step: 0.01,
      show: (v) => `${number(100 * v)} %`,
    }),
  ],
  more: [
    slider("lr", { label: "β, local learning rate", min: 0.001, max: 0.5, log: true }),
    slider("steps", { label: "E, local steps", min: 1, max: 50, step: 1 }),
  ],
  pictures: {
    plane: plane(2, "Time above, the models below", "Models", { height: 390, margin: [74, 8, 24, 26] }),
    errors: {
      title: "Distance to the truth, in true local updates",
      tab: "Errors",
      height: 390,
      margin: [8, 12, 36, 96],
    },
  },

  compute({ places: [start, goal, own], staleness, lr, steps, drift, round }) {
    const path = [start];
    for (let k = 0; k < staleness; k++) path.push(path[k].map((x, q) => x + drift * (goal[q] - x)));
    const train = (w, count = steps) => {
      for (let k = 0; k < count; k++) w = w.map((x, q) => x - lr * CURVATURE[q] * (x - own[q]));
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
    const at = Math.min(round, staleness);
    return {
      path,
      local,
      here: path[at],
      training: train(pull, Math.floor((steps * at) / staleness)),
      truth,
      S,
      trust,
      leap: Math.hypot(...printed) / Math.hypot(...moved),
      guesses,
      errors,
    };
  },

  draw({ plane, errors: bars }, s, { path, local, here, training, truth, guesses, errors }) {
    const late = s.staleness,
      at = Math.min(s.round, late),
      arrived = s.round >= late;
    drawTime(plane, s, arrived);
    plane.axes();
    plane.curve(path.slice(0, at + 1), { class: "pfl-global" });
    path.slice(0, at + 1).forEach((w) => plane.circle(w, 3, { fill: plane.theme.ink }));
    plane.line(path[0], training, { class: "pfl-arrow", stroke: PALETTE[1] });
    plane.circle(training, 7, { fill: PALETTE[1], class: "pfl-model" });
    plane.circle(here, 7, { fill: plane.theme.ink, class: "pfl-model" });
    // beside the server's model, away from where the straggler's models are
    const right = s.places[2][0] < here[0],
      side = plane.x(here[0]) + (right ? 10 : -10);
    plane.text(right ? side : Math.max(side, 72), plane.y(here[1]) - 6, "server", {
      "text-anchor": right ? "start" : "end",
    });
    if (arrived) {
      plane.shape(
        "circle",
        { cx: plane.x(truth[0]), cy: plane.y(truth[1]), r: 11, class: "pfl-truth" },
        undefined,
        2,
      );
      nameTruth(plane, truth, [...Object.values(guesses), ...s.places, here, training]);
      for (const [k, w] of Object.entries(guesses))
        plane.diamond(
          w.map((v) => clamp(v, -2, 2)),
          7,
          { fill: COLOURS[k], class: "pfl-cloud" },
          2,
        );
    }
    [PALETTE[6], PALETTE[6], PALETTE[1]].forEach((colour, i) =>
      plane.handle("places", i, s.places[i], {
        label: ["start of the global model", "goal of the global model", "straggler’s own optimum"][i],
        text: "SGO"[i],
        colour,
        r: 10,
        hollow: true,
      }),
    );
    plane.label = arrived
      ? "the global model’s path, the straggler’s model, four predictions of it and the truth"
      : `round ${s.round}: the server’s model moves on while the straggler trains`;

    // a logarithmic axis: one guess may be a hundred times as far off as another
    const entries = Object.entries(errors);
    const [low, high] = [0.05, 50];
    bars.scale({ x: [low, high], y: [0, 4], xlog: true });
    bars.axes({ xlabel: "error ‖ŵ − truth‖ / ‖true update‖", xticks: [0.1, 1, 10], yticks: [] });
    entries.forEach(([k, e], row) => {
      const y = 3.5 - row,
        x = clamp(e, low, high);
      bars.text(bars.margin[3] - 6, bars.y(y) + 4, GUESSES[k], { "text-anchor": "end" });
      if (!arrived) return;
      bars.line([low, y], [x, y], { class: "pfl-arrow", stroke: COLOURS[k] });
      bars.shape("circle", { cx: bars.x(x), cy: bars.y(y), r: 9, fill: COLOURS[k], class: "pfl-model", "data-error": e });
      bars.text(bars.x(x), bars.y(y) - 15, number(e), { "text-anchor": "middle", class: "pfl-text pfl-strong" });
    }); // prettier-ignore
    if (!arrived)
      bars.text((bars.margin[3] + bars.width) / 2, bars.y(2), "not there yet", { "text-anchor": "middle" });
    bars.label = arrived
      ? `errors: ${entries.map(([k, e]) => `${GUESSES[k]} ${number(e)}`).join(", ")}`
      : "no errors yet: the straggler is still training";
  },

  say(s, { S, trust, leap, errors, path, here }) {
    if (s.round < s.staleness)
      return {
        text: `Round ${s.round}: the straggler still trains on the model that it pulled in round 0. The server’s model has moved on by ${number(Math.sqrt(distance2(path[0], here)), 2)}. It will arrive in round ${s.staleness}.`,
      };
    const best = Object.keys(errors).reduce((a, b) => (errors[b] < errors[a] ? b : a));
    const same = Math.abs(errors.eq11 - errors.no_leap) < 1e-12;
    return {
      text: `Server and straggler go ${S > 0.5 ? "the same way" : S < -0.5 ? "opposite ways" : "different ways"}: S = ${number(S, 2)}, S̃ = ${number(trust, 2)}. The printed leap is ${number(100 * leap, 2)} % of the local update${same && s.staleness === 1 ? " (zero for τ = 1)" : ""}. Nearest to the truth: ${GUESSES[best]} (${number(errors[best], 2)}); Eq. (11) without its leap has ${number(errors.no_leap, 2)}.`,
    };
  },

  tries: [
    {
      name: "The paper’s rate",
      set: (s) => ({ ...s, round: MOST, staleness: 5, lr: 0.001, steps: 20, drift: 0.08 }),
      why: "β = 0.001: the printed leap is next to nothing. What helps is Eq. (11)’s new base, the model of now: so in all of 400 random placements.",
    },
    {
      name: "A lucky place",
      set: (s) => ({
        ...s, round: MOST,
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
        ...s, round: MOST,
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
      set: (s) => ({ ...s, round: MOST, staleness: 1, lr: 0.02, steps: 20, drift: 0.08 }),
      why: "τ = 1: the printed leap is exactly zero, and (11) with or without it is the same.",
    },
  ],
});
