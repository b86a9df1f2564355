// The feedback loop of attention: near models hear each other and come nearer, so the start decides.

const ROUNDS = 40,
  SOLVING = 400,
  WIDE = 6,
  ODDS = 5 / 4, // strangers to friends, of ten clients in two groups
  GAMMA = 1.6, // how much of the distance a message without attention would take away
  GAPS = range(60).map((k) => (k + 1) / 10),
  OTHERS = range(13).map((k) => k / 2); // starts of the faint lines

const shareAt = (r, { sigma }) => 1 / (1 + ODDS * Math.exp((-r * r) / sigma));
// The distance of the two groups a round later, for optima that lie ``gap`` apart.
const next = (r, gap, s) => (1 - s.drift) * (1 - GAMMA * (1 - shareAt(r, s))) * r + s.drift * gap;
function limit(gap, r, s) {
  for (let k = 0; k < SOLVING; k++) r = next(r, gap, s);
  return r;
}
function pathFrom(r, s) {
  const path = [r];
  for (let k = 0; k < ROUNDS; k++) path.push(next(path[k], s.gap, s));
  return path;
}
const splitAt = ([low, high]) => GAPS.filter((_, k) => high[k] - low[k] > 0.01);

export default explorer({
  title: "The loop: near, therefore heard; heard, therefore near",
  ask: "Two groups of clients, always the same. Does it matter how far apart their models start?",
  hint: "Drag 1 and 2, the groups’ own optima, or the start. Then push the gap up and back again: the way back is another.",
  lines: [3, 6],
  controls: [
    player("round", { label: "round k", max: ROUNDS, every: 90 }),
    slider("start", { label: "distance at the start", min: 0, max: WIDE, step: 0.05, show: (v) => v.toFixed(2) }),
    slider("gap", { label: "gap between the optima", min: 0.1, max: WIDE, step: 0.05, show: (v) => v.toFixed(2) }),
    slider("sigma", { label: "σ, attention width", min: 0.1, max: 10, log: true }),
  ],
  more: [slider("drift", { label: "how far a client trains towards its own optimum", min: 0.05, max: 0.95, step: 0.05, show: (v) => `${number(100 * v)} %` })], // prettier-ignore
  pictures: {
    time: {
      title: "The groups’ models (grey: other starts)",
      tab: "Rounds",
      height: 320,
      margin: [10, 18, 36, 40],
      x: [0, ROUNDS],
      y: [-WIDE / 2 - 0.3, WIDE / 2 + 0.3],
    },
    loop: {
      title: "Where they end, for every gap",
      tab: "Every gap",
      height: 320,
      margin: [10, 12, 36, 44],
      x: [0, WIDE],
      y: [0, WIDE],
    },
  },

  compute(s) {
    const [low, high] = [0, WIDE].map((r) => limit(s.gap, r, s));
    return {
      path: pathFrom(s.start, s),
      share: pathFrom(s.start, s).map((r) => shareAt(r, s)),
      end: limit(s.gap, s.start, s),
      low,
      high,
      two: high - low > 0.01,
      loop: [0, WIDE].map((r) => GAPS.map((gap) => limit(gap, r, s))),
    };
  },
  report: ({ loop, ...rest }) => ({
    ...rest,
    loop: loop.map((side) => side.filter((_, k) => k % 5 === 4)),
  }),

  draw({ time, loop: map }, s, { path, end, low, high, two, loop }) {
    const colour = [PALETTE[0], PALETTE[1]];
    time.axes({ xlabel: "round", ylabel: "model", yticks: [-3, -2, -1, 0, 1, 2, 3] });
    for (const r of OTHERS) {
      const other = pathFrom(r, s);
      for (const side of [-1, 1])
        time.curve(
          other.map((v, k) => [k, (side * v) / 2]),
          { class: "pfl-curve pfl-faint" },
        );
    }
    [-1, 1].forEach((side, i) => {
      time.curve(
        path.slice(0, s.round + 1).map((r, k) => [k, (side * r) / 2]),
        { style: `stroke: ${colour[i]}; stroke-width: 3.5` },
      );
      time.circle([s.round, (side * path[s.round]) / 2], 8, { fill: colour[i], class: "pfl-model" });
    });
    [-1, 1].forEach((side, i) =>
      time.handle("gap", i, [ROUNDS, (side * s.gap) / 2], {
        label: `optimum of group ${i + 1}`,
        text: String(i + 1),
        colour: colour[i],
        r: 10,
        hollow: true,
      }),
    );
    time.handle("start", 2, [0, s.start / 2], { label: "start of group 2", colour: colour[1], r: 7 });
    time.label = `two groups ${number(s.start)} apart at the start and ${number(path[s.round])} in round ${s.round}`;

    map.axes({ xlabel: "gap between the optima", ylabel: "distance of the models" });
    map.line([0, 0], [WIDE, WIDE], { class: "pfl-guide" });
    map.text(map.x(1.1), map.y(1.35), "each alone", {
      transform: `rotate(-45 ${map.x(1.1)} ${map.y(1.35)})`,
    });
    const split = splitAt(loop);
    if (split.length)
      map.shape("rect", {
        x: map.x(split[0]),
        y: map.y(WIDE),
        width: Math.max(2, map.x(split.at(-1)) - map.x(split[0])),
        height: map.y(0) - map.y(WIDE),
        class: "pfl-warned",
      });
    loop.forEach((side, k) =>
      map.curve(
        GAPS.map((gap, j) => [gap, side[j]]),
        { class: k ? "pfl-curve pfl-second pfl-dashed" : "pfl-curve" },
      ),
    );
    map.line([s.gap, 0], [s.gap, WIDE], { class: "pfl-guide" });
    if (two) map.circle([s.gap, Math.abs(end - low) < 0.01 ? high : low], 5, { class: "pfl-stop-dot" });
    map.handle("gap", 3, [s.gap, end], {
      label: `gap ${number(s.gap)}, models end ${number(end)} apart`,
      colour: PALETTE[2],
      r: 9,
    });
    map.label = split.length
      ? `for gaps from ${number(split[0])} to ${number(split.at(-1))} the start decides`
      : "one end for every gap";
  },
  move: (s, key, index, [x, y]) => ({
    [key]: clamp(Number((index === 3 ? x : 2 * y * (index ? 1 : -1)).toFixed(2)), key === "gap" ? 0.1 : 0, WIDE),
  }),

  say(s, { end, low, high, two, loop }) {
    const split = splitAt(loop),
      both = `${number(low, 2)} or ${number(high, 2)}`;
    const here = two
      ? `From this start the groups end ${number(end, 2)} apart; there are two ends, ${both}, and the start decides.`
      : `From every start the groups end ${number(end, 2)} apart.`;
    const where = split.length
      ? `Two ends exist for gaps from ${number(split[0], 2)} to ${number(split.at(-1), 2)} (red).`
      : "With this σ no gap has two ends.";
    return {
      text: `${here} There ${number(100 * shareAt(end, s), 2)} % of what a client hears from others comes from its own group. ${where}`,
    };
  },

  tries: [
    {
      name: "A little nearer",
      set: (s) => ({ ...s, sigma: 1.5, gap: 3, drift: 0.2, start: 1.9, round: ROUNDS }),
      why: "They start a little nearer, hear each other, come nearer, hear each other more: one crowd, against their own optima.",
    },
    {
      name: "A little farther",
      set: (s) => ({ ...s, sigma: 1.5, gap: 3, drift: 0.2, start: 2.1, round: ROUNDS }),
      why: "A little farther, and strangers fall silent: each group ends at its own optimum. The clients are the same.",
    },
    {
      name: "Too far to hold",
      set: (s) => ({ ...s, sigma: 1.5, gap: 4, drift: 0.2, start: 0, round: ROUNDS }),
      why: "The optima pull so hard that even a common start falls apart. Coming back, the gap has to fall much further before the groups meet again.",
    },
    {
      name: "Long training",
      set: (s) => ({ ...s, sigma: 1.5, gap: 3, drift: 0.9, start: 0, round: ROUNDS }),
      why: "With long local training there is no memory: every start ends in the same place within a few rounds.",
    },
  ],
});
