// Own mean, common mean, and what lies between: nine hospitals that count how long patients stay.

const MEAN = 7,
  SPREAD = 4, // days: the mean of all hospitals, the spread of one patient
  COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256],
  DAYS = [1, 13];
const variance = (s) => SPREAD ** 2 / s.patients,
  expected = (s, lam, m = s.points.length) =>
    variance(s) - (1 - 1 / m) * (2 * lam * variance(s) - lam ** 2 * (variance(s) + s.tau ** 2));

export default explorer({
  title: "Alone, together, or in between",
  ask: "Own mean and common mean err equally here. What about the middle of the two? Slide λ.",
  hint: "A row is a hospital: ring its true mean, hollow dot its own mean (drag it), blue dot the mixture. The line is the common mean.",
  lines: [3, 6],
  controls: [
    slider("lam", { label: "λ, share of the common mean", min: 0, max: 1, step: 0.01,
      mark: (s, r) => ({ value: r.best, label: "the best λ" }) }),
    slider("patients", { label: "n, patients per hospital", values: COUNTS }),
    slider("tau", { label: "τ, how hospitals differ (days)", min: 0, max: 3, step: 0.1 }),
  ], // prettier-ignore
  pictures: {
    rows: { title: "Nine hospitals: how long do patients stay?", tab: "Hospitals", height: 320, margin: [8, 8, 36, 24], x: DAYS },
    curve: { title: "Expected error for every λ", tab: "Error", height: 320, margin: [10, 12, 36, 46], x: [0, 1] },
  }, // prettier-ignore

  compute(s) {
    const v = variance(s),
      truth = s.points.map(([z]) => MEAN + s.tau * z),
      own = s.points.map(([, luck], i) => truth[i] + Math.sqrt(v) * luck),
      common = sum(own) / own.length,
      mixed = own.map((w) => (1 - s.lam) * w + s.lam * common),
      best = v / (v + s.tau ** 2);
    return {
      truth,
      own,
      mixed,
      here: sum(mixed.map((w, i) => (w - truth[i]) ** 2)) / mixed.length,
      expected: { own: v, common: expected(s, 1), mixed: expected(s, s.lam) },
      best,
      least: expected(s, best),
    };
  },

  draw({ rows, curve }, s, { truth, own, mixed, expected: e, best, least }) {
    const m = own.length,
      common = sum(own) / m,
      at = (x) => clamp(x, ...DAYS);
    rows.scale({ x: DAYS, y: [m - 0.5, -0.5] });
    rows.axes({ xlabel: "days", yticks: [] });
    rows.line([common, -0.5], [common, m - 0.5], { class: "pfl-guide" });
    own.forEach((w, i) => {
      rows.text(rows.margin[3] - 6, rows.y(i) + 4, String(i + 1), { "text-anchor": "end", class: "pfl-tick" });
      rows.line([at(w), i], [at(mixed[i]), i], { class: "pfl-arrow", stroke: rows.theme.heat, "stroke-opacity": 0.5 });
      rows.circle([at(truth[i]), i], 9, { fill: "none", class: "pfl-truth" });
      rows.shape("circle", { cx: rows.x(at(mixed[i])), cy: rows.y(i), r: 5, fill: rows.theme.heat, class: "pfl-model" }, undefined, 2);
      rows.handle("points", i, [at(w), i], { label: `own mean of hospital ${i + 1}`, colour: PALETTE[1], r: 6, reach: 14, hollow: true, chosen: i === s.chosen });
    });
    rows.label = `own means of ${m} hospitals, drawn by ${number(100 * s.lam)} percent towards the common mean`;

    const top = roundUp(1.05 * Math.max(e.own, e.common));
    curve.scale({ x: [-0.04, 1.04], y: [0, top] }); // room for the point at either end
    curve.axes({ xlabel: "λ: 0 is own, 1 is common", ylabel: "squared error", xticks: ticks(0, 1), yticks: ticks(0, top, 4) });
    curve.mark(best, `best λ ${number(best, 2)}`);
    curve.curve(
      range(101).map((k) => [k / 100, expected(s, k / 100)]),
      {},
    );
    curve.handle("lam", 0, [s.lam, e.mixed], { label: `λ ${number(s.lam)}, error ${number(e.mixed)}`, colour: PALETTE[0], r: 8 });
    curve.label = `error ${number(e.mixed)} at λ ${number(s.lam)}; least ${number(least)} at ${number(best)}`;
  }, // prettier-ignore
  move: (s, key, index, [x]) =>
    key === "lam"
      ? { lam: clamp(Number(x.toFixed(2)), 0, 1) }
      : {
          points: s.points.map(([z, luck], i) => [
            z,
            i === index
              ? clamp(Number(((x - MEAN - s.tau * z) / Math.sqrt(variance(s))).toFixed(3)), -6, 6)
              : luck,
          ]),
          chosen: index,
        },

  say(s, { here, expected: e, best, least }) {
    return {
      text: `Expected error: own mean ${number(e.own, 2)}, common mean ${number(e.common, 2)}, your mixture ${number(e.mixed, 2)}; on the nine hospitals drawn here ${number(here, 2)}. The best λ, σ²/n divided by σ²/n + τ², is ${number(best, 2)} and leaves ${number(least, 2)}.`,
    };
  },

  tries: [
    {
      name: "Half and half",
      set: (s) => ({ ...s, patients: 16, tau: 1, lam: 0.5 }),
      why: "Where own and common mean err alike, the middle errs about half as much: two errors that know nothing of each other.",
    },
    {
      name: "Few patients",
      set: (s) => ({ ...s, patients: 2, tau: 1, lam: 0.89 }),
      why: "With two patients each, a hospital’s mean is mostly luck, and the best mixture is nearly the common mean.",
    },
    {
      name: "Many patients",
      set: (s) => ({ ...s, patients: 256, tau: 1, lam: 0.06 }),
      why: "256 patients each: hardly a reason to listen to others, and the best λ is nearly zero.",
    },
    {
      name: "No difference",
      set: (s) => ({ ...s, patients: 16, tau: 0, lam: 1 }),
      why: "τ = 0: all hospitals are alike, the common mean is right for everybody, and FedAvg is the best there is.",
    },
  ],
});
