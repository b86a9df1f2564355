// FedAMP through time, on losses ½‖w − cᵢ‖² whose proximal step has a closed form.

const ROUNDS = 60,
  REACH = 0.4,
  SOLVING = 400;
const theorem = (s) => s.step === "theorem";
const factorOf = (s) => (s.gradient === "true" ? 2 : 1);
const norm = (W) => Math.sqrt(sum(W.flat().map((x) => x * x)));
const minusOf = (A, B) => A.map((row, i) => row.map((x, k) => x - B[i][k]));

// The minimiser of G for a convex A: accelerated proximal gradient, from the optima.
function minimiser(s, lam) {
  const m = s.points.length,
    alpha = s.sigma / m,
    beta = alpha / lam,
    root = Math.sqrt(beta / (1 + beta)),
    speed = (1 - root) / (1 + root);
  let W = s.points,
    V = W;
  for (let k = 0; k < SOLVING; k++) {
    const slope = fedampGradient(V, s.attention, s.sigma);
    const next = proximalStepQuadratic(
      V.map((v, i) => v.map((x, q) => x - alpha * slope[i][q])),
      1,
      s.points,
      beta,
    );
    V = next.map((row, i) => row.map((x, q) => x + speed * (x - W[i][q])));
    W = next;
  }
  return W;
}

// What the settings to try begin with.
const usual = (s) => ({
  ...s,
  start: "optima",
  attention: "negative_exponential",
  gradient: "true",
  step: "free",
  sigma: 2,
  lam: 1.5,
  alpha: 0.1,
  round: ROUNDS,
});

export default explorer({
  title: "FedAMP through time",
  ask: "Will these six models end in one group, in two, or each alone?",
  hint: "Rings are the clients’ own optima (drag them), dots their models. Press Play; then try another start.",
  lines: [3, 7],
  controls: [
    player("round", { label: "round k", max: ROUNDS }),
    slider("sigma", { label: "σ, attention width", min: 0.1, max: 100, log: true }),
    choice("start", { label: "Start", options: { optima: "own optima", middle: "one model" } }),
  ],
  more: [
    slider("lam", { label: "λ, weight of being alike", min: 0.01, max: 10, log: true }),
    slider("alpha", { label: "α, step", min: 0.01, max: 3, log: true, off: theorem }),
    choice("attention", {
      label: "A",
      options: { negative_exponential: "exponential", tamed_square_root: "tamed √" },
    }),
    choice("gradient", { label: "Weights", options: { true: "true, 2αA′", printed: "printed, αA′" } }),
    choice("step", { label: "Step", options: { free: "α as set", theorem: "α = λ/√K" } }),
  ],
  pictures: {
    plane: plane(3, "Optima ○ and models ● in round k", "Models"),
    fall: { title: "The objective G, round by round", tab: "Objective", height: 336, margin: [10, 10, 36, 54], x: [0, ROUNDS] },
  },

  compute(s) {
    const { points: c, attention: A, sigma, lam } = s,
      alpha = theorem(s) ? lam / Math.sqrt(ROUNDS) : s.alpha,
      factor = factorOf(s);
    const objective = (W) =>
      0.5 * sum(W.map((w, i) => distance2(w, c[i]))) + lam * fedampObjective(W, A, sigma);
    const path = [s.start === "middle" ? c.map(() => [0, 0]) : c];
    let own = 1;
    for (let k = 0; k < ROUNDS; k++) {
      const xi = fedampWeights(path[k], A, sigma, alpha, factor);
      own = Math.min(own, ...xi.map((row, i) => row[i]));
      path.push(proximalStepQuadratic(mix(xi, path[k]), 1, c, alpha / lam));
    }
    const G = path.map(objective),
      result = { alpha, path, G, own, best: null, bound: null };
    if (A === "tamed_square_root") {
      const star = minimiser(s, lam);
      result.best = objective(star);
      if (theorem(s) && factor === 2) {
        // Theorem 1, with the ½ its proof gives
        const B = Math.max(
          ...path.map((W) => Math.max(norm(minusOf(W, c)), lam * norm(fedampGradient(W, A, sigma)))),
        );
        result.bound = (norm(minusOf(path[0], star)) ** 2 + 5 * B * B) / (2 * Math.sqrt(ROUNDS));
      }
    }
    result.groups = groupsWithin(path[s.round], REACH);
    return result;
  },
  report: ({ path, groups, ...rest }) => ({
    ...rest,
    path: path.filter((_, k) => k % 15 === 0),
    groups: groups.length,
  }),

  draw({ plane, fall }, s, { alpha, path, G, best, bound }) {
    const W = path[s.round];
    plane.axes();
    plane.label = `models of ${W.length} clients in round ${s.round}, on their way to and from each other`;
    drawLinks(
      plane,
      { points: W, chosen: s.chosen },
      fedampWeights(W, s.attention, s.sigma, alpha, factorOf(s)),
    );
    s.points.forEach((c, i) => {
      plane.curve(
        path.slice(0, s.round + 1).map((V) => V[i]),
        { stroke: groupColour(s, i), class: "pfl-path" },
      );
      plane.handle("points", i, c, {
        label: `optimum of client ${named(s, i)}`,
        colour: groupColour(s, i),
        r: 9,
        hollow: true,
        chosen: i === s.chosen,
      });
    });
    W.forEach((w, i) => {
      const colour = groupColour(s, i);
      plane.shape(
        "circle",
        { cx: plane.x(w[0]), cy: plane.y(w[1]), r: 8.5, fill: colour, class: "pfl-model" },
        undefined,
        2,
      );
      plane.shape(
        "text",
        {
          x: plane.x(w[0]),
          y: plane.y(w[1]) + 4.5,
          "text-anchor": "middle",
          fill: onTop(colour),
          class: "pfl-name",
        },
        clip(named(s, i), 9),
        2,
      );
    });

    const log = best !== null,
      values = log ? G.map((g) => Math.max(g - best, 1e-8)) : G;
    const top = log
      ? 10 ** Math.ceil(Math.log10(Math.max(...values, bound || 0, 1)))
      : roundUp(Math.max(...G.filter(Number.isFinite)));
    fall.scale({ x: [0, ROUNDS], y: [log ? 1e-8 : 0, top], ylog: log });
    fall.axes({
      xlabel: "round k",
      ylabel: log ? "G − G*, the gap to the best" : "G",
      xticks: range(7).map((k) => 10 * k),
      yticks: log ? range(Math.round(Math.log10(top)) / 2 + 5).map((k) => 10 ** (2 * k - 8)) : undefined,
    });
    fall.curve(
      values.map((g, k) => [k, g]),
      {},
    );
    if (bound !== null) {
      fall.line([0, bound], [ROUNDS, bound], { class: "pfl-guide pfl-stop" });
      fall.text(fall.x(ROUNDS) - 4, fall.y(bound) + 16, "Theorem 1: the best gap lies below", {
        "text-anchor": "end",
      });
    }
    fall.circle([s.round, values[s.round]], 6, { fill: PALETTE[1], class: "pfl-model" });
    fall.label = `objective ${number(G[s.round])} in round ${s.round}`;
  },

  say(s, { G, own, best, bound, groups }) {
    const shape =
      groups.length === 1
        ? "all models are together"
        : groups.length === s.points.length
          ? "all models are apart"
          : `${groups.length} groups: ${groups.map((g) => g.map((i) => named(s, i)).join(", ")).join(" | ")}`;
    const gap =
      best === null
        ? ""
        : ` The gap to the best is ${number(G[s.round] - best, 2)}${bound === null ? "" : `; Theorem 1 promises ${number(bound)} at worst in ${ROUNDS} rounds`}.`;
    const why =
      best === null
        ? " The exponential is not convex: Theorem 1 does not apply."
        : bound === null
          ? " Theorem 1 asks for the true gradient and α = λ/√K."
          : "";
    const half = s.gradient === "printed" ? " As printed, the method minimises G with half the λ." : "";
    const rises = G.some((g, k) => k && g > G[k - 1] * (1 + 1e-9));
    const alarm =
      own < 0
        ? "An own weight falls below zero on the way."
        : rises && s.gradient === "true"
          ? "G rises: the step is too long."
          : "";
    return {
      alarm,
      text: `Round ${s.round} of ${ROUNDS}: G = ${number(G[s.round])}, from ${number(G[0])}; ${shape}.${gap}${why}${half}`,
    };
  },

  tries: [
    {
      name: "Groups form",
      set: usual,
      why: "Pre-trained models leave their optima for each other: near ones meet, far ones do not hear each other.",
    },
    {
      name: "Another start",
      set: (s) => ({ ...usual(s), start: "middle" }),
      why: "The same problem from one common model ends elsewhere: G is not convex. With the tamed √ the start does not matter.",
    },
    {
      name: "All merge",
      set: (s) => ({ ...usual(s), sigma: 10, lam: 10, alpha: 0.5 }),
      why: "A wide σ and a large λ: everybody hears everybody, and one model must serve all.",
    },
    {
      name: "Theorem 1",
      set: (s) => ({ ...usual(s), attention: "tamed_square_root", step: "theorem", sigma: 0.5, lam: 0.3 }),
      why: "A convex A and the theorem’s own step: the bound holds, and is far from tight.",
    },
  ],
});
