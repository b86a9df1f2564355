// Start a deck: maths first, then reveal.js, so that every slide has its size when it is shown.
(async function () {
  "use strict";
  await window.MathJax.startup.promise;

  // Explorers are as tall as they like: show them as large as the slide allows.
  function fit(slide) {
    const frame = slide && slide.querySelector("iframe");
    const body = frame && frame.contentDocument && frame.contentDocument.body;
    if (!body) return;
    body.style.margin = "0 auto";
    body.style.width = "fit-content";
    body.style.zoom = 1;
    body.style.zoom = Math.min(1.25, frame.clientHeight / body.scrollHeight);
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
  });
})();
