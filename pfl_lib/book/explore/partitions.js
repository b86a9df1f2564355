// Partitions: who holds which classes. The tables were drawn by pfl_lib.partition itself.

const SHARES = [0.2, 0.5, 0.8, 0.95, 1],
  PER_CLIENT = [1, 2, 3, 4, 6, 8, 10],
  CONCENTRATIONS = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 100];
const LEVEL = {
  grouped: ["share", SHARES],
  pathological: ["classes_per_client", PER_CLIENT],
  dirichlet: ["a", CONCENTRATIONS],
  class_subset: ["classes_per_client", PER_CLIENT],
};
const not =
  (...kinds) =>
  (s) =>
    !kinds.includes(s.kind);
const ORDINALS = ["first", "second", "third"];

export default explorer({
  title: "Partitions: who holds which classes",
  ask: "Four ways to make clients different: in which of them does nobody miss a class?",
  hint: "A circle’s area is the number of samples. Every table was drawn by the library itself; “draw” shows another seed.",
  lines: [4, 7],
  controls: [
    choice("kind", {
      label: "Partition",
      options: {
        grouped: "grouped",
        pathological: "pathological",
        dirichlet: "Dirichlet",
        class_subset: "class subset",
      },
    }),
    choice("draw", { label: "Draw", options: { 0: "1", 1: "2", 2: "3" } }),
    slider("share", {
      label: "share of a client’s own classes",
      values: SHARES,
      off: not("grouped"),
      show: (v) => `${number(100 * v)} %`,
    }),
    slider("classes_per_client", {
      label: "classes per client",
      values: PER_CLIENT,
      off: not("pathological", "class_subset"),
    }),
    slider("a", { label: "a, concentration", values: CONCENTRATIONS, off: not("dirichlet") }),
  ],
  pictures: {
    bubbles: { title: "Samples of each class at each client", tab: "Classes", height: 330, margin: [6, 6, 34, 40] },
    sizes: { title: "Samples, and classes in effect, of each client", tab: "Sizes", height: 330, margin: [18, 6, 34, 56] },
  },

  compute(s) {
    const [key, values] = LEVEL[s.kind],
      counts = s.tables[s.kind][values.indexOf(s[key])][Number(s.draw)];
    const sizes = counts.map(sum),
      total = sum(sizes),
      pooled = counts[0].map((_, c) => sum(counts.map((row) => row[c])) / total);
    const shares = counts.map((row, i) => row.map((n) => n / sizes[i]));
    return {
      counts,
      sizes,
      classes: counts.map((row) => row.filter((n) => n > 0).length),
      effective: shares.map((row) => Math.exp(-sum(row.map((p) => (p > 0 ? p * Math.log(p) : 0))))),
      skew: sum(shares.map((row) => 0.5 * sum(row.map((p, c) => Math.abs(p - pooled[c]))))) / counts.length,
    };
  },

  draw({ bubbles, sizes: bars }, s, { counts, sizes, effective }) {
    const m = counts.length,
      k = counts[0].length,
      most = Math.max(...counts.flat()),
      colour = (i) => (s.kind === "grouped" ? PALETTE[Math.floor((i * 5) / m) % 5] : PALETTE[0]);
    bubbles.scale({ x: [-0.5, m - 0.5], y: [k - 0.5, -0.5] });
    bubbles.axes({ xlabel: "client", ylabel: "class", xticks: [], yticks: [] });
    const room = Math.min(bubbles.x(1) - bubbles.x(0), bubbles.y(1) - bubbles.y(0)) / 2;
    range(m).forEach((i) =>
      bubbles.text(bubbles.x(i), bubbles.height - bubbles.margin[2] + 14, String(i + 1), {
        "text-anchor": "middle",
        class: "pfl-tick",
      }),
    );
    range(k).forEach((c) =>
      bubbles.text(bubbles.margin[3] - 5, bubbles.y(c) + 4, clip(String(s.names[c]), k), {
        "text-anchor": "end",
        class: "pfl-tick",
      }),
    );
    counts.forEach((row, i) =>
      row.forEach((n, c) => {
        if (n)
          bubbles.circle([i, c], Math.max(1, room * Math.sqrt(n / most)), {
            fill: colour(i),
            "data-count": n,
          });
      }),
    );
    bubbles.label = `${m} clients and ${k} classes; the largest circle is ${most} samples`;

    const top = roundUp(Math.max(...sizes));
    bars.scale({ x: [-0.5, m - 0.5], y: [0, top] });
    bars.axes({ xlabel: "client", ylabel: "training samples", xticks: [], yticks: ticks(0, top, 5) });
    sizes.forEach((n, i) => {
      bars.shape("rect", {
        x: bars.x(i - 0.38),
        y: bars.y(n),
        width: bars.x(0.76) - bars.x(0),
        height: bars.y(0) - bars.y(n),
        fill: colour(i),
        rx: 2,
      });
      bars.text(bars.x(i), bars.y(n) - 5, effective[i].toPrecision(2), {
        "text-anchor": "middle",
        class: "pfl-tick pfl-strong",
      });
      bars.text(bars.x(i), bars.height - bars.margin[2] + 14, String(i + 1), {
        "text-anchor": "middle",
        class: "pfl-tick",
      });
    });
    bars.label = `sizes ${sizes.join(", ")}`;
  },

  say(s, { sizes, classes, effective, skew }) {
    const [key] = LEVEL[s.kind],
      about = {
        grouped: `${number(100 * s.share)} % of a client’s samples come from its group’s two classes.`,
        pathological: `Each client holds shards of ${s[key]} class${s[key] === 1 ? "" : "es"}.`,
        dirichlet: `Each class is shared out by Dirichlet(${number(s.a)}).`,
        class_subset: `Each client holds a tenth of ${s[key]} class${s[key] === 1 ? "" : "es"} of its own choice.`,
      }[s.kind];
    return {
      text: `${about} Clients have ${number(Math.min(...sizes))} to ${number(Math.max(...sizes), 5)} samples of ${Math.min(...classes)} to ${Math.max(...classes)} classes, in effect ${Math.min(...effective).toFixed(1)} to ${Math.max(...effective).toFixed(1)} (numbers on the bars). On average ${number(100 * skew, 2)} % of a client’s samples would have to change class to look like everybody’s (${ORDINALS[s.draw]} draw).`,
    };
  },

  tries: [
    {
      name: "FedAMP’s groups",
      set: { kind: "grouped", share: 0.8, draw: "0" },
      why: "Five hidden groups with 80 % of their data from two classes, and fewer and fewer samples: the small groups gain most from listening.",
    },
    {
      name: "FedALA’s default",
      set: { kind: "dirichlet", a: 0.1, draw: "0" },
      why: "a = 0.1: most classes live at one or two clients, and sizes differ by more than ten. Look at another draw: it matters.",
    },
    {
      name: "Nearly alike",
      set: { kind: "dirichlet", a: 100, draw: "0" },
      why: "a = 100 is all but uniform: here personalisation has little to win, and a global model is hard to beat.",
    },
    {
      name: "SPFL’s subsets",
      set: { kind: "class_subset", classes_per_client: 6, draw: "0" },
      why: "Equal sizes, six of ten classes each: clients differ in which classes they know, not in how much they have.",
    },
  ],
});
