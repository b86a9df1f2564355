// FedACS: keep the cosines above the p-quantile of all of them, and share by cosine.

export default explorer({
  title: "FedACS: a quantile decides who is heard",
  ask: "Slide p, the strictness: from where on does nobody hear anybody?",
  hint: "Drag a client and watch its row. At p = 0.5 the dashed line δ keeps the upper half of all m² cosines; the m ones on the diagonal belong to it and take the place of others.",
  lines: [3, 7],
  controls: [
    slider("p", { label: "p, quantile level", min: 0, max: 1, step: 0.01 }),
    choice("negatives", {
      label: "Negative cosines",
      options: { drop: "dropped", keep: "kept, as printed" },
    }),
  ],
  pictures: {
    plane: plane(2, "Clients, links that are kept, messages ◆", "Clients"),
    sorted: {
      title: "All cosines, sorted; δ cuts at p",
      tab: "Sorted",
      height: 336,
      margin: [10, 10, 36, 44],
      x: [0, 1],
      y: [-1, 1],
    },
    cosines: { title: "Cosines s; dots are dropped", tab: "Cosines", height: 336 },
    weights: { title: "Weights: kept cosines, each row summing to 1", tab: "Weights", height: 336 },
  },

  compute(s) {
    const S = cosineSimilarities(s.points),
      delta = fedacsThreshold(S, s.p),
      weights = fedacsSelect(S, delta, s.negatives);
    return {
      S,
      delta,
      weights,
      u: mix(weights, s.points),
      heard: weights.map((row, i) => row.filter((v, j) => j !== i && v !== 0).length),
    };
  },

  draw({ plane, sorted, cosines, weights: last }, s, { S, delta, weights, u }) {
    const names = s.points.map((_, i) => named(s, i)),
      entries = S.flat().sort((a, b) => a - b),
      bad = (i) => weights[i].some((v) => v < -1e-12);
    plane.axes();
    s.points.forEach((w, i) => plane.line([0, 0], w, { class: "pfl-ray", stroke: groupColour(s, i) }));
    drawLinks(plane, s, weights);
    drawClients(plane, s, u, bad);
    plane.label = `${names.length} clients; ${weights.flat().filter((v) => v !== 0).length - names.length} links are kept`;

    sorted.axes({ xlabel: "share of the entries", ylabel: "cosine" });
    sorted.line([0, delta], [1, delta], { class: "pfl-guide pfl-stop" });
    sorted.line([s.p, -1], [s.p, 1], { class: "pfl-guide" });
    entries.forEach((v, k) =>
      sorted.circle([k / (entries.length - 1), v], 3.2, {
        fill: v > delta ? sorted.theme.heat : blend(sorted.theme.paper, sorted.theme.ink, 0.35),
      }),
    );
    sorted.text(sorted.x(0) + 6, sorted.y(delta) + (delta > 0.8 ? 16 : -6), `δ = ${number(delta)}`, {});
    sorted.label = `threshold ${number(delta)} at p ${number(s.p)}`;

    const gone = (i, j) => weights[i][j] === 0;
    cosines.heat(S, { rows: names, off: gone, chosen: s.chosen });
    cosines.label = "cosines of all pairs";
    last.heat(weights, { rows: names, off: gone, alarm: (i, j) => weights[i][j] < -1e-12, chosen: s.chosen });
    last.label = "weights of FedACS";
  },

  say(s, { S, delta, weights, heard }) {
    const i = clamp(s.chosen, 0, S.length - 1),
      lonely = heard.filter((n) => n === 0).length,
      selfOnly = delta >= 1;
    const who = range(S.length).filter((j) => j !== i && weights[i][j] !== 0),
      own = weights[i][i];
    const mine = who.length
      ? `Client ${named(s, i)} hears ${listed(who.map((j) => named(s, j)))} and keeps ${number(own, 2)} of itself.`
      : `Client ${named(s, i)} hears nobody: u = w.`;
    const negative = weights.flat().some((v) => v < -1e-12);
    const guard = selfOnly
      ? " δ is 1: the printed strict test would lose even the client itself, so each client's own entry is always kept."
      : "";
    return {
      alarm: negative ? "Some weights are negative: not a convex combination." : "",
      text: `δ = ${number(delta)}. ${mine} ${lonely ? `${lonely} of ${S.length} clients hear nobody.` : "Every client hears someone."}${guard}`,
    };
  },

  tries: [
    {
      name: "A mild cut",
      set: (s) => ({ ...s, p: 0.2, negatives: "drop" }),
      why: "p = 0.2 drops the lowest fifth of all cosines. Those are negative here, so nobody loses anyone they listened to: the cut bites only further up.",
    },
    {
      name: "Too strict",
      set: (s) => ({ ...s, p: 0.9, negatives: "drop" }),
      why: "From p = m/(m + 1) on the quantile is 1: nobody but oneself is left, and FedACS is training alone.",
    },
    {
      name: "Negative weights",
      set: (s) => ({ ...s, p: 0, negatives: "keep" }),
      why: "As printed, opposite clients get negative weights: their models are subtracted, and u may leave the picture.",
    },
  ],
});
