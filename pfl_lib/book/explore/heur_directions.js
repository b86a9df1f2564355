// HeurFedAMP: only directions count. On the circle FedAMP with σ′ = 2/σ gives the very same weights.

export default explorer({
  title: "HeurFedAMP: who points the same way",
  ask: "Drag a client along its ray, away from the origin. Which server notices?",
  hint: "HeurFedAMP sees directions, FedAMP distances. On the circle both agree to the last digit.",
  lines: [2, 5],
  controls: [
    slider("sigma", { label: "σ, sharpness", min: 0.1, max: 100, log: true }),
    slider("self_weight", { label: "ξᵢᵢ = 1 − τ, self-weight", min: 0, max: 1, step: 0.01 }),
  ],
  pictures: {
    plane: plane(2, "Clients, their directions, messages ◆", "Clients"),
    heur: { title: "ξ of HeurFedAMP", tab: "HeurFedAMP", height: 336 },
    amp: { title: "ξ of FedAMP, σ′ = 2/σ, same self-weight", tab: "FedAMP", height: 336 },
  },

  compute(s) {
    const heur = heurfedampWeights(s.points, s.sigma, s.self_weight),
      amp = attentionWeights(s.points, "negative_exponential", 2 / s.sigma, s.self_weight);
    return { heur, amp, u: mix(heur, s.points) };
  },

  draw({ plane, heur: left, amp: right }, s, { heur, amp, u }) {
    const names = s.points.map((_, i) => named(s, i));
    plane.axes();
    plane.shape("circle", { cx: plane.x(0), cy: plane.y(0), r: plane.x(1) - plane.x(0), class: "pfl-round" });
    s.points.forEach((w, i) => {
      const size = Math.hypot(...w) || 1;
      plane.line(
        [0, 0],
        [(2.2 * w[0]) / Math.max(size, 1.1), (2.2 * w[1]) / Math.max(size, 1.1)].map((v) => clamp(v, -2, 2)),
        { class: "pfl-ray", stroke: groupColour(s, i) },
      );
      plane.circle([w[0] / size, w[1] / size], 4, { fill: groupColour(s, i) });
    });
    drawLinks(plane, s, heur);
    drawClients(plane, s, u);
    plane.label = `${names.length} clients with their directions on the unit circle`;

    left.heat(heur, { rows: names, chosen: s.chosen });
    right.heat(amp, { rows: names, chosen: s.chosen });
    left.label = "weights of HeurFedAMP";
    right.label = "weights of FedAMP on the same clients";
  },

  say(s, { heur, amp }) {
    const i = clamp(s.chosen, 0, heur.length - 1),
      others = heur[i].map((v, j) => (j === i ? -1 : v)),
      most = argmax(others);
    const apart = Math.max(...heur.flatMap((row, a) => row.map((v, b) => Math.abs(v - amp[a][b]))));
    const agree =
      apart < 5e-4
        ? "All clients have length one, so FedAMP gives the same weights."
        : `FedAMP’s weights differ by up to ${number(apart, 2)}, since it sees lengths too.`;
    return {
      text: `Client ${named(s, i)} listens most to client ${named(s, most)} (${number(others[most], 2)}). ${agree}`,
    };
  },

  tries: [
    {
      name: "On the circle",
      set: (s) => ({
        ...s,
        sigma: 5,
        self_weight: 0.25,
        points: s.points.map((w) => w.map((x) => Number((x / (Math.hypot(...w) || 1)).toFixed(15)))),
      }),
      why: "‖wᵢ − wⱼ‖² = 2 − 2cos: on the circle distance and direction are one thing, and the heat maps agree.",
    },
    {
      name: "A long client",
      set: (s) => ({
        ...s,
        sigma: 5,
        self_weight: 0.25,
        chosen: 0,
        points: s.points.map((w, i) => (i ? w : w.map((x) => (1.95 * x) / (Math.hypot(...w) || 1)))),
      }),
      why: "Client 1 has a longer model (say, more training). HeurFedAMP still sees its group; FedAMP starts to lose it.",
    },
  ],
});
