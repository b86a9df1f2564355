/* The search page: the teaching first, Greek letters by their names, questions without their frame.
   Loaded after Sphinx's searchtools.js, whose parts it replaces. */
(function () {
  "use strict";

  const GREEK = {
    α: "alpha", β: "beta", γ: "gamma", δ: "delta", ε: "epsilon", ζ: "zeta", η: "eta", θ: "theta",
    κ: "kappa", λ: "lambda", μ: "mu", ξ: "xi", π: "pi", ρ: "rho", σ: "sigma", τ: "tau", φ: "phi",
    χ: "chi", ψ: "psi", ω: "omega",
  };
  const FRAME = new Set(
    ("how what why when where which who do does did can could should would is are was i me my we you " +
      "a an the to of in on for with and or there it its").split(" "),
  );
  const CHROME = ".headerlink, script, style, nav, button, summary, .pfl-explorer, .tag_hide-cell, .tag_remove-cell";

  // A page's place in the book. What a page is about still decides (its title counts 15); among pages
  // that merely mention a word, those that explain it come first.
  const PLACES = [
    [/^book\/(notation|glossary)$/, 9],
    [/^notebooks\/play$/, 6],
    [/^notebooks\/(\d\d[a-z]?_|network$|own_clients$)/, 7],
    [/^notebooks\/explorers$/, 4],
    [/^book\/(run|cite)$/, 8],
    [/^book\/(intro|about)$/, 4],
    [/^notebooks\/reference\//, 1],
    [/^notebooks\/results$/, 1],
    [/^book\/api\//, -10],
    [/^book\/errata$/, -6],
    [/^notebooks\/experiments\//, -3],
    [/^(genindex|py-modindex|prf-prf)$/, -9],
  ];
  // Words that many pages use: the one that explains it is asked for.
  const HOMES = {
    tau: "notebooks/06_heurfedamp",
    delta: "notebooks/07_fedacs",
    xi: "notebooks/04_fedamp",
    batchnorm: "notebooks/reference/fedbn",
  };
  let home = null;
  Scorer.score = ([docname, title, anchor, , score]) => {
    const place = PLACES.find(([pattern]) => pattern.test(docname)),
      chapter = /^notebooks\/(\d\d)_/.exec(docname);
    return (
      score +
      (place ? place[1] : 0) +
      (docname === home ? 1 : 0) +
      (anchor && !/^book\/(notation|glossary)$/.test(docname) ? -2 : 0) + // the page before its sections
      (chapter ? (30 - Number(chapter[1])) / 100 : 0)
    );
  };

  // ξ in the text and "xi" in a formula are one word.
  function spelled(index) {
    for (const [letter, name] of Object.entries(GREEK))
      for (const terms of [index.terms, index.titleterms]) {
        if (terms[letter] === undefined) continue;
        const pages = [terms[name] ?? [], terms[letter]].flat();
        terms[name] = [...new Set(pages)].sort((a, b) => a - b);
      }
    return index;
  }
  const setIndex = Search.setIndex;
  Search.setIndex = (index) => setIndex(spelled(index));
  if (Search.hasIndex()) spelled(Search._index);

  const parse = Search._parseQuery;
  Search._parseQuery = (query) => {
    const words = query.replace(/[α-ω]/g, (letter) => ` ${GREEK[letter] ?? letter} `).trim().split(/\s+/);
    const kept = words.filter((word) => !FRAME.has(word.toLowerCase().replace(/[?!.,]/g, "")));
    home = HOMES[kept.join(" ").toLowerCase()] ?? null;
    return parse((kept.length ? kept : words).join(" "));
  };

  const toText = Search.htmlToText;
  Search.htmlToText = (text, anchor) => {
    const page = new DOMParser().parseFromString(text, "text/html"),
      article = page.querySelector("article.bd-article");
    if (!article) return toText(text, anchor);
    article.querySelectorAll(CHROME).forEach((node) => node.remove());
    const part = anchor && article.querySelector(`[id="${CSS.escape(anchor.slice(1))}"]`);
    return (part || article).textContent;
  };
})();
