// The kit, part 1: mathematics, numbers, words and colours.

const SVG = "http://www.w3.org/2000/svg";
// Okabe and Ito's palette, told apart by colour-blind readers too; vermilion is kept for alarms.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442", "#8c8c8c"];
const THEMES = {
  light: { paper: "#ffffff", ink: "#1c2733", heat: "#0b4f8a", cold: "#8a4b08", alarm: "#b03000" },
  dark: { paper: "#161b22", ink: "#e6e9ee", heat: "#8fcbff", cold: "#f2b36b", alarm: "#ff9c73" },
};

// ---- small mathematics ---------------------------------------------------------------------------

const range = (n) => Array.from({ length: n }, (_, i) => i);
function sum(row) {
  // plain loops here: these run thousands of times between two frames
  let total = 0;
  for (let k = 0; k < row.length; k++) total += row[k];
  return total;
}
function dot(a, b) {
  let total = 0;
  for (let k = 0; k < a.length; k++) total += a[k] * b[k];
  return total;
}
function distance2(a, b) {
  let total = 0;
  for (let k = 0; k < a.length; k++) total += (a[k] - b[k]) ** 2;
  return total;
}
function mix(weights, rows) {
  // weights @ rows
  return weights.map((row) => {
    const out = new Array(rows[0].length).fill(0);
    for (let j = 0; j < row.length; j++) for (let k = 0; k < out.length; k++) out[k] += row[j] * rows[j][k];
    return out;
  });
}
const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
const table = (rows, columns, f) => range(rows).map((i) => range(columns).map((j) => f(i, j)));
const argmax = (row) => row.reduce((best, x, i) => (x > row[best] ? i : best), 0);
function cosine(a, b) {
  const scale = Math.sqrt(dot(a, a)) * Math.sqrt(dot(b, b));
  return scale > 0 ? dot(a, b) / scale : 0;
}
function softmax(row) {
  const top = Math.max(...row),
    e = row.map((x) => Math.exp(x - top)),
    z = sum(e);
  return e.map((x) => x / z);
}

// ---- numbers and words ---------------------------------------------------------------------------

const minus = (text) => String(text).replace("-", "−");
function number(x, digits = 3) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "undefined" : x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (size < 1e-12) return "0";
  if (size >= 1e-3 && size < 1e5) return minus(Number(x.toPrecision(digits)));
  const [a, b] = x.toExponential(digits - 1).split("e");
  const up = String(Number(b)).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
  return `${Number(a) === 1 ? "" : minus(Number(a)) + "·"}10${up}`;
}
// A weight in a small cell: .42, −.31, 1, 3.9
function short(x) {
  if (Math.abs(x) < 0.005) return "0";
  if (Math.abs(x) >= 9.95) return minus(Math.round(x));
  const text = Math.abs(x) >= 0.995 ? String(Number(x.toFixed(1))) : x.toFixed(2).replace("0.", ".");
  return minus(text);
}
function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
// How client i is called: its label if one was given, else its number.
const named = (s, i) => (s.labels && s.labels[i]) || String(i + 1);

// ---- colours -------------------------------------------------------------------------------------

const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
function remembered(f) {
  // a heat map asks for the same few colours hundreds of times
  const known = new Map();
  return (...given) => {
    const key = given.join();
    if (!known.has(key)) known.set(key, f(...given));
    return known.get(key);
  };
}
const steps = remembered((a, b, step) => {
  const from = channels(a),
    to = channels(b);
  return (
    "#" +
    from
      .map((x, k) =>
        Math.round(x + ((to[k] - x) * step) / 256)
          .toString(16)
          .padStart(2, "0"),
      )
      .join("")
  );
});
const blend = (a, b, part) => steps(a, b, Math.round(clamp(part, 0, 1) * 256));
// Black or white, whichever reads better on a colour: never below 4.5 to 1.
const onTop = remembered((colour) => {
  const light = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = channels(colour).map(light);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
});
const groupColour = (s, i) => PALETTE[((s.groups && s.groups[i]) || 0) % PALETTE.length];

function darkPage() {
  const html = document.documentElement,
    body = document.body;
  const said = html.dataset.theme || html.getAttribute("theme");
  if (said) return said === "dark";
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (body.classList.contains("vscode-dark")) return true;
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// ---- elements ----------------------------------------------------------------------------------

function set(node, attributes) {
  const old = node.pflAttributes || {};
  for (const [k, v] of Object.entries(attributes)) if (old[k] !== v) node.setAttribute(k, v);
  for (const k of Object.keys(old)) if (!(k in attributes)) node.removeAttribute(k);
  node.pflAttributes = attributes;
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  node.append(...children); // strings become text nodes: a label is never read as HTML
  return node;
}
