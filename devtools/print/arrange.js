// Turn the one long page of the book into a book for paper: title, contents, chapters, and at the
// end what a reader should not see at once: answers, solutions, reasons. Run by devtools/pdf.py.
({ title, author, version, parts }) => {
  const make = (tag, className, ...children) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...children);
    return made;
  };
  const article = document.querySelector("article");
  document.body.replaceChildren(article);
  document.documentElement.dataset.theme = "light";
  const unwanted = "script:not([type=module]), .headerlink, button.copybtn, .toggle-button, details.hide";
  article.querySelectorAll(unwanted).forEach((e) => e.remove()); // folded code stays folded

  // ---- chapters: the section after each document's mark
  const chapters = [...article.querySelectorAll("span[id^='document-']")].map((mark) => {
    const section = mark.nextElementSibling;
    section.classList.add("chapter");
    section.prepend(mark); // on the page on which the chapter begins
    return { page: mark.id.slice("document-".length), mark, section };
  });
  const nameOf = (section) => section.querySelector("h1, h2, h3").textContent.trim();

  // ---- what goes to the end
  const answers = appendix("predict", "Answers to “Predict first”");
  const solutions = appendix("solutions", "Solutions to the exercises");
  const reasons = appendix("quizzes", "The quizzes, with reasons");
  function appendix(id, words) {
    const mark = make("span");
    mark.id = `document-appendix/${id}`;
    return { mark, section: make("section", "chapter", mark, make("h2", "", words)) };
  }
  for (const { section } of chapters) {
    const heading = () => make("h3", "", nameOf(section));
    const box = [...section.querySelectorAll(".admonition")].find((e) =>
      e.querySelector(".admonition-title")?.textContent.includes("Predict first"),
    );
    const answer = box && box.nextElementSibling;
    if (answer && answer.matches("details")) {
      answers.section.append(heading(), ...answer.querySelector(".sd-summary-content").childNodes);
      answer.remove();
    }
    const solved = [...section.querySelectorAll("div.solution")];
    if (solved.length) solutions.section.append(heading(), ...solved);
    const quiz = section.querySelector(":scope > section#quiz");
    if (!quiz) continue;
    reasons.section.append(heading());
    let choices;
    for (const node of [...quiz.children]) {
      if (node.matches("p")) {
        choices = make("ol", "choices");
        node.after(choices);
        reasons.section.append(node.cloneNode(true), make("ol", "choices"));
      } else if (node.matches("details")) {
        const choice = make("li", "", ...node.querySelector(".sd-summary-text").childNodes);
        choices.append(choice);
        const said = choice.cloneNode(true);
        said.append(make("br"), ...node.querySelector(".sd-summary-content p").childNodes);
        reasons.section.lastElementChild.append(said);
        node.remove();
      }
    }
  }
  const ends = [answers, solutions, reasons];
  for (const { section } of ends) article.append(section);
  article.querySelectorAll("details").forEach((e) => (e.open = true));
  for (const folded of article.querySelectorAll(".dropdown")) {
    folded.classList.remove("dropdown", "toggle", "toggle-hidden");
  }

  // ---- contents; the page numbers come later, when the pages are known
  const entry = (mark, words) => {
    const link = make("a", "", make("span", "words", words), make("span", "page"));
    link.href = `#${mark.id}`;
    return make("li", "", link);
  };
  const contents = make("nav", "book-contents", make("h1", "", "Contents"));
  const byPage = Object.fromEntries(chapters.map((c) => [c.page, c]));
  for (const { caption, pages } of parts) {
    const list = make("ul");
    for (const page of pages) {
      if (byPage[page]) list.append(entry(byPage[page].mark, nameOf(byPage[page].section)));
    }
    contents.append(make("p", "part", caption), list);
  }
  const last = make("ul");
  for (const { mark, section } of ends) last.append(entry(mark, nameOf(section)));
  contents.append(make("p", "part", "At the end"), last);
  const front = make("header", "front", make("p", "name", title), make("p", "", author));
  front.append(make("p", "", `Version ${version}`));
  article.firstElementChild.classList.add("chapter"); // the welcome
  article.prepend(front, contents);
  return chapters.length + ends.length;
};
