// Start a deck: maths first, then reveal.js, so that every slide has its size when it is shown.
(async function () {
  "use strict";
  await window.MathJax.startup.promise;

  // Explorers wrap their panels as a page does: try some widths, take the one that reads largest.
  function fit(slide) {
    const frame = slide && slide.querySelector("iframe");
    const body = frame && frame.contentDocument && frame.contentDocument.body;
    const explorer = body && body.querySelector(".pfl-explorer");
    if (!explorer) return;
    explorer.style.maxWidth = "none";
    body.style.margin = "0 auto";
    function zoomAt(width) {
      body.style.zoom = 1;
      body.style.width = `${width}px`;
      const most = Math.min(frame.clientWidth / width, frame.clientHeight / body.scrollHeight);
      return Math.min(1.6, most);
    }
    const widths = [860, 920, 980, 1040, 1100, 1160, 1220, 1280, 1400, 1600];
    const best = widths.reduce((a, b) => (zoomAt(b) > zoomAt(a) * 1.02 ? b : a));
    body.style.zoom = zoomAt(best);
  }

  // Whoever has clicked into an explorer still turns the slides with the arrow keys, unless what they
  // clicked is moved by them itself.
  function listen(frame) {
    const keys = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp", "PageDown", "Escape"];
    frame.contentDocument.addEventListener("keydown", (event) => {
      const moves = event.target.closest("input, select, textarea, .pfl-handle");
      if ((moves && event.key.startsWith("Arrow")) || !keys.includes(event.key)) return;
      event.preventDefault();
      window.focus();
      if (event.key !== "Escape") Reveal.triggerKey(event.keyCode);
    });
  }
  for (const frame of document.querySelectorAll("iframe")) {
    if (frame.contentDocument && frame.contentDocument.readyState === "complete") listen(frame);
    else frame.addEventListener("load", () => listen(frame));
  }

  // A figure that is nearly as tall as wide has its words beside it, not below.
  function place(image) {
    const tall = image.naturalHeight > 0.6 * image.naturalWidth;
    image.closest("section").classList.toggle("tall", tall);
  }
  for (const image of document.querySelectorAll(".figure img")) {
    if (image.complete) place(image);
    image.addEventListener("load", () => place(image));
  }

  Reveal.on("ready", (event) => fit(event.currentSlide));
  Reveal.on("slidechanged", (event) => fit(event.currentSlide));
  Reveal.initialize({
    width: 1280,
    height: 720,
    margin: 0.04,
    center: false,
    hash: true,
    slideNumber: "c/t",
    transition: "none",
    plugins: [RevealNotes], // the letter S: notes, clock, next slide
  });
})();
