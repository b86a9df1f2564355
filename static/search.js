/* The search page: the teaching first, Greek letters by their names, questions without their frame.
   Loaded after Sphinx's searchtools.js, whose parts it replaces. */
(function () {
  "use strict";

  const GREEK = {
    α: "alpha", β: "beta", γ: "gamma", δ: "delta", ε: "epsilon", ζ: "zeta", η: "eta", θ: "theta",
    κ: "kappa", λ: "lambda", μ: "mu", ξ: "xi", π: "pi", ρ: "rho", σ: "sigma", τ: "tau", φ: "phi",
    χ: "chi", ψ: "psi", ω: "omega",
  };
  const LETTERS = Object.fromEntries(Object.entries(GREEK).map(([letter, name]) => [name, letter]));
  const FRAME = new Set(
    ("how what why when where which who do does did can could should would is are was i me my we you " +
      "a an the to of in on for with and or there it its").split(" "),
  );
  const CHROME = ".headerlink, script, noscript, style, nav, button, summary, .pfl-explorer, .tag_hide-cell, .tag_remove-cell";

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
  // Words that many pages use: the one that explains it is asked for. A letter is explained by the notation.
  const HOMES = {
    ...Object.fromEntries(Object.values(GREEK).map((name) => [name, "book/notation"])),
    batchnorm: "notebooks/reference/fedbn",
    straggler: "notebooks/09_plga",
    stragglers: "notebooks/09_plga",
    method: "notebooks/13_which", // "which method": the rest is frame
    newcomer: "notebooks/own_clients",
    newcomers: "notebooks/own_clients",
    liars: "notebooks/12b_trust",
    "differential privacy": "notebooks/12c_guarantees",
    "own data": "notebooks/own_clients",
  };
  // ... and then by the chapter where it is at home.
  const CHAPTERS = {
    sigma: "notebooks/04_fedamp",
    xi: "notebooks/04_fedamp",
    alpha: "notebooks/04_fedamp",
    tau: "notebooks/06_heurfedamp",
    delta: "notebooks/07_fedacs",
    "non-iid": "notebooks/02_data",
    prox: "notebooks/reference/fedprox",
    newcomer: "notebooks/13_which",
    newcomers: "notebooks/13_which",
  };
  // What the field calls what the book calls otherwise.
  const ALIASES = { dp: "differential privacy", byzantine: "liars" };
  let home = null,
    chapterOf = null,
    asked = [];
  Scorer.score = ([docname, title, anchor, , score]) => {
    const place = PLACES.find(([pattern]) => pattern.test(docname)),
      chapter = /^notebooks\/(\d\d)_/.exec(docname);
    return (
      score +
      (place ? place[1] : 0) +
      (docname === home ? 20 : 0) +
      (docname === chapterOf ? 8 : 0) +
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
    const plain = query.replace(/[α-ω]/g, (letter) => ` ${GREEK[letter] ?? letter} `),
      named = plain.replace(/[\w-]+/g, (word) => ALIASES[word.toLowerCase()] ?? word),
      words = named.trim().split(/\s+/);
    const kept = words.filter((word) => !FRAME.has(word.toLowerCase().replace(/[?!.,]/g, "")));
    asked = kept.map((word) => word.toLowerCase());
    home = HOMES[asked.join(" ")] ?? null;
    chapterOf = CHAPTERS[asked.join(" ")] ?? null;
    return parse((kept.length ? kept : words).join(" "));
  };

  // The text that an excerpt is cut from: without chrome, formulas as far as letters can write them,
  // and without code, unless the word is nowhere else.
  const readable = (text) =>
    text
      .replace(/\\([a-zA-Z]+)/g, (_, name) => LETTERS[name] ?? LETTERS[name.toLowerCase()]?.toUpperCase() ?? " ")
      .replace(/\\[^a-zA-Z]|[{}$]/g, "")
      .replace(/\s+/g, " ");
  const toText = Search.htmlToText;
  Search.htmlToText = (text, anchor) => {
    const page = new DOMParser().parseFromString(text, "text/html"),
      article = page.querySelector("article.bd-article");
    if (!article) return toText(text, anchor);
    article.querySelectorAll(CHROME).forEach((node) => node.remove());
    const part = (anchor && article.querySelector(`[id="${CSS.escape(anchor.slice(1))}"]`)) || article,
      prose = part.cloneNode(true);
    prose.querySelectorAll(".cell_input, .highlight, h1").forEach((node) => node.remove());
    const words = readable(prose.textContent),
      low = words.toLowerCase(),
      letters = asked.map((word) => LETTERS[word] ?? word);
    return [...asked, ...letters].some((word) => low.includes(word)) ? words : readable(part.textContent);
  };
  // A letter that was asked for by name is found in the text as the letter.
  const summary = Search.makeSearchSummary;
  Search.makeSearchSummary = (text, keywords, anchor) =>
    summary(text, [...keywords, ...[...keywords].map((word) => LETTERS[word] ?? word)], anchor);
})();
