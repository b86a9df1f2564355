// How much of itself a client should keep, when N others differ from it by noise alone.

const FAR = 3,
  noise = (own, n) => own ** 2 + (1 - own) ** 2 / n,
  bell = (x, variance) => Math.exp((-x * x) / (2 * variance)) / Math.sqrt(2 * Math.PI * variance);

export default explorer({
  title: "How much of yourself to keep",
  ask: "Three others have learned the same thing from other samples. How much of your own model should you keep?",
  hint: "Drag the dot, or slide. The narrower the blue hill, the surer the message.",
  lines: [2, 4],
  controls: [
    slider("self_weight", {
      label: "ξᵢᵢ = 1 − τ, self-weight",
      min: 0,
      max: 1,
      step: 0.01,
      mark: (s, r) => ({ value: r.best_self_weight, label: "the best self-weight" }),
    }),
    slider("similar", { label: "N, others that are alike", min: 1, max: 20, step: 1 }),
  ],
  pictures: {
    hills: {
      title: "Errors: your model, the message",
      tab: "The message",
      height: 300,
      margin: [10, 10, 36, 14],
      x: [-FAR, FAR],
    },
    curve: {
      title: "Noise left in the message",
      tab: "Every self-weight",
      height: 300,
      margin: [10, 10, 36, 44],
      x: [0, 1],
      y: [0, 1],
    },
  },

  compute({ self_weight, similar }) {
    const best = 1 / (similar + 1);
    return { noise: noise(self_weight, similar), best_self_weight: best, least_noise: noise(best, similar) };
  },

  draw({ hills, curve }, s, { noise: now, best_self_weight, least_noise }) {
    const xs = range(121).map((k) => ((k - 60) / 60) * FAR),
      top = 1.15 * Math.max(bell(0, now), bell(0, 1));
    hills.scale({ x: [-FAR, FAR], y: [0, top] });
    hills.axes({ xlabel: "error, in standard deviations of one model", yticks: [] });
    hills.line([0, 0], [0, top], { class: "pfl-guide" });
    hills.curve(
      xs.map((x) => [x, bell(x, 1)]),
      { class: "pfl-curve pfl-second pfl-dashed" },
    );
    const fine = range(241).map((k) => ((k - 120) / 120) * FAR);
    hills.curve(
      fine.map((x) => [x, bell(x, now)]),
      { style: "fill: var(--accent); fill-opacity: 0.14" },
    );
    ["your model", "alone"].forEach((words, k) =>
      hills.text(hills.width - 14, hills.y(bell(1.15, 1)) + 16 * k - 12, words, { "text-anchor": "end" }),
    );
    hills.label = `two bell curves: your model alone, of variance 1, and the message, of variance ${number(now)}`;

    curve.scale({ x: [-0.04, 1.04], y: [0, 1.04] }); // room for the point at either end
    curve.axes({ xlabel: "self-weight ξᵢᵢ", ylabel: "variance", xticks: ticks(0, 1), yticks: ticks(0, 1) });
    curve.curve(
      range(101).map((k) => [k / 100, noise(k / 100, s.similar)]),
      {},
    );
    curve.mark(best_self_weight, `best: 1/(N + 1) = ${number(best_self_weight, 2)}`);
    curve.handle("self_weight", 0, [s.self_weight, now], {
      label: `self-weight ${number(s.self_weight)}, variance ${number(now)}`,
      colour: PALETTE[1],
      r: 8,
    });
    curve.label = `variance ${number(now)} at self-weight ${number(s.self_weight)}; least ${number(least_noise)}`;
  },
  move: (s, key, index, [x]) => ({ self_weight: clamp(Number(x.toFixed(2)), 0, 1) }),

  say(s, { noise: now, best_self_weight, least_noise }) {
    const gain = Math.round(100 * (1 - now));
    return {
      text: `You keep ${number(s.self_weight)} and share ${number(1 - s.self_weight)} among ${s.similar} other${s.similar > 1 ? "s" : ""}: the message has ${number(now, 2)} of the noise of your model${gain > 0 ? `, ${gain} % less` : ""}. The best self-weight is ${number(best_self_weight, 2)}, with ${number(least_noise, 2)}.`,
    };
  },

  tries: [
    {
      name: "The best of four",
      set: { self_weight: 0.25, similar: 3 },
      why: "Three others alike: take the plain mean of the four models, ξᵢᵢ = 1/4. The noise falls to a quarter.",
    },
    {
      name: "The papers’ τ = 0.95",
      set: { self_weight: 0.05, similar: 19 },
      why: "ξᵢᵢ = 0.05 is the plain mean in a group of twenty.",
    },
    {
      name: "The same, one other",
      set: { self_weight: 0.05, similar: 1 },
      why: "The same 0.05 with one other: you have thrown your own model away, and hold the other’s noise instead of yours.",
    },
  ],
});
