// Quizzes you can answer. Without this script a quiz is a list of questions, each followed by
// dropdowns: the choice is the title, the reason is inside. This turns each question into a group
// of buttons; pressing one shows its reason. The right choice is the one whose reason says "Yes".
// Choices are shuffled, always in the same way, so that authors' habits give nothing away.
(function () {
  "use strict";

  function element(tag, className, ...children) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...children);
    return made;
  }

  // [{asked: the bold paragraph, choices: [dropdown, ...]}, ...] in the order of the page
  function questionsOf(section) {
    const questions = [];
    for (const node of section.children) {
      const bold = node.matches("p") && node.firstElementChild?.matches("strong");
      if (bold && /^\d+\. /.test(node.textContent.trim())) {
        questions.push({ asked: node, choices: [] });
      } else if (node.matches("details.sd-dropdown") && questions.length) {
        questions.at(-1).choices.push(node);
      }
    }
    return questions.filter((question) => question.choices.length > 1);
  }

  // a number that looks random and is the same for the same words (FNV-1a)
  function hash(words) {
    let value = 2166136261;
    for (const letter of words) value = Math.imul(value ^ letter.codePointAt(0), 16777619);
    return value >>> 0;
  }

  function shuffled(question) {
    const asked = question.asked.textContent;
    const place = (dropdown) => hash(asked + dropdown.querySelector(".sd-summary-text").textContent);
    return [...question.choices].sort((a, b) => place(a) - place(b));
  }

  function build(question, number, tell) {
    const group = element("fieldset", "pfl-quiz");
    group.append(element("legend", "", ...question.asked.childNodes));
    let tries = 0;
    let solved = false;
    shuffled(question).forEach((dropdown, k) => {
      const body = dropdown.querySelector(".sd-summary-content");
      const right = body.textContent.trim().startsWith("Yes");
      const mark = element("span", "pfl-quiz-mark");
      const words = element("span", "", ...dropdown.querySelector(".sd-summary-text").childNodes);
      const button = element("button", "pfl-quiz-choice", mark, words);
      button.type = "button";
      // the reason must be in the page, empty, before it speaks: only then is it read aloud
      const reason = element("div", "pfl-quiz-reason");
      reason.id = `quiz-${number}-${k}`;
      reason.setAttribute("aria-live", "polite");
      button.setAttribute("aria-expanded", "false");
      button.setAttribute("aria-controls", reason.id);
      button.addEventListener("click", () => {
        const open = button.getAttribute("aria-expanded") === "true";
        button.setAttribute("aria-expanded", String(!open));
        if (open) {
          reason.replaceChildren();
          return;
        }
        reason.replaceChildren(...body.childNodes);
        // hand the reason back for the next time, once it has been shown
        body.replaceChildren(...[...reason.childNodes].map((node) => node.cloneNode(true)));
        if (!button.dataset.verdict) {
          tries += 1;
          button.dataset.verdict = right ? "right" : "wrong";
          mark.textContent = right ? "✓" : "✗";
          mark.setAttribute("role", "img");
          mark.setAttribute("aria-label", right ? "right:" : "not right:");
          if (right && !solved) {
            solved = true;
            tell(tries === 1);
          }
        }
      });
      group.append(button, reason);
      dropdown.remove();
    });
    question.asked.replaceWith(group);
  }

  function start(section) {
    const questions = questionsOf(section);
    if (!questions.length) return;
    const score = element("p", "pfl-quiz-score");
    score.setAttribute("aria-live", "polite");
    let answered = 0;
    let atOnce = 0;
    const tell = (first) => {
      answered += 1;
      atOnce += first ? 1 : 0;
      score.textContent =
        `Found ${answered} of ${questions.length}, ${atOnce} of them at the first try.`;
    };
    questions.forEach((question, k) => build(question, k + 1, tell));
    section.append(score);
  }

  document.querySelectorAll("section#quiz").forEach(start);
})();
