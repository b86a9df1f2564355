// FedAMP's weights in the plane: who hears whom, and what the cloud sends back.

const inAlpha = (s) => s.form === "alpha";

export default explorer({
  title: "Who listens to whom: FedAMP’s weights",
  lines: [3, 5],
  hint: "Drag a client, or reach it with Tab and move it with the arrow keys. The red mark is the largest α that keeps these weights convex.",
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
    slider("self_weight", { label: "ξᵢᵢ, own weight", min: 0, max: 1, step: 0.01, off: inAlpha }),
    choice("attention", {
      label: "A, attention function",
      options: {
        negative_exponential: "exponential",
        tamed_square_root: "tamed √",
        mcp: "MCP",
        scad: "SCAD",
      },
    }),
    choice("form", { label: "Own weight", options: { alpha: "what α leaves", self_weight: "fixed" } }),
  ],
  pictures: {
    plane: {
      title: "Clients wᵢ (drag them), cloud models uᵢ ◆",
      x: [-3, 3],
      y: [-3, 3],
      height: 336,
      margin: [6, 8, 24, 26],
    },
    heat: { title: "ξ: row i is what client i hears", height: 336 },
  },

  compute(s) {
    const { points: W, attention: A, sigma } = s;
    const xi = inAlpha(s)
      ? fedampWeights(W, A, sigma, s.alpha)
      : attentionWeights(W, A, sigma, s.self_weight);
    return {
      xi,
      u: mix(xi, W),
      safe_alpha: safeAlpha(A, sigma, W.length),
      largest_alpha: Math.min(...largestConvexAlpha(W, A, sigma)),
    };
  },

  draw({ plane, heat }, s, { xi, u }) {
    const bad = (i) => xi[i][i] < -1e-12,
      names = s.points.map((_, i) => named(s, i));
    plane.axes();
    plane.label = `${s.points.length} clients in the plane, with lines as wide as the weights between them`;
    drawLinks(plane, s, xi);
    drawClients(plane, s, u, bad);
    heat.label = `weights of ${s.points.length} clients; own weights ${xi.map((row, i) => number(row[i], 2)).join(", ")}`;
    heat.heat(xi, { rows: names, alarm: (i, j) => i === j && bad(i), chosen: s.chosen });
  },

  say(s, { xi, safe_alpha, largest_alpha }) {
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
      : " With a fixed own weight the combination is always convex.";
    const bad = xi.map((r, k) => k).filter((k) => xi[k][k] < -1e-12);
    const whose =
      bad.length > 3
        ? `${bad.length} clients`
        : `client${bad.length > 1 ? "s" : ""} ${listed(bad.map((k) => named(s, k)))}`;
    const alarm = bad.length
      ? `No longer a convex combination: the own weight of ${whose} is below zero.`
      : "";
    return { alarm, text: own + limits };
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
      why: "Past the red mark the own weight falls below zero, and the cloud model jumps beyond the group.",
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
      why: "A very wide σ cannot tell clients apart: all others weigh the same, and the clouds meet in the middle, as in FedAvg.",
    },
    {
      name: "Hard selection",
      set: (s) => ({ ...s, form: "alpha", attention: "mcp", sigma: 1.5, alpha: 1 }),
      why: "MCP is exactly zero beyond t = 2σ. Drag a client away: its links break for good, not just fade.",
    },
  ],
});
