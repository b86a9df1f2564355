// The playground's engine: twelve clients, two small models, nine methods, in plain functions.
// It computes what pfl_lib computes (playground.py sets up the same federation and the same
// methods); tests/site/test_playground.py compares the two in a browser, round by round, to 1e-9.
// Nothing here touches the page. DIGITS, the packed pictures, stands in front of this text.

const CLIENTS = 12,
  CLASSES = 10,
  PIXELS = 64,
  GROUPS = 3,
  HIDDEN = 16,
  TESTED = 40, // test digits per client
  MOST = 5, // how different clients can be
  ROUNDS = 30;
const HOME = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]; // the groups, until somebody is dragged
const RATE = { softmax: 0.5, mlp: 0.5 }; // length of a local step
const DITTO_PULL = 0.1,
  SPFL_PERIOD = 10,
  BETA = [1e4, 0.1, 30], // FedAMP's β in round k: 10⁴·0.1^⌊k/30⌋
  ALA = { rate: 1, tol: 0.1, window: 10, passes: 50 };
const HELD = [10, 8, 6, 5, 4, 3], // classes a group holds, the more different the fewer
  FIRST = [0, 3, 7]; // where a group's classes begin

// ---- random numbers by key ---------------------------------------------------------------------
// Every draw has a key, such as "3/hand/5": FNV-1a over its letters, then a counter through
// MurmurHash3's last steps. Whole numbers of 32 bits throughout, so that Python draws the same.

function keyed(...parts) {
  let h = 0x811c9dc5,
    k = 0;
  for (const letter of parts.join("/")) h = Math.imul(h ^ letter.charCodeAt(0), 0x01000193);
  return () => {
    let x = (h + Math.imul(++k, 0x9e3779b9)) | 0;
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
  };
}
function shuffled(items, draw) {
  const out = [...items];
  for (let i = out.length - 1; i > 0; i--) {
    const j = Math.floor(draw() * (i + 1));
    [out[i], out[j]] = [out[j], out[i]];
  }
  return out;
}

// ---- the digits, and who holds which -----------------------------------------------------------

const digits = (() => {
  let made = null;
  return () => {
    if (made) return made;
    const bytes = Uint8Array.from(atob(DIGITS.pixels), (c) => c.charCodeAt(0));
    const pixels = new Uint8Array(bytes.length * 2);
    bytes.forEach((b, k) => {
      pixels[2 * k] = b >> 4;
      pixels[2 * k + 1] = b & 15;
    });
    const labels = Uint8Array.from(DIGITS.labels, Number),
      n = labels.length;
    // twelve stretches of the file, each cut 60 / 40 once and for all into training and testing
    const stretches = range(CLIENTS).map((i) => {
      const from = Math.floor((i * n) / CLIENTS),
        to = Math.floor(((i + 1) * n) / CLIENTS);
      const order = shuffled(range(to - from), keyed("stretch", i)).map((k) => from + k),
        cut = Math.floor(0.6 * order.length);
      return { train: order.slice(0, cut), test: order.slice(cut) };
    });
    const all = { train: stretches.flatMap((s) => s.train), test: stretches.flatMap((s) => s.test) };
    made = { pixels, labels, stretches, all };
    return made;
  };
})();

const grouped = (s) => s.data === "classes" || s.data === "names";
const groupsOf = (s) => (grouped(s) ? s.groups : HOME.map(() => 0));

// What group g calls a digit: some pairs of names are swapped, other pairs in another group.
function namesOf(s, g) {
  const names = range(CLASSES);
  if (s.data !== "names" || g === 0) return names;
  const order = shuffled(names, keyed(s.seed, "names"));
  for (let k = 0; k < s.how; k++) {
    const a = order[(2 * k + g - 1) % CLASSES],
      b = order[(2 * k + g) % CLASSES];
    [names[a], names[b]] = [b, a];
  }
  return names;
}
function classesOf(s, g) {
  if (s.data !== "classes") return range(CLASSES);
  const order = shuffled(range(CLASSES), keyed(s.seed, "classes"));
  return range(HELD[s.how]).map((k) => order[(FIRST[g] + k) % CLASSES]);
}
// Which pictures client i holds, for training or testing; the first 10 of 30 are the 10 of 10.
function hand(s, i, part) {
  const { labels, stretches, all } = digits(),
    count = part === "train" ? s.size : TESTED;
  const draw = keyed(s.seed, part, i);
  if (s.data === "natural") {
    const own = shuffled(stretches[i][part], draw),
      other = shuffled(all[part], draw),
      used = new Set(),
      out = [];
    while (out.length < count) {
      const from = draw() < s.how / MOST && own.length ? own : other,
        next = from.shift();
      if (!used.has(next)) out.push(next);
      used.add(next);
    }
    return out;
  }
  const wanted = new Set(classesOf(s, groupsOf(s)[i]));
  return shuffled(
    all[part].filter((k) => wanted.has(labels[k])),
    draw,
  ).slice(0, count);
}

// Pictures as the models read them: only what is not white, row by row.
function sparse(pictures, labels) {
  const start = new Int32Array(pictures.length + 1),
    where = [],
    value = [];
  pictures.forEach((picture, k) => {
    for (let p = 0; p < PIXELS; p++)
      if (picture[p]) {
        where.push(p);
        value.push((picture[p] * 17) / 255);
      }
    start[k + 1] = where.length;
  });
  return {
    n: pictures.length,
    start,
    where: Int32Array.from(where),
    value: Float64Array.from(value),
    labels: Uint8Array.from(labels),
  };
}
function federationOf(s) {
  const { pixels, labels } = digits(),
    picture = (k) => pixels.subarray(k * PIXELS, (k + 1) * PIXELS);
  const clients = range(CLIENTS).map((i) => {
    const names = namesOf(s, groupsOf(s)[i]),
      parts = { train: hand(s, i, "train"), test: hand(s, i, "test") };
    const read = (part) =>
      sparse(
        part.map(picture),
        part.map((k) => names[labels[k]]),
      );
    return { names, hand: parts.train, train: read(parts.train), test: read(parts.test) };
  });
  return { s, clients, model: MODELS[s.model], rate: RATE[s.model], start: initial(s) };
}
function away(s, k) {
  return new Set(shuffled(range(CLIENTS), keyed(s.seed, "away", k)).slice(0, s.away));
}
const honest = (s) => range(CLIENTS).filter((i) => i + 1 !== s.liar);

// ---- two models: a vector of weights each ----------------------------------------------------------

// The common start: small multiples of 1/1024, which add up without rounding, so that equal models
// are equal to the last digit here and in Python. The hidden units' biases get 1/4096 more: then no
// unit stands exactly at ReLU's corner, where rounding would decide.
function initial(s) {
  const w = new Float64Array(MODELS[s.model].d),
    draw = keyed(s.seed, "start");
  for (let k = 0; k < w.length; k++) {
    const bound = s.model === "softmax" ? 8 : k < SECOND ? 128 : 256;
    w[k] = Math.floor((2 * draw() - 1) * bound + 0.5) / 1024;
    if (s.model === "mlp" && k >= HIDDEN * PIXELS && k < SECOND) w[k] += 1 / 4096;
  }
  return fromTorchOrder(s.model, w);
}

// In place: logits become softmax − one-hot, divided by n; returns the loss of the sample.
function errorOf(out, label, n) {
  let top = -Infinity,
    total = 0;
  for (let c = 0; c < CLASSES; c++) if (out[c] > top) top = out[c];
  const mine = out[label] - top;
  for (let c = 0; c < CLASSES; c++) total += out[c] = Math.exp(out[c] - top);
  for (let c = 0; c < CLASSES; c++) out[c] = (out[c] / total - (c === label ? 1 : 0)) / n;
  return (Math.log(total) - mine) / n;
}
// A layer of the vector w from ``at`` on: (inputs + 1) × outputs numbers, input by input, the biases
// last. torch has them output by output (see inTorchOrder); no method minds the order.
function layerOf(w, at, outputs, data, k, out) {
  const { where, value, start } = data,
    to = start[k + 1],
    bias = at + PIXELS * outputs;
  for (let c = 0; c < outputs; c++) out[c] = w[bias + c];
  for (let e = start[k]; e < to; e++) {
    const v = value[e],
      row = at + where[e] * outputs;
    for (let c = 0; c < outputs; c++) out[c] += w[row + c] * v;
  }
}
function layerBack(g, at, outputs, data, k, error) {
  const { where, value, start } = data,
    to = start[k + 1],
    bias = at + PIXELS * outputs;
  for (let c = 0; c < outputs; c++) g[bias + c] += error[c];
  for (let e = start[k]; e < to; e++) {
    const v = value[e],
      row = at + where[e] * outputs;
    for (let c = 0; c < outputs; c++) g[row + c] += error[c] * v;
  }
}

const SECOND = HIDDEN * (PIXELS + 1), // where the network's last layer begins
  LAST = SECOND + CLASSES * HIDDEN; // its biases
const hidden = new Float64Array(HIDDEN),
  backHidden = new Float64Array(HIDDEN);
const MODELS = {
  softmax: {
    name: "softmax regression",
    d: CLASSES * (PIXELS + 1),
    layers: [[0, PIXELS, CLASSES]], // where it begins, inputs, outputs
    logits(w, data, k, out) {
      layerOf(w, 0, CLASSES, data, k, out);
    },
    back(w, g, data, k, error) {
      layerBack(g, 0, CLASSES, data, k, error);
    },
    template: (w, c) => Float64Array.from(range(PIXELS), (p) => w[p * CLASSES + c]),
  },
  mlp: {
    name: "a network with 16 hidden units",
    d: LAST + CLASSES,
    layers: [
      [0, PIXELS, HIDDEN],
      [SECOND, HIDDEN, CLASSES],
    ],
    logits(w, data, k, out) {
      layerOf(w, 0, HIDDEN, data, k, hidden);
      for (let c = 0; c < CLASSES; c++) out[c] = w[LAST + c];
      for (let h = 0; h < HIDDEN; h++) {
        if (!(hidden[h] > 0)) hidden[h] = 0;
        for (let c = 0; c < CLASSES; c++) out[c] += w[SECOND + h * CLASSES + c] * hidden[h];
      }
    },
    back(w, g, data, k, error) {
      // hidden still holds what logits left there
      for (let c = 0; c < CLASSES; c++) g[LAST + c] += error[c];
      for (let h = 0; h < HIDDEN; h++) {
        const row = SECOND + h * CLASSES;
        let back = 0;
        for (let c = 0; c < CLASSES; c++) {
          g[row + c] += error[c] * hidden[h];
          back += error[c] * w[row + c];
        }
        backHidden[h] = hidden[h] > 0 ? back : 0;
      }
      layerBack(g, 0, HIDDEN, data, k, backHidden);
    },
    // what the network would look for if every hidden unit were awake
    template(w, c) {
      const out = new Float64Array(PIXELS);
      for (let h = 0; h < HIDDEN; h++)
        for (let p = 0; p < PIXELS; p++) out[p] += w[SECOND + h * CLASSES + c] * w[p * HIDDEN + h];
      return out;
    },
  },
};
// Where each number of torch's vector (weights output by output, then biases) stands in ours.
const places = remembered((name) =>
  MODELS[name].layers.flatMap(([at, inputs, outputs]) => [
    ...range(outputs).flatMap((c) => range(inputs).map((p) => at + p * outputs + c)),
    ...range(outputs).map((c) => at + inputs * outputs + c),
  ]),
);
const inTorchOrder = (name, w) => Float64Array.from(places(name), (k) => w[k]);
function fromTorchOrder(name, w) {
  const out = new Float64Array(w.length);
  places(name).forEach((k, at) => {
    out[k] = w[at];
  });
  return out;
}
const topOf = (model) => model.layers[model.layers.length - 1][0]; // where the last layer begins
const stagesOf = (model) =>
  model.layers.length === 1
    ? [[0, model.d]]
    : [
        [0, topOf(model)],
        [topOf(model), model.d],
      ];

const scores = new Float64Array(CLASSES);
// The mean loss on all the client's training digits, its gradient written into g.
function gradient(model, w, data, g) {
  let loss = 0;
  g.fill(0);
  for (let k = 0; k < data.n; k++) {
    model.logits(w, data, k, scores);
    loss += errorOf(scores, data.labels[k], data.n);
    model.back(w, g, data, k, scores);
  }
  return loss;
}
function accuracyOf(model, w, data) {
  let right = 0;
  for (let k = 0; k < data.n; k++) {
    model.logits(w, data, k, scores);
    right += argmax(scores) === data.labels[k];
  }
  return right / data.n;
}
// How sure a model is of each name, for one picture (64 numbers from 0 to 15).
function answer(model, w, picture) {
  const out = new Float64Array(CLASSES);
  model.logits(w, sparse([picture], [0]), 0, out);
  return softmax(Array.from(out));
}

// ---- mix and train: all the methods need ---------------------------------------------------------

const spare = { softmax: new Float64Array(MODELS.softmax.d), mlp: new Float64Array(MODELS.mlp.d) };
// Full-batch steps of the clients ``who`` from their rows; a liar turns the sign of what it sends.
function train(fed, rows, who, { steps = fed.s.steps, pull = null, sent = true } = {}) {
  const g = spare[fed.s.model];
  return who.map((i, at) => {
    const w = rows[at].slice();
    for (let t = 0; t < steps; t++) {
      gradient(fed.model, w, fed.clients[i].train, g);
      if (pull) for (let k = 0; k < w.length; k++) g[k] += pull.strength * (w[k] - pull.centre[at][k]);
      for (let k = 0; k < w.length; k++) w[k] -= fed.rate * g[k];
    }
    if (sent && fed.s.liar === i + 1) for (let k = 0; k < w.length; k++) w[k] = -w[k];
    return w;
  });
}
function mixed(xi, rows) {
  return xi.map((row) => {
    const out = new Float64Array(rows[0].length);
    row.forEach((v, j) => {
      if (v !== 0) for (let k = 0; k < out.length; k++) out[k] += v * rows[j][k];
    });
    return out;
  });
}
function put(rows, who, fresh) {
  const out = [...rows];
  who.forEach((i, at) => {
    out[i] = fresh[at];
  });
  return out;
}
const pick = (rows, who) => who.map((i) => rows[i]);
const identity = (n) => table(n, n, (i, j) => Number(i === j));
const repeated = (x, n) => range(n).map(() => x);
// The mean by numbers of samples, which are the same for all here.
const meanOf = (rows) => mixed([rows.map(() => 1 / rows.length)], rows)[0];
const averaged = (who, own = () => 0) =>
  table(
    CLIENTS,
    CLIENTS,
    (i, j) => own(i) * Number(i === j) + (1 - own(i)) * (who.includes(j) ? 1 / who.length : 0),
  );

function gram(rows) {
  return table(rows.length, rows.length, (i, j) => (j < i ? 0 : dot(rows[i], rows[j]))).map((row, i, all) =>
    row.map((v, j) => (j < i ? all[j][i] : v)),
  );
}
function distances(rows) {
  const out = table(rows.length, rows.length, () => 0);
  rows.forEach((w, i) => {
    for (let j = 0; j < i; j++) out[i][j] = out[j][i] = distance2(w, rows[j]);
  });
  return out;
}
function cosines(rows) {
  const products = gram(rows),
    long = products.map((row, i) => Math.sqrt(row[i]));
  return products.map((row, i) =>
    row.map((v, j) => {
      const alive = products[i][i] > 2.3e-308 && products[j][j] > 2.3e-308;
      return !alive ? 0 : i === j ? 1 : clamp(v / (long[i] * long[j]), -1, 1);
    }),
  );
}
// The middle of all squared distances; the mean where most pairs coincide, 1 where all do.
function middleDistance(t) {
  const all = t.flatMap((row, i) => row.slice(i + 1)).sort((a, b) => a - b),
    n = all.length;
  const middle = (all[(n - 1) >> 1] + all[n >> 1]) / 2;
  return middle > 0 ? middle : sum(all) > 0 ? sum(all) / n : 1;
}
// Shares of what a client leaves to the others; nobody heard: itself alone.
function sharedOut(ratio, i, own) {
  const total = sum(ratio);
  return ratio.map((v, j) => (total > 0 ? (j === i ? own : ((1 - own) * v) / total) : Number(i === j)));
}

// A method: start(fed) -> state, round(state, fed, who, k) -> state, tested(state, fed) -> models.
// ``xi`` in a state is what is drawn: row i, whose models client i's new one is made of.
function messagePassing(attend) {
  return {
    start: (fed) => ({ w: repeated(fed.start, CLIENTS), xi: identity(CLIENTS) }),
    round(state, fed, who, k) {
      const xi = attend(state.w, fed.s),
        u = mixed(xi, state.w),
        beta = BETA[0] * BETA[1] ** Math.floor(k / BETA[2]);
      const w = train(fed, pick(u, who), who, { pull: { centre: pick(u, who), strength: 1 / beta } });
      return { w: put(state.w, who, w), xi };
    },
    tested: (state) => state.w,
  };
}
const averaging = {
  start: (fed) => ({ x: fed.start, xi: identity(CLIENTS) }),
  round(state, fed, who) {
    return { x: meanOf(train(fed, repeated(state.x, who.length), who)), xi: averaged(who) };
  },
  tested: (state) => repeated(state.x, CLIENTS),
};

const METHODS = {
  separate: {
    label: "Separate",
    words: "everyone alone",
    start: (fed) => ({ w: repeated(fed.start, CLIENTS), xi: identity(CLIENTS) }),
    round: (state, fed, who) => ({ ...state, w: put(state.w, who, train(fed, pick(state.w, who), who)) }),
    tested: (state) => state.w,
  },
  fedavg: { label: "FedAvg", words: "one average for all", ...averaging },
  "fedavg-ft": {
    label: "FedAvg-FT",
    words: "the average, then practice at home",
    ...averaging,
    tested: (state, fed) => train(fed, repeated(state.x, CLIENTS), range(CLIENTS), { sent: false }),
  },
  ditto: {
    label: "Ditto",
    words: "own model, tied to the average by a spring",
    start: (fed) => ({ ...averaging.start(fed), v: repeated(fed.start, CLIENTS) }),
    round(state, fed, who, k) {
      const pull = { centre: repeated(state.x, who.length), strength: DITTO_PULL };
      const v = train(fed, pick(state.v, who), who, { pull, sent: false });
      return { ...averaging.round(state, fed, who, k), v: put(state.v, who, v) };
    },
    tested: (state) => state.v,
  },
  fedamp: {
    label: "FedAMP",
    words: "listen to models that are near",
    ...messagePassing((rows, s) => {
      const t = distances(rows),
        sigma = s.unit === "median" ? s.sigma * middleDistance(t) : s.width;
      return t.map((row, i) => {
        const nearest = Math.min(...row.filter((_, j) => j !== i));
        return sharedOut(
          row.map((v, j) => (i === j ? 0 : Math.exp(-(v - nearest) / sigma))),
          i,
          s.self_weight,
        );
      });
    }),
  },
  heurfedamp: {
    label: "HeurFedAMP",
    words: "listen to models that point the same way",
    ...messagePassing((rows, s) =>
      cosines(rows).map((row, i) => {
        const top = Math.max(...row.filter((_, j) => j !== i));
        return sharedOut(
          row.map((v, j) => (i === j ? 0 : Math.exp(s.sharpness * (v - top)))),
          i,
          s.self_weight,
        );
      }),
    ),
  },
  fedacs: {
    label: "FedACS",
    words: "listen to the most similar, and to nobody else",
    start: (fed) => ({ w: repeated(fed.start, CLIENTS), xi: identity(CLIENTS) }),
    round(state, fed, who) {
      const rows = pick(state.w, who),
        S = cosines(rows),
        delta = quantile(S.flat(), fed.s.p);
      const heard = S.map((row, i) => {
        const kept = row.map((v, j) => (v > delta || i === j ? Math.max(v, 0) : 0)),
          total = sum(kept);
        return total > 0 ? kept.map((v) => v / total) : kept.map((_, j) => Number(i === j));
      });
      const xi = identity(CLIENTS);
      who.forEach((i, a) =>
        who.forEach((j, b) => {
          xi[i][j] = heard[a][b];
        }),
      );
      return { w: put(state.w, who, train(fed, mixed(heard, rows), who)), xi };
    },
    tested: (state) => state.w,
  },
  spfl: {
    label: "SPFL",
    words: "follow those whose updates point the same way",
    everyone: true,
    start: (fed) => ({
      w: repeated(fed.start, CLIENTS),
      S: stagesOf(fed.model).map(() => table(CLIENTS, CLIENTS, () => 1 / CLIENTS)),
      xi: identity(CLIENTS),
    }),
    round(state, fed, who, k) {
      let { w, S } = state;
      const twice = { steps: 2 * fed.s.steps };
      if (k % SPFL_PERIOD === 0) {
        w = repeated(meanOf(w), CLIENTS);
        const probe = train(fed, w, who, twice);
        S = stagesOf(fed.model).map(([from, to]) =>
          cosines(w.map((row, i) => row.slice(from, to).map((v, c) => v - probe[i][from + c]))).map(softmax),
        );
      }
      const trained = train(fed, w, who, twice);
      const update = w.map((row, i) => row.map((v, c) => v - trained[i][c]));
      const moved = w.map((row) => row.slice());
      stagesOf(fed.model).forEach(([from, to], stage) =>
        mixed(
          S[stage],
          update.map((row) => row.subarray(from, to)),
        ).forEach((step, i) =>
          step.forEach((v, c) => {
            moved[i][from + c] -= v;
          }),
        ),
      );
      return { w: moved, S, xi: S[S.length - 1] };
    },
    tested: (state) => state.w,
  },
  fedala: {
    label: "FedALA",
    words: "learn how much of the average to take, weight by weight",
    start: (fed) => ({
      x: fed.start,
      own: repeated(fed.start, CLIENTS),
      begin: repeated(fed.start, CLIENTS),
      weights: repeated(new Float64Array(fed.model.d - topOf(fed.model)).fill(1), CLIENTS),
      started: repeated(false, CLIENTS),
      xi: identity(CLIENTS),
    }),
    round(state, fed, who) {
      const top = topOf(fed.model),
        weights = [...state.weights],
        begin = [...state.begin],
        started = [...state.started];
      for (const i of who) {
        const own = state.own[i];
        let apart = false;
        for (let k = top; k < own.length; k++) apart ||= own[k] !== state.x[k];
        if (apart) weights[i] = learnMix(fed, i, weights[i], own, state.x, started[i]);
        begin[i] = mixOf(weights[i], own, state.x, top);
        started[i] ||= apart;
      }
      const w = train(fed, pick(begin, who), who);
      // drawn: how much of the average a client took, on average over its weights
      const xi = averaged(who, (i) => 1 - sum(weights[i]) / weights[i].length);
      return { x: meanOf(w), own: put(state.own, who, w), begin, weights, started, xi };
    },
    tested: (state) => state.begin,
  },
};

function quantile(values, p) {
  const sorted = values.sort((a, b) => a - b),
    place = p * (sorted.length - 1),
    below = Math.floor(place),
    above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}
// Θ̂ = Θ_i + (Θ − Θ_i)⊙W in the last layer, the download below it; exact at both ends.
function mixOf(weights, own, x, top) {
  const out = x.slice();
  for (let k = top; k < out.length; k++) {
    const v = weights[k - top],
      gap = x[k] - own[k];
    out[k] = v < 0.5 ? own[k] + v * gap : x[k] - gap * (1 - v);
  }
  return out;
}
// The first time until the losses of the last passes stand still, later times one pass.
function learnMix(fed, i, start, own, x, started) {
  const top = topOf(fed.model),
    g = spare[fed.s.model],
    losses = [];
  let weights = start;
  for (let done = 1; done <= ALA.passes; done++) {
    losses.push(gradient(fed.model, mixOf(weights, own, x, top), fed.clients[i].train, g));
    weights = weights.map((v, k) => clamp(v - ALA.rate * (x[top + k] - own[top + k]) * g[top + k], 0, 1));
    const last = losses.slice(-ALA.window),
      mean = sum(last) / last.length;
    const spread = Math.sqrt(sum(last.map((v) => (v - mean) ** 2)) / last.length);
    if (started || (done > ALA.window && spread < ALA.tol)) break;
  }
  return weights;
}

// ---- a run -----------------------------------------------------------------------------------------

// One round more: what came out, and what it came from. Nothing is changed in place.
function begin(name, fed) {
  const state = METHODS[name].start(fed);
  return measured({ name, k: 0, state, xi: state.xi, who: range(CLIENTS) }, fed);
}
function advance(run, fed) {
  const method = METHODS[run.name],
    absent = method.everyone ? new Set() : away(fed.s, run.k),
    who = range(CLIENTS).filter((i) => !absent.has(i)),
    state = method.round(run.state, fed, who, run.k);
  return measured({ name: run.name, k: run.k + 1, state, xi: state.xi, who }, fed);
}
function measured(run, fed) {
  run.models = METHODS[run.name].tested(run.state, fed);
  run.accuracy = run.models.map((w, i) => accuracyOf(fed.model, w, fed.clients[i].test));
  run.mean = averageOf(run.accuracy, fed.s);
  return run;
}
const averageOf = (accuracy, s) => sum(honest(s).map((i) => accuracy[i])) / honest(s).length;
