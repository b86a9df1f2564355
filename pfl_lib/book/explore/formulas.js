// The library's formulas once more, for the page: pfl_lib.attention and pfl_lib.formulas under the
// same names. tests/site/test_explorers.py compares the two in a browser.

const expm1 = Math.expm1,
  SCAD_A = 3.7,
  MCP_GAMMA = 2;
// value A(t), slope A'(t), zero A'(0+), and convexUntil: the t up to which A(r²) curves upwards
const ATTENTION = {
  negative_exponential: {
    name: "exponential",
    formula: "1 − e^(−t/σ)",
    value: (t, s) => -expm1(-t / s),
    slope: (t, s) => Math.exp(-t / s) / s,
    zero: (s) => 1 / s,
    convexUntil: (s) => s / 2,
    ratio: (t, nearest, s) => Math.exp(-(t - nearest) / s), // survives a tiny σ
  },
  tamed_square_root: {
    name: "tamed √",
    formula: "t/2σ up to σ², then √t − σ/2",
    value: (t, s) => (t <= s * s ? t / (2 * s) : Math.sqrt(t) - s / 2),
    slope: (t, s) => 0.5 / Math.max(s, Math.sqrt(t)),
    zero: (s) => 1 / (2 * s),
    convexUntil: () => Infinity,
  },
  mcp: {
    name: "MCP",
    formula: "t/σ − t²/4σ² up to 2σ, then 1",
    value: (t, s) => {
      const z = Math.min(t / s, MCP_GAMMA);
      return z - (z * z) / (2 * MCP_GAMMA);
    },
    slope: (t, s) => Math.max(0, 1 - t / (MCP_GAMMA * s)) / s,
    zero: (s) => 1 / s,
    convexUntil: (s) => (MCP_GAMMA * s) / 3,
  },
  scad: {
    name: "SCAD",
    formula: "t/σ up to σ, bent until 3.7σ, then 2.35",
    value: (t, s) => {
      const z = Math.min(t / s, SCAD_A);
      return z <= 1 ? z : (2 * SCAD_A * z - z * z - 1) / (2 * (SCAD_A - 1));
    },
    slope: (t, s) => clamp((SCAD_A - t / s) / (SCAD_A - 1), 0, 1) / s,
    zero: (s) => 1 / s,
    convexUntil: (s) => s * Math.max(1, SCAD_A / 3),
  },
  pseudo_huber: {
    name: "pseudo-Huber",
    formula: "√(σ² + t) − σ",
    value: (t, s) => t / (Math.sqrt(s * s + t) + s),
    slope: (t, s) => 0.5 / Math.sqrt(s * s + t),
    zero: (s) => 1 / (2 * s),
    convexUntil: () => Infinity,
  },
};

const squaredDistances = (W) => W.map((w) => W.map((v) => distance2(w, v)));
const cosineSimilarities = (W) =>
  table(W.length, W.length, (i, j) =>
    i === j ? Number(dot(W[i], W[i]) > 0) : clamp(cosine(W[i], W[j]), -1, 1),
  );
const withoutSelf = (row, i) => row.map((v, j) => (j === i ? 0 : v));

// ξ_ij = α·A'(t_ij), ξ_ii = 1 − Σ ξ_ij
function fedampWeights(W, kind, sigma, alpha, factor = 1) {
  return squaredDistances(W).map((row, i) => {
    const heard = withoutSelf(
      row.map((t) => factor * alpha * ATTENTION[kind].slope(t, sigma)),
      i,
    );
    heard[i] = 1 - sum(heard);
    return heard;
  });
}
const largestConvexAlpha = (W, kind, sigma, factor = 1) =>
  squaredDistances(W).map(
    (row, i) =>
      1 /
      sum(
        withoutSelf(
          row.map((t) => factor * ATTENTION[kind].slope(t, sigma)),
          i,
        ),
      ),
  );
const safeAlpha = (kind, sigma, m, factor = 1) =>
  m < 2 ? Infinity : 1 / (factor * (m - 1) * ATTENTION[kind].zero(sigma));

// Scores of the others made into shares of 1 − selfWeight; nobody heard: ξ_ii = 1.
function aroundSelf(scores, i, selfWeight) {
  const total = sum(scores),
    own = total > 0 ? selfWeight : 1;
  return scores.map((v, j) => (j === i ? own : total > 0 ? ((1 - own) * v) / total : 0));
}
function attentionWeights(W, kind, sigma, selfWeight) {
  const {
    slope,
    ratio = (t, nearest) => {
      const top = slope(nearest, sigma);
      return top > 0 ? slope(t, sigma) / top : 0;
    },
  } = ATTENTION[kind];
  return squaredDistances(W).map((row, i) => {
    const nearest = Math.min(...row.filter((_, j) => j !== i));
    return aroundSelf(
      withoutSelf(
        row.map((t) => ratio(t, nearest, sigma)),
        i,
      ),
      i,
      selfWeight,
    );
  });
}
function heurfedampWeights(W, sigma, selfWeight) {
  return cosineSimilarities(W).map((row, i) => {
    const top = Math.max(...row.filter((_, j) => j !== i));
    return aroundSelf(
      withoutSelf(
        row.map((c) => Math.exp(sigma * (c - top))),
        i,
      ),
      i,
      selfWeight,
    );
  });
}

// ∇𝒜(W): row i is 2·Σ A'(t_ij)(w_i − w_j)
function fedampGradient(W, kind, sigma) {
  const { slope } = ATTENTION[kind],
    out = W.map((w) => new Array(w.length).fill(0));
  for (let i = 0; i < W.length; i++)
    for (let j = 0; j < i; j++) {
      const pull = 2 * slope(distance2(W[i], W[j]), sigma);
      for (let k = 0; k < W[i].length; k++) {
        const part = pull * (W[i][k] - W[j][k]);
        out[i][k] += part;
        out[j][k] -= part;
      }
    }
  return out;
}
// The p-quantile of all entries, and the rows of what lies above it, made to sum to one.
function fedacsThreshold(S, p) {
  const entries = S.flat().sort((a, b) => a - b),
    place = p * (entries.length - 1),
    below = Math.floor(place),
    above = Math.min(below + 1, entries.length - 1);
  return entries[below] + (place - below) * (entries[above] - entries[below]);
}
function fedacsSelect(S, delta, negatives) {
  return S.map((row, i) => {
    let kept = row.map((v, j) => (v > delta || i === j ? v : 0));
    if (negatives === "drop" || sum(kept) <= Number.EPSILON) kept = kept.map((v) => Math.max(v, 0));
    const total = sum(kept);
    return total > 0 ? kept.map((v) => v / total) : kept.map((_, j) => Number(i === j));
  });
}
// argmin_w ½h‖w − c‖² + ‖w − u‖²/(2β), for every row
const proximalStepQuadratic = (U, h, c, beta) =>
  U.map((u, i) => u.map((x, k) => (beta * h * c[i][k] + x) / (beta * h + 1)));
const fedampObjective = (W, kind, sigma) =>
  sum(W.flatMap((w, i) => W.slice(i + 1).map((v) => ATTENTION[kind].value(distance2(w, v), sigma))));

// How many groups: clients nearer than ``reach`` to each other, directly or through others.
function groupsWithin(W, reach) {
  const group = W.map((_, i) => i);
  W.forEach((w, i) =>
    W.forEach((v, j) => {
      if (j < i && distance2(w, v) < reach * reach && group[i] !== group[j]) {
        const [keep, drop] = [group[j], group[i]];
        group.forEach((g, k) => {
          if (g === drop) group[k] = keep;
        });
      }
    }),
  );
  return [...new Set(group)].map((g) => range(W.length).filter((i) => group[i] === g));
}

// Links between points: a wedge, at client i as wide as what i takes from j.
function drawLinks(p, s, weights) {
  const { chosen = -1 } = s;
  weights.forEach((row, i) =>
    row.forEach((v, j) => {
      if (i === j || Math.abs(v) < 0.004) return;
      const [ax, ay, bx, by] = [
        p.x(s.points[i][0]),
        p.y(s.points[i][1]),
        p.x(s.points[j][0]),
        p.y(s.points[j][1]),
      ];
      const long = Math.hypot(bx - ax, by - ay) || 1,
        half = clamp(Math.abs(v) * 12, 0.5, 9) / long,
        nx = (ay - by) * half,
        ny = (bx - ax) * half;
      const colour = v < 0 ? p.theme.alarm : p.theme.ink;
      p.shape("path", {
        d: `M${ax + nx} ${ay + ny}L${bx} ${by}L${ax - nx} ${ay - ny}Z`,
        class: "pfl-link",
        fill: colour,
        "fill-opacity": i === chosen ? 0.7 : 0.28,
      });
    }),
  );
}
// Clients as points one can drag, each with its message u as a diamond on a dashed line.
function drawClients(p, s, clouds, bad = () => false, size = {}) {
  clouds.forEach((u, i) => {
    p.line(s.points[i], u, { class: "pfl-leash" }, 2);
    p.diamond(
      u,
      6,
      { class: "pfl-cloud", fill: groupColour(s, i), "data-cloud": i, "data-value": u.join(",") },
      2,
    );
  });
  s.points.forEach((point, i) =>
    p.handle("points", i, point, {
      label: `client ${named(s, i)}`,
      text: named(s, i),
      colour: groupColour(s, i),
      alarm: bad(i),
      chosen: i === s.chosen,
      ...size,
    }),
  );
}
