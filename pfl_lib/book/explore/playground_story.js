// Six steps, each with a guess before the truth; and, small, the same story in three acts.

const percent = (v) => `${Math.round(100 * v)}\u00a0%`;
const STORY = [
  {
    title: "Alone is weak",
    set: { data: "alike", a: "separate", b: "separate", solo: true },
    ask: "Twelve people have thirty handwritten digits each. Nobody shares anything; each trains a model alone. How many new digits will they read correctly?",
    tell: (r) => `Alone they read ${percent(r.b)}. Thirty digits are just too few.`,
  },
  {
    title: "The average is wonderful",
    set: { data: "alike", a: "separate", b: "fedavg" },
    ask: "Now a server averages the twelve models after every round and hands the average back. The digits stay at home. What will the average reach?",
    tell: (r) => `${percent(r.b)} instead of ${percent(r.a)}: nobody saw anybody’s digits, and all gained.`,
  },
  {
    title: "Now they disagree",
    set: { data: "names", how: 5, a: "separate", b: "fedavg" },
    ask: "Three groups call the same shapes by different names: one’s “3” is another’s “7”. The same average as before: how good will it be?",
    tell: (r) =>
      `${percent(r.b)}, far below the ${percent(r.a)} of working alone. One model can please one group at most. Look at the pictures: the average looks for everything at once.`,
  },
  {
    title: "Listen to your like",
    set: { data: "names", how: 5, sigma: 0.1, unit: "median", a: "fedavg", b: "fedamp" },
    ask: "FedAMP mixes a message for each client, mostly from models near its own. Nobody tells it who belongs together. How far will it get?",
    tell: (r) =>
      `${percent(r.b)}. Watch the links: within a few rounds, clients hear ${percent(r.own)} of what they hear from their own group. The groups found themselves.`,
  },
  {
    title: "Too wide an ear",
    set: { data: "names", how: 5, sigma: 1, unit: "median", a: "separate", b: "fedamp" },
    ask: "One number, σ, says how near is near. We make it ten times as wide: now models of other groups are “near”, too. What is left?",
    tell: (r) =>
      `${percent(r.b)}. The right σ matters more than the choice of the method; it falls off a cliff between 0.3 and 1.`,
  },
  {
    title: "Which would you ship?",
    set: { data: "natural", how: 5, sigma: 0.1, unit: "median", a: "fedavg", b: "ditto" },
    ask: "Real life: twelve stretches of the digits as they were collected, so each client has its own few writers. Will Ditto, a personal model tied to the average by a spring, get further than FedAvg?",
    tell: (r) =>
      `FedAvg ${percent(r.a)}, Ditto ${percent(r.b)}: ${Math.abs(r.a - r.b) < 0.015 ? "hardly a difference, on this seed" : r.b > r.a ? "the personal models win, on this seed" : "the average wins, on this seed"}. Before you ship anything, replay it with 100 seeds, below, and draw the map.`,
  },
];

// What the first page shows in ten seconds: rounds, milliseconds per round, and a sentence.
const ACTS = [
  {
    title: "Together",
    set: { data: "alike", b: "fedavg" },
    rounds: 8,
    pace: 300,
    say: (read, k) =>
      k < 1
        ? "Twelve clients with thirty digits each. Nobody shows theirs to anybody."
        : `They average their models, and all of them read ${read} of new digits correctly.`,
  },
  {
    title: "At odds",
    set: { data: "names", how: 5, b: "fedavg" },
    rounds: 6,
    pace: 330,
    say: (read, k) =>
      k < 1
        ? "Now three groups call the same digits by different names."
        : `Three groups, three sets of names: one model for all reads ${read}.`,
  },
  {
    title: "Like finds like",
    set: { data: "names", how: 5, b: "fedamp", sigma: 0.1, unit: "median" },
    rounds: 14,
    pace: 330,
    say: (read, k) =>
      k < 1
        ? "So each listens to those whose models are near its own."
        : `Each listens to the models near its own: ${read}. Nobody told them who belongs together.`,
  },
];
