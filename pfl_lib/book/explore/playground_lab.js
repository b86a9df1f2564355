// The playground's laboratory: long computations in small pieces, and a pad to draw on.

// Run a generator piece by piece, never longer than a frame at a time, while ``alive`` says so.
async function inPieces(work, alive, visible) {
  for (;;) {
    const began = performance.now();
    while (performance.now() - began < 12) {
      if (!alive()) return false;
      if (work.next().done) return true;
    }
    await new Promise((go) => setTimeout(go, visible() ? 0 : 300));
    while (alive() && !visible()) await new Promise((go) => setTimeout(go, 300));
  }
}
// The mean accuracy after the last round, one round a piece.
function* finalOf(name, fed, rounds = ROUNDS) {
  let run = begin(name, fed);
  while (run.k < rounds) {
    run = advance(run, fed);
    yield;
  }
  return run.mean;
}
function* manySeeds(s, count, found) {
  for (let seed = 0; seed < count; seed++) {
    const fed = federationOf({ ...s, seed }),
      a = yield* finalOf(s.a, fed),
      b = s.b === s.a ? a : yield* finalOf(s.b, fed);
    found({ seed, a, b });
  }
}
const MAP = {
  sizes: [10, 20, 30, 40, 50, 60],
  hows: range(MOST + 1),
  methods: ["separate", "fedavg", "ditto", "fedamp"],
  seeds: 3,
};
// Seed after seed, so that the whole map is there early and then becomes surer.
function* mapOf(s, found) {
  const data = s.data === "alike" ? "names" : s.data;
  for (let seed = 0; seed < MAP.seeds; seed++)
    for (const how of MAP.hows)
      for (const size of MAP.sizes) {
        const fed = federationOf({ ...s, data, how, size, seed }),
          result = {};
        for (const name of MAP.methods) result[name] = yield* finalOf(name, fed);
        found({ how, size, result });
      }
}
const median = (values) => quantile([...values], 0.5);

// A drawing as the digits were made: cut out, 32 × 32 black and white, dark pixels of each 4 × 4.
function asDigit(dark, side) {
  let [left, top, right, bottom] = [side, side, -1, -1];
  for (let y = 0; y < side; y++)
    for (let x = 0; x < side; x++)
      if (dark[y * side + x]) {
        left = Math.min(left, x);
        right = Math.max(right, x);
        top = Math.min(top, y);
        bottom = Math.max(bottom, y);
      }
  if (right < 0) return null;
  const long = Math.max(right - left, bottom - top) + 1,
    fromX = (left + right + 1 - long) / 2,
    fromY = (top + bottom + 1 - long) / 2,
    out = new Uint8Array(PIXELS);
  for (let y = 0; y < 32; y++)
    for (let x = 0; x < 32; x++) {
      const px = Math.floor(fromX + ((x + 0.5) / 32) * long),
        py = Math.floor(fromY + ((y + 0.5) / 32) * long);
      if (px >= 0 && py >= 0 && px < side && py < side && dark[py * side + px])
        out[(y >> 2) * 8 + (x >> 2)]++;
    }
  return out.map((v) => Math.min(v, 15));
}

class Pad {
  constructor(drawn) {
    this.side = 168;
    this.canvas = element("canvas", {
      width: this.side,
      height: this.side,
      class: "pg-pad pg-empty",
      role: "img",
      "aria-label": "A pad to draw a digit on, with mouse, pen or finger",
    });
    this.pen = this.canvas.getContext("2d", { willReadFrequently: true });
    let last = null;
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [
        ((event.clientX - box.left) / box.width) * this.side,
        ((event.clientY - box.top) / box.height) * this.side,
      ];
    };
    const stroke = (to) => {
      this.pen.lineCap = this.pen.lineJoin = "round";
      this.pen.lineWidth = 19;
      this.pen.beginPath();
      this.pen.moveTo(...last);
      this.pen.lineTo(to[0] + 0.01, to[1]);
      this.pen.stroke();
      last = to;
      drawn(this.read());
    };
    this.canvas.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.canvas.setPointerCapture(event.pointerId);
      if (this.shown) this.clear();
      last = at(event);
      stroke(last);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (last) stroke(at(event));
    });
    for (const end of ["pointerup", "pointercancel"])
      this.canvas.addEventListener(end, () => {
        last = null;
      });
  }
  read() {
    const { data } = this.pen.getImageData(0, 0, this.side, this.side);
    return asDigit(
      Uint8Array.from({ length: this.side ** 2 }, (_, k) => data[4 * k + 3] > 100),
      this.side,
    );
  }
  clear() {
    this.shown = false;
    this.pen.clearRect(0, 0, this.side, this.side);
  }
  // A digit of 8 × 8 pixels; whoever begins to draw begins on white.
  show(picture) {
    this.clear();
    this.shown = true;
    const wide = this.side / 8;
    picture.forEach((v, k) => {
      this.pen.fillStyle = `rgb(0 0 0 / ${v / 15})`;
      this.pen.fillRect((k % 8) * wide, Math.floor(k / 8) * wide, wide, wide);
    });
  }
}
