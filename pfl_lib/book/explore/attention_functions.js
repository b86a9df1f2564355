// Attention-inducing functions: the price A of a distance, the weight A' it gives, the pull it exerts.

const FAR = 5,
  SAMPLES = range(121).map((k) => (FAR * k) / 120);

export default explorer({
  title: "Attention-inducing functions",
  hint: "Slide the distance, or drag the dot. Red is where A(‖·‖²) stops being convex: the pull falls, and far clients are let go.",
  lines: [3, 6],
  controls: [
    choice("attention", {
      label: "Function",
      options: Object.fromEntries(Object.entries(ATTENTION).map(([k, v]) => [k, v.name])),
    }),
    slider("sigma", { label: "σ, width", min: 0.01, max: 100, log: true }),
    slider("distance", {
      label: "r, distance of two models",
      min: 0,
      max: FAR,
      step: 0.01,
      show: (v) => v.toFixed(2),
    }),
  ],
  pictures: {
    price: {
      title: "A(r²): what distance r costs",
      width: 250,
      height: 220,
      basis: 220,
      widest: 290,
      margin: [10, 8, 34, 40],
      x: [0, FAR],
    },
    weight: {
      title: "A′(r²): the weight of a message",
      width: 250,
      height: 220,
      basis: 220,
      widest: 290,
      margin: [10, 8, 34, 40],
      x: [0, FAR],
    },
    pull: {
      title: "2r·A′(r²): the pull on a model",
      width: 250,
      height: 220,
      basis: 220,
      widest: 290,
      margin: [10, 8, 34, 40],
      x: [0, FAR],
    },
  },

  compute({ attention, sigma, distance }) {
    const { value, slope, zero, convexUntil } = ATTENTION[attention],
      at = (r) => [value(r * r, sigma), slope(r * r, sigma), 2 * r * slope(r * r, sigma)];
    return {
      at: at(distance),
      zero: zero(sigma),
      convex_until: Math.sqrt(convexUntil(sigma)),
      curves: SAMPLES.map(at),
    };
  },
  report: ({ curves, ...rest }) => ({ ...rest, curves: curves.filter((_, k) => k % 10 === 0) }),

  draw(pictures, s, { at, zero, convex_until, curves }) {
    const names = ["A", "A′", "pull"];
    Object.values(pictures).forEach((p, k) => {
      const values = curves.map((c) => c[k]),
        top = roundUp(k === 1 ? zero : Math.max(...values));
      p.scale({ y: [0, top] });
      if (convex_until < FAR)
        p.shape("rect", {
          x: p.x(convex_until),
          y: p.y(top),
          width: p.x(FAR) - p.x(convex_until),
          height: p.y(0) - p.y(top),
          class: "pfl-warned",
        });
      p.axes({ xlabel: "distance r", xticks: range(FAR + 1), yticks: ticks(0, top, 4) });
      p.curve(
        SAMPLES.map((r, j) => [r, values[j]]),
        {},
      );
      if (convex_until < FAR) p.line([convex_until, 0], [convex_until, top], { class: "pfl-guide pfl-stop" });
      p.line([s.distance, 0], [s.distance, at[k]], { class: "pfl-guide" });
      p.handle("distance", 0, [s.distance, at[k]], {
        label: `two models at distance ${number(s.distance)}, ${names[k]} ${number(at[k])}`,
        colour: PALETTE[1],
        r: 7,
      });
      p.label = `${p.title}; ${number(at[k])} at distance ${number(s.distance)}`;
    });
  },
  move: (s, key, index, [r]) => ({ distance: clamp(Number(r.toFixed(2)), 0, FAR) }),

  say(s, { at, zero, convex_until }) {
    const share = at[1] / zero,
      { formula } = ATTENTION[s.attention];
    const limit =
      convex_until === Infinity
        ? "A(‖·‖²) is convex everywhere: the pull never falls, Theorem 1 applies, and attention is never sharp."
        : `A(‖·‖²) is convex only up to r = ${number(convex_until)}; beyond it the pull falls and Theorem 1 does not apply.`;
    return {
      text: `A(t) = ${formula}. At r = ${number(s.distance)} two models weigh A′ = ${number(at[1])}, ${share < 0.001 && share > 0 ? "below 0.1" : number(100 * share, 2)} % of the most they can. ${limit}`,
    };
  },

  tries: [
    {
      name: "FedAMP’s own",
      set: { attention: "negative_exponential", sigma: 2, distance: 1 },
      why: "The exponential: the pull is strongest exactly where convexity ends, at r = √(σ/2).",
    },
    {
      name: "A convex one",
      set: { attention: "tamed_square_root", sigma: 0.5, distance: 3 },
      why: "The tamed square root pulls equally hard at every distance beyond σ: the Huber function in disguise.",
    },
    {
      name: "Deaf beyond a line",
      set: { attention: "scad", sigma: 1, distance: 2.2 },
      why: "SCAD gives full weight up to t = σ and exactly none beyond t = 3.7σ: neighbours are selected, not blurred.",
    },
  ],
});
