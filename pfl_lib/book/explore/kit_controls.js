// The kit, part 3: controls. Each is (page) -> { node, key, takes(value), refresh(state, result) };
// ``takes`` says whether the control can stand at a value, as one read from the address.

let serial = 0;

// A slider; log sliders move through two-digit numbers, so that 1, 10 and 100 are met exactly;
// with ``values`` it moves through a given list.
function slider(
  key,
  {
    label,
    values,
    min = 0,
    max = values && values.length - 1,
    step = 1,
    log = false,
    show = (v) => number(v),
    off,
    mark,
  },
) {
  return (page) => {
    const id = `pfl-${key}-${page.id}-${serial++}`,
      span = log ? Math.round(Math.log10(max / min) * 100) : max - min;
    const input = element("input", {
      type: "range",
      id,
      "data-key": key,
      ...(log ? { min: 0, max: span, step: 1 } : { min, max, step }),
    });
    const output = element("output", { for: id }),
      tick = element("span", { class: "pfl-mark", hidden: "" });
    let before = null, // the value when a finger came down
      room = 0; // letters of the longest value: its label never wraps because of it
    const place = (v) =>
      values ? values.indexOf(v) : log ? Math.log10(clamp(v, min, max) / min) * 100 : clamp(v, min, max);
    const value = (at = Number(input.value)) =>
      values
        ? values[at]
        : log
          ? clamp(Number((min * 10 ** (at / 100)).toPrecision(2)), min, max)
          : at;
    input.addEventListener("input", () => page.change({ [key]: value() }));
    if (log)
      input.addEventListener("keydown", (event) => {
        // several places stand for one two-digit number: an arrow key goes on to the next number
        const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
        if (!way) return;
        event.preventDefault();
        let at = Number(input.value);
        do at += way;
        while (at > 0 && at < span && value(at) === value());
        page.change({ [key]: value(clamp(at, 0, span)) });
      });
    input.addEventListener("pointerdown", () => {
      before = page.state()[key];
    });
    input.addEventListener("pointercancel", () => {
      // the finger was on its way down the page: that is no wish for another value
      if (before !== null) page.change({ [key]: before });
    });
    const node = element(
      "div",
      { class: "pfl-control pfl-slider" },
      element("label", { for: id }, label),
      output,
      element("div", { class: "pfl-track" }, input, tick),
    );
    return {
      node,
      key,
      takes: (v) => (values ? values.includes(v) : typeof v === "number" && v >= min && v <= max),
      refresh(s, r) {
        const disabled = Boolean(off && off(s, r)),
          goal = mark && !disabled ? mark(s, r) : null;
        if (value() !== s[key]) input.value = place(s[key]);
        input.disabled = disabled;
        node.classList.toggle("pfl-off", disabled);
        if (!room) {
          const [from, to] = log ? [0, span] : [min, max];
          for (let at = from; at <= to; at += step) room = Math.max(room, show(value(at), s, r).length);
          output.style.minWidth = `${room}ch`;
        }
        output.textContent = show(s[key], s, r);
        input.setAttribute("aria-valuetext", output.textContent);
        tick.hidden = !(goal && goal.value >= min && goal.value <= max);
        if (!tick.hidden) {
          const low = log ? 0 : min;
          tick.style.setProperty("--part", (place(goal.value) - low) / span);
          tick.title = goal.label;
        }
      },
    };
  };
}

function choice(key, { label, options, off }) {
  return (page) => {
    const name = `pfl-${key}-${page.id}-${serial++}`,
      inputs = {};
    const buttons = Object.entries(options).map(([value, text]) => {
      inputs[value] = element("input", { type: "radio", name, value, "data-key": key });
      inputs[value].addEventListener("change", () => page.change({ [key]: value }));
      return element("label", {}, inputs[value], element("span", {}, text));
    });
    const node = element(
      "div",
      { class: "pfl-control pfl-choice", role: "radiogroup", "aria-label": label },
      element("span", { class: "pfl-legend" }, label),
      element("div", {}, ...buttons),
    );
    return {
      node,
      key,
      takes: (v) => v in options,
      refresh(s, r) {
        const disabled = Boolean(off && off(s, r));
        for (const [value, input] of Object.entries(inputs)) {
          input.checked = value === s[key];
          input.disabled = disabled;
        }
        node.classList.toggle("pfl-off", disabled);
      },
    };
  };
}

function check(key, { label, off }) {
  return (page) => {
    const input = element("input", { type: "checkbox", "data-key": key });
    input.addEventListener("change", () => page.change({ [key]: input.checked }));
    const node = element("label", { class: "pfl-control pfl-check" }, input, element("span", {}, label));
    return {
      node,
      key,
      takes: (v) => typeof v === "boolean",
      refresh(s, r) {
        input.checked = s[key];
        input.disabled = Boolean(off && off(s, r));
      },
    };
  };
}

// A whole number that can run by itself: play, one step, back to the start. When it is first seen it
// runs once, from the start to where it stands; the first touch of anything ends that.
function player(key, { label, min = 0, max, every = 120, show = (v) => number(v) }) {
  return (page) => {
    const inner = slider(key, { label, min, max, step: 1, show })(page);
    const play = element("button", { type: "button", "data-play": key }),
      step = element("button", { type: "button", "data-step": key }, "Step"),
      back = element("button", { type: "button", "data-back": key }, "To start");
    let timer = null;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      paint();
    };
    const paint = () => {
      play.textContent = timer ? "❚❚ Pause" : "▶ Play";
    };
    const forward = () => {
      if (!page.el.isConnected || page.state()[key] >= max) return stop();
      page.change({ [key]: page.state()[key] + 1 });
    };
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (page.state()[key] >= max) page.change({ [key]: min });
      timer = setInterval(forward, every);
      paint();
    });
    step.addEventListener("click", () => {
      stop();
      forward();
    });
    back.addEventListener("click", () => {
      stop();
      page.change({ [key]: min });
    });
    paint();
    if (page.still && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
      const goal = page.state()[key],
        sight = new IntersectionObserver(
          (entries) => {
            if (!entries.some((e) => e.isIntersecting)) return;
            sight.disconnect();
            if (page.state()[key] !== goal || goal <= min || location.hash.includes("?")) return;
            let at = min;
            page.moving = true;
            const show = setInterval(() => {
                page.change({ [key]: at++ });
                if (at > goal || !page.el.isConnected) end();
              }, Math.min(every, 2500 / (goal - min + 1))),
              end = () => {
                if (!page.moving) return;
                clearInterval(show);
                page.change({ [key]: goal });
                page.moving = false;
              };
            for (const touch of ["pointerdown", "keydown", "input", "click", "focusin"])
              page.el.addEventListener(touch, end, { capture: true, once: true });
          },
          { threshold: 0.4 },
        );
      sight.observe(page.el);
    }
    inner.node.classList.add("pfl-player");
    inner.node.prepend(element("div", { class: "pfl-buttons" }, play, step, back));
    return inner;
  };
}
