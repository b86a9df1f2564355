// One picture, four rules: the same clients under FedAvg, FedAMP, HeurFedAMP and FedACS.

const RULES = { fedavg: "FedAvg", fedamp: "FedAMP", heurfedamp: "HeurFedAMP", fedacs: "FedACS" };
const LIMIT = 3,
  about = (x, y, w) => [x + w[0], y + w[1]];
const pane = (title) => ({
  title,
  height: 262,
  basis: 270, // two beside two
  margin: [4, 4, 24, 4],
  x: [-1.42 * LIMIT, 1.42 * LIMIT],
  y: [-LIMIT, LIMIT],
});

export default explorer({
  title: "One picture, four rules",
  ask: "The same six clients, four servers. Drag one: which servers notice?",
  all: true,
  hint: "Drag a client in any of the four: it moves in all. Diamonds are what the server sends back; cosines are measured from the origin.",
  lines: [3, 7],
  controls: [
    slider("sigma", { label: "FedAMP: σ, width", min: 0.01, max: 100, log: true }),
    slider("sharpness", { label: "HeurFedAMP: σ, sharpness", min: 0.1, max: 100, log: true }),
    slider("p", { label: "FedACS: p, quantile level", min: 0, max: 1, step: 0.01 }),
  ],
  more: [slider("self_weight", { label: "self-weight ξᵢᵢ of FedAMP and HeurFedAMP", min: 0, max: 1, step: 0.01 })],
  pictures: Object.fromEntries(Object.entries(RULES).map(([key, name]) => [key, pane(name)])),

  compute(s) {
    const W = s.points,
      m = W.length,
      S = cosineSimilarities(W),
      group = (i) => s.groups[i] ?? 0;
    const weights = {
      fedavg: table(m, m, () => 1 / m),
      fedamp: attentionWeights(W, "negative_exponential", s.sigma, s.self_weight),
      heurfedamp: heurfedampWeights(W, s.sharpness, s.self_weight),
      fedacs: fedacsSelect(S, fedacsThreshold(S, s.p), "drop"),
    };
    const each = (f) => Object.fromEntries(Object.entries(weights).map(([k, xi]) => [k, f(xi)]));
    return {
      weights,
      u: each((xi) => mix(xi, W)),
      inside: each((xi) => sum(xi.map((row, i) => sum(row.filter((_, j) => group(j) === group(i))))) / m),
    };
  },

  draw(pictures, s, { weights, u, inside }) {
    for (const [key, p] of Object.entries(pictures)) {
      p.axes({ xticks: [], yticks: [] });
      p.line([-0.2, 0], [0.2, 0], { class: "pfl-cross" });
      p.line([0, -0.2], [0, 0.2], { class: "pfl-cross" });
      p.text(p.x(0) + 10, p.y(0) + 14, "origin", { class: "pfl-tick" });
      drawLinks(p, s, weights[key]);
      drawClients(p, s, u[key], () => false, { r: 11 });
      p.text(p.width / 2, p.height - 8, `${number(100 * inside[key], 2)} % stays within the groups`, {
        "text-anchor": "middle",
        "data-inside": inside[key],
      });
      p.label = `${RULES[key]}: ${number(100 * inside[key], 2)} percent of the weight stays in a client’s own group`;
    }
  },

  move: (s, key, index, point) => ({
    points: s.points.map((w, i) => (i === index ? point.map((v) => clamp(v, -LIMIT, LIMIT)) : w)),
    chosen: index,
  }),

  say(s, { inside, u }) {
    const order = Object.keys(RULES).sort((a, b) => inside[b] - inside[a]),
      spread = (rows) =>
        Math.sqrt(
          sum(rows.map((r) => distance2(r, mix([rows.map(() => 1 / rows.length)], rows)[0]))) / rows.length,
        );
    const words = order.map((k) => `${RULES[k]} ${number(100 * inside[k], 2)} %`);
    return {
      text: `Weight that stays in a client’s own group: ${words.join(", ")}. FedAvg gives everybody one model; the messages of FedAMP spread by ${number(spread(u.fedamp), 2)}, of HeurFedAMP by ${number(spread(u.heurfedamp), 2)}, of FedACS by ${number(spread(u.fedacs), 2)}.`,
    };
  },

  tries: [
    {
      name: "Opposite sides",
      set: (s) => ({
        ...s,
        points: s.points.map((w, i) =>
          s.groups[i] ? [-1.5 + 0.4 * (w[0] + 1.3), -1 + 0.4 * (w[1] - 0.6)] : w,
        ),
      }),
      why: "Two groups on opposite sides of the origin: near and aligned is the same thing, and the personalised rules agree.",
    },
    {
      name: "Far from the origin",
      set: (s) => ({
        ...s,
        sigma: 0.4,
        points: s.points.map((w) => about(1.5, 1.5, [0.6 * w[0], 0.6 * w[1]])),
      }),
      why: "The same picture, smaller and away from the origin: all cosines are near 1. HeurFedAMP hardly sees groups, FedACS’s quantile helps a little, FedAMP still tells them apart.",
    },
    {
      name: "Same way, other length",
      set: (s) => ({
        ...s,
        points: s.points.map((w, i) =>
          i === 0 ? [2.9, 1.7] : i === 1 ? [0.5, 0.3] : i === 2 ? [1.7, 1] : w,
        ),
      }),
      why: "Group one along a ray: cosines call its clients equal, distances do not.",
    },
  ],
});
