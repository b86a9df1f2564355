// SPFL: cosines of updates, stage by stage, through a softmax.

const pane = (title, tab) => plane(1.5, title, tab, { margin: [6, 8, 24, 30] });

function sngs(G, temperature) {
  return cosineSimilarities(G).map((row) => softmax(row.map((c) => c / temperature)));
}

export default explorer({
  title: "SPFL: a softmax of cosines, in two stages",
  ask: "Turn one arrow against all others. How little of it can SPFL take at temperature 1?",
  hint: "Arrows are the clients’ updates (drag a tip), diamonds what each model is moved by. At the paper’s temperature, 1, weights differ by e² at most: near the plain mean.",
  lines: [3, 7],
  controls: [
    slider("temperature", { label: "temperature (the paper: 1)", min: 0.02, max: 50, log: true }),
    choice("stages", {
      label: "Cosines of",
      options: { two: "body and head apart", one: "the whole model" },
    }),
  ],
  pictures: {
    body: pane("Updates of the body", "Body"),
    head: pane("Updates of the head", "Head"),
    left: { title: "S̃ for the body", tab: "S̃, body", height: 336 },
    right: { title: "S̃ for the head", tab: "S̃, head", height: 336 },
  },

  compute(s) {
    const whole = s.body.map((g, i) => [...g, ...s.head[i]]),
      two = s.stages === "two";
    const body = sngs(two ? s.body : whole, s.temperature),
      head = two ? sngs(s.head, s.temperature) : body,
      ratio = Math.max(...[...body, ...head].map((row) => Math.max(...row) / Math.min(...row)));
    return {
      body,
      head,
      move_body: mix(body, s.body),
      move_head: mix(head, s.head),
      ratio,
      most: Math.exp(2 / s.temperature),
    };
  },

  draw({ body, head, left, right }, s, r) {
    const names = s.body.map((_, i) => named(s, i));
    for (const [p, key, moves] of [
      [body, "body", r.move_body],
      [head, "head", r.move_head],
    ]) {
      p.axes({ xticks: [-1, 0, 1], yticks: [-1, 0, 1] });
      s[key].forEach((g, i) => {
        p.line([0, 0], g, { class: "pfl-arrow", stroke: groupColour(s, i) });
        p.diamond(moves[i], 6, { class: "pfl-cloud", fill: groupColour(s, i) }, 2);
      });
      s[key].forEach((g, i) =>
        p.handle(key, i, g, {
          label: `${key} update of client ${named(s, i)}`,
          text: named(s, i),
          colour: groupColour(s, i),
          r: 11,
          chosen: i === s.chosen,
        }),
      );
      p.label = `updates of the ${key} of ${names.length} clients`;
    }
    left.heat(r.body, { rows: names, chosen: s.chosen });
    right.heat(r.head, { rows: names, chosen: s.chosen });
    left.label = "weights for the body";
    right.label = "weights for the head";
  },

  say(s, { body, head, ratio, most }) {
    const m = body.length,
      i = clamp(s.chosen, 0, m - 1);
    const own =
      s.stages === "two"
        ? `${number(body[i][i], 2)} of its own body update and ${number(head[i][i], 2)} of its own head update`
        : `${number(body[i][i], 2)} of its own update`;
    return {
      text: `Client ${named(s, i)} takes ${own}; a plain mean would take ${number(1 / m, 2)}. In one row the largest weight is up to ${number(ratio)} times the smallest; e^(2/temperature) = ${number(most)} is the most it can be.${s.stages === "one" ? " One stage: body and head share their weights." : ""}`,
    };
  },

  tries: [
    {
      name: "Sharp",
      set: (s) => ({ ...s, temperature: 0.1, stages: "two" }),
      why: "A low temperature keeps to one’s own kind: the body’s groups and the head’s groups need not be the same.",
    },
    {
      name: "Like FedAvg",
      set: (s) => ({ ...s, temperature: 50, stages: "two" }),
      why: "A high temperature makes all weights 1/m: every client gets the mean update.",
    },
    {
      name: "One stage",
      set: (s) => ({ ...s, temperature: 0.1, stages: "one" }),
      why: "One cosine for the whole model: clients alike in the body only are now half-alike in everything.",
    },
  ],
});
