// FedALA: each parameter learns its own place between the local and the global model.

const STEPS = 30;

export default explorer({
  title: "ALA: a learned mixture inside a box",
  ask: "Where does a mixture of two models end, if every parameter may choose for itself?",
  hint: "Drag L (the local model), G (the global one) or ✕ (the best for this client’s data). The mixture starts at G and cannot leave the box.",
  lines: [3, 7],
  controls: [
    player("step", { label: "ALA step", max: STEPS, every: 250 }),
    slider("eta", {
      label: "η, weight learning rate",
      min: 0.01,
      max: 10,
      log: true,
      mark: (s, r) => ({ value: r.stable_eta, label: "largest η that does not overshoot for ever" }),
    }),
    slider("curvature", { label: "curvature of the second axis", min: 0.1, max: 10, log: true }),
  ],
  pictures: {
    plane: plane(3, "Loss (contours), the box, the mixture’s path", "The box"),
    weights: {
      title: "W: 0 is all local, 1 is all global",
      tab: "Weights W",
      height: 336,
      margin: [10, 12, 36, 40],
      x: [0, STEPS],
      y: [0, 1],
    },
  },

  compute({ places: [local, global, best], eta, curvature }) {
    const H = [1, curvature],
      way = global.map((x, q) => x - local[q]);
    const mixed = (W) => local.map((x, q) => x + way[q] * W[q]),
      loss = (t) => 0.5 * sum(t.map((x, q) => H[q] * (x - best[q]) ** 2));
    const W = [[1, 1]];
    let clipped = 0;
    for (let k = 0; k < STEPS; k++) {
      const theta = mixed(W[k]);
      W.push(
        W[k].map((w, q) => {
          const next = w - eta * way[q] * H[q] * (theta[q] - best[q]);
          if (next < 0 || next > 1) clipped++;
          return clamp(next, 0, 1);
        }),
      );
    }
    const limit = way.map((d, q) => (d === 0 ? 1 : clamp((best[q] - local[q]) / d, 0, 1)));
    const stiff = Math.max(...way.map((d, q) => d * d * H[q]));
    return {
      W,
      path: W.map(mixed),
      losses: W.map((w) => loss(mixed(w))),
      limit,
      best: mixed(limit),
      loss_local: loss(local),
      loss_global: loss(global),
      loss_best: loss(mixed(limit)),
      stable_eta: 2 / stiff,
      clipped,
    };
  },

  draw({ plane, weights }, s, { W, path, limit, best }) {
    const [local, global, goal] = s.places,
      { paper, heat } = plane.theme,
      unit = plane.x(1) - plane.x(0);
    plane.shape("rect", {
      x: plane.x(-3),
      y: plane.y(3),
      width: 6 * unit,
      height: 6 * unit,
      fill: blend(paper, heat, 0.3),
    });
    range(9)
      .reverse()
      .forEach((k) => {
        // contours at losses ½(0.6(k+1))²
        const r = 0.6 * (k + 1);
        plane.shape("ellipse", {
          cx: plane.x(goal[0]),
          cy: plane.y(goal[1]),
          rx: r * unit,
          ry: (r * unit) / Math.sqrt(s.curvature),
          fill: blend(paper, heat, 0.035 * k),
          class: "pfl-contour",
          ...plane.clip,
        });
      });
    plane.axes();
    const [x, y] = [0, 1].map((q) => [Math.min(local[q], global[q]), Math.max(local[q], global[q])]);
    plane.shape("rect", {
      x: plane.x(x[0]),
      y: plane.y(y[1]),
      width: plane.x(x[1]) - plane.x(x[0]),
      height: plane.y(y[0]) - plane.y(y[1]),
      class: "pfl-box",
    });
    plane.line(local, global, { class: "pfl-guide" });
    plane.curve(path.slice(0, s.step + 1), { class: "pfl-curve pfl-second" });
    path.slice(0, s.step + 1).forEach((t) => plane.circle(t, 3, { class: "pfl-stop-dot" }));
    plane.diamond(best, 5, { class: "pfl-cloud", fill: PALETTE[2] });
    plane.diamond(path[s.step], 8, { class: "pfl-cloud", fill: PALETTE[1] }, 2);
    [
      ["L", PALETTE[0], "local model"],
      ["G", PALETTE[6], "global model"],
      ["✕", PALETTE[2], "best model for this client"],
    ].forEach(([text, colour, label], i) =>
      plane.handle("places", i, s.places[i], { label, text, colour, r: 11, hollow: i === 2 }),
    );
    plane.label = `the mixture after ${s.step} steps lies at ${path[s.step].map((v) => number(v)).join(", ")}`;

    weights.axes({ xlabel: "ALA step" });
    ["pfl-curve", "pfl-curve pfl-second"].forEach((name, q) => {
      weights.line([0, limit[q]], [STEPS, limit[q]], { class: "pfl-guide" });
      weights.curve(
        W.map((w, k) => [k, w[q]]),
        { class: name },
      );
      weights.circle([s.step, W[s.step][q]], 6, { class: "pfl-model", fill: q ? PALETTE[1] : PALETTE[0] });
    });
    weights.text(weights.x(STEPS) - 6, weights.y(1) + 18, "blue: W₁ (across), orange: W₂ (up)", {
      "text-anchor": "end",
    });
    weights.label = `weights after ${s.step} steps: ${W[s.step].map((w) => number(w)).join(" and ")}`;
  },

  say(s, { W, losses, loss_local, loss_global, loss_best, stable_eta, clipped }) {
    const now = W[s.step],
      alarm =
        s.eta > stable_eta
          ? `η is above ${number(stable_eta)}: a weight overshoots and is thrown back by the box again and again.`
          : "";
    return {
      alarm,
      text: `After ${s.step} steps W = (${number(now[0], 2)}, ${number(now[1], 2)}): loss ${number(losses[s.step])}; local alone ${number(loss_local)}, global alone ${number(loss_global)}, best in the box ${number(loss_best)}. Clipped ${clipped} time${clipped === 1 ? "" : "s"} in ${STEPS} steps.`,
    };
  },

  tries: [
    {
      name: "Gentle",
      set: (s) => ({ ...s, eta: 0.03, curvature: 1, step: STEPS }),
      why: "A small η: the mixture slides from G towards the best point, faster along the longer side of the box.",
    },
    {
      name: "The paper’s η = 1",
      set: (s) => ({ ...s, eta: 1, curvature: 1, step: STEPS }),
      why: "η = 1 is stable only if η(Θ − Θᵢ)²H < 2 for every parameter. On this long side it is not, and W jumps between 0 and 1.",
    },
    {
      name: "Best outside",
      set: (s) => ({
        ...s,
        places: [
          [-1.5, -1],
          [1.2, 1],
          [2.4, 0.2],
        ],
        eta: 0.03,
        step: STEPS,
      }),
      why: "The best point lies outside the box: W₁ is clipped at 1, all global, while W₂ finds its own place.",
    },
  ],
});
