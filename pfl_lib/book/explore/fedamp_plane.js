// FedAMP's weights in the plane: who hears whom, what the cloud sends back, and the function behind it.

const FAR = 6, // the longest distance on the curves' axis
  SAMPLES = range(121).map((k) => (FAR * k) / 120);
const BESIDE = {
  weights: "ξ: row i is what client i hears",
  value: "A(r²): what distance r costs",
  slope: "A′(r²): the weight of a message",
  pull: "2r·A′(r²): the pull on a model",
};
const inAlpha = (s) => s.form === "alpha";

function drawCurve(p, s, { curves, at, convex_until }) {
  const k = Object.keys(BESIDE).indexOf(s.beside) - 1,
    values = curves.map((c) => c[k]),
    top = roundUp(Math.max(...values, ...at.map((a) => a[k + 1])));
  p.scale({ x: [0, FAR], y: [-0.04 * top, top] }); // a point that weighs nothing lies above the numbers
  if (convex_until < FAR)
    p.shape("rect", {
      x: p.x(convex_until),
      y: p.y(top),
      width: p.x(FAR) - p.x(convex_until),
      height: p.y(-0.04 * top) - p.y(top),
      class: "pfl-warned",
    });
  p.axes({ xlabel: `distance r from client ${named(s, s.chosen)}`, yticks: ticks(0, top, 4) });
  p.curve(
    SAMPLES.map((r, j) => [r, values[j]]),
    {},
  );
  if (convex_until < FAR) p.mark(convex_until, "not convex");
  at.forEach((a, j) => {
    if (j === s.chosen || a[0] > FAR) return;
    p.line([a[0], 0], [a[0], a[k + 1]], { class: "pfl-guide" });
    p.circle([a[0], a[k + 1]], 9, { fill: groupColour(s, j), class: "pfl-model" });
    p.inscribe([a[0], a[k + 1]], named(s, j), groupColour(s, j), 0);
  });
  p.label = `${BESIDE[s.beside]}, with the other clients at their distances from client ${named(s, s.chosen)}`;
}

export default explorer({
  title: "Who listens to whom: FedAMP’s weights",
  ask: "Drag a client away from its group. When do the others stop listening to it?",
  lines: [4, 8],
  hint: "Reach a client with Tab, too, and move it with the arrow keys. The red mark is the largest α that keeps these weights convex.",
  controls: [
    slider("sigma", { label: "σ, attention width", min: 0.01, max: 100, log: true }),
    slider("alpha", {
      label: "α, step",
      min: 0.001,
      max: 100,
      log: true,
      off: (s) => !inAlpha(s),
      mark: (s, r) => ({ value: r.largest_alpha, label: "largest α that keeps these weights convex" }),
    }),
  ],
  more: [
    choice("attention", {
      label: "A, attention function",
      options: Object.fromEntries(Object.entries(ATTENTION).map(([k, v]) => [k, v.name])),
    }),
    choice("beside", {
      label: "Beside the plane",
      options: { weights: "weights ξ", value: "A", slope: "A′", pull: "pull" },
    }),
    choice("form", { label: "Self-weight", options: { alpha: "what α leaves", self_weight: "fixed" } }),
    slider("self_weight", { label: "ξᵢᵢ, self-weight", min: 0, max: 1, step: 0.01, off: inAlpha }),
  ],
  pictures: {
    plane: plane(3, "Clients wᵢ (drag them), messages uᵢ ◆", "Clients"),
    beside: { title: BESIDE.weights, tab: "Weights", height: 336, margin: [10, 10, 36, 44] },
  },

  compute(s) {
    const { points: W, attention: A, sigma } = s;
    const xi = inAlpha(s)
      ? fedampWeights(W, A, sigma, s.alpha)
      : attentionWeights(W, A, sigma, s.self_weight);
    const { value, slope, convexUntil } = ATTENTION[A],
      on = (r) => [value(r * r, sigma), slope(r * r, sigma), 2 * r * slope(r * r, sigma)],
      chosen = W[clamp(s.chosen, 0, W.length - 1)];
    return {
      xi,
      u: mix(xi, W),
      at: W.map((w) => Math.sqrt(distance2(chosen, w))).map((r) => [r, ...on(r)]),
      convex_until: Math.sqrt(convexUntil(sigma)),
      curves: SAMPLES.map(on),
      safe_alpha: safeAlpha(A, sigma, W.length),
      largest_alpha: Math.min(...largestConvexAlpha(W, A, sigma)),
    };
  },

  report: ({ curves, ...rest }) => ({ ...rest, curves: curves.filter((_, k) => k % 10 === 0) }),

  draw({ plane, beside }, s, result) {
    const { xi, u } = result,
      bad = (i) => xi[i][i] < -1e-12,
      names = s.points.map((_, i) => named(s, i));
    plane.axes();
    plane.label = `${s.points.length} clients in the plane, with lines as wide as the weights between them`;
    drawLinks(plane, s, xi);
    drawClients(plane, s, u, bad);
    beside.figure.firstChild.textContent = BESIDE[s.beside];
    if (s.beside !== "weights") return drawCurve(beside, s, result);
    beside.label = `weights of ${s.points.length} clients; self-weights ${xi.map((row, i) => number(row[i], 2)).join(", ")}`;
    beside.heat(xi, { rows: names, alarm: (i, j) => i === j && bad(i), chosen: s.chosen });
  },

  say(s, { xi, safe_alpha, largest_alpha, convex_until }) {
    const i = clamp(s.chosen, 0, xi.length - 1),
      row = xi[i],
      others = row.map((v, j) => (j === i ? -Infinity : v)),
      most = argmax(others);
    const alone = others[most] < 5e-4,
      hears = alone
        ? "and hears nobody"
        : `and listens most to client ${named(s, most)} (${number(others[most], 2)})`;
    const own = `Client ${named(s, i)} keeps ${number(row[i], 2)} of itself ${hears}.`;
    const limits = inAlpha(s)
      ? ` Here α may grow to ${number(largest_alpha)}; up to ${number(safe_alpha)} is safe wherever the clients go.`
      : " With a fixed self-weight the combination is always convex.";
    const shape =
      convex_until === Infinity
        ? " A(‖·‖²) is convex: the pull never falls, and nobody is let go."
        : ` A(‖·‖²) is convex up to r = ${number(convex_until)}: beyond it the pull falls.`;
    const bad = xi.map((r, k) => k).filter((k) => xi[k][k] < -1e-12);
    const whose =
      bad.length > 3
        ? `${bad.length} clients`
        : `client${bad.length > 1 ? "s" : ""} ${listed(bad.map((k) => named(s, k)))}`;
    const alarm = bad.length
      ? `No longer a convex combination: the self-weight of ${whose} is below zero.`
      : "";
    return { alarm, text: own + limits + shape };
  },

  tries: [
    {
      name: "Two groups",
      set: (s) => ({ ...s, form: "alpha", attention: "negative_exponential", sigma: 1, alpha: 1.5 }),
      why: "σ near the squared distance inside a group: each client hears its own group and hardly the other.",
    },
    {
      name: "α too large",
      set: (s) => ({ ...s, form: "alpha", attention: "negative_exponential", sigma: 1, alpha: 8 }),
      why: "Past the red mark the self-weight falls below zero, and the message jumps beyond the group.",
    },
    {
      name: "Everybody alike",
      set: (s) => ({
        ...s,
        form: "self_weight",
        attention: "negative_exponential",
        sigma: 100,
        self_weight: 0.17,
      }),
      why: "A very wide σ cannot tell clients apart: all others weigh the same, and the messages meet in the middle, as in FedAvg.",
    },
    {
      name: "FedAMP’s pull",
      set: (s) => ({ ...s, attention: "negative_exponential", sigma: 2, beside: "pull" }),
      why: "The pull on a model is strongest exactly where convexity ends, at r = √(σ/2). Drag a client past the top of the hill.",
    },
    {
      name: "A convex one",
      set: (s) => ({ ...s, attention: "tamed_square_root", sigma: 0.5, beside: "pull" }),
      why: "The tamed square root pulls equally hard at every distance beyond σ: the Huber function in disguise. Nobody is ever let go.",
    },
    {
      name: "Hard selection",
      set: (s) => ({ ...s, form: "alpha", attention: "mcp", sigma: 1.5, alpha: 1, beside: "slope" }),
      why: "MCP is exactly zero beyond r² = 2σ. Drag a client away: its links break for good, not just fade.",
    },
  ],
});
