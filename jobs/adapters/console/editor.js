// A text area for rules: the grammar's colours behind it, and completion of what may stand there.
const language = {
  words: ["and", "or", "not", "in", "between", "all", "fwd"],
  functions: ["avg", "sum", "count", "min", "max", "changed", "moved"],
  part: /(#[^\n]*)|("[^"\n]*"?|'[^'\n]*'?)|(\d[\d.:]*(?:us|ms|s|min|h)?(?![\w.]))|((?:\*\.)?[A-Za-z_][\w.]*)|([=<>!≠≤≥]+|[&|^∧∨¬]+)/g,
};
// A rule as parts, each with what it is.
function coloured(text) {
  const known = new Set(data.fields.flatMap((name) => [name, name.slice(name.lastIndexOf(".") + 1)])), hosts = new Set(data.hosts);
  const made = [];
  let at = 0;
  for (const found of text.matchAll(language.part)) {
    const [whole, comment, quoted, digits, word] = found;
    made.push(text.slice(at, found.index));
    const low = word?.toLowerCase();
    const kind = comment ? "comment" : quoted ? "constant" : digits ? "number" : !word ? "operator"
      : language.words.includes(low) ? "word" : language.functions.includes(low) && /^\s*\(/.test(text.slice(found.index + whole.length)) ? "function"
        : known.has(word.replace(/^\*\./, "")) ? "field" : hosts.has(word) ? "host" : "constant";
    made.push(make("span", { className: `is-${kind}`, text: whole }));
    at = found.index + whole.length;
  }
  return [...made, text.slice(at), "\n"];
}
// area: a textarea in an element of class "editor", with a <pre> before it and a list after it.
function ruleEditor(area, changed) {
  const [behind, , offered] = area.parentElement.children;
  let choices = [], chosen = 0;
  const paint = () => { behind.replaceChildren(...coloured(area.value)); behind.scrollTop = area.scrollTop; };
  function wordBefore() {
    const before = area.value.slice(0, area.selectionStart);
    return /[A-Za-z_][\w.]*$/.exec(before)?.[0] ?? "";
  }
  function offer() {
    const word = wordBefore(), low = word.toLowerCase(), before = area.value.slice(0, area.selectionStart - word.length);
    const compared = /(?:[=<>!≠≤≥]\s*|\bin\s*\{[^}]*)["']?$/i.test(before), forwarded = /fwd\s*\([^)]*$/.test(before);
    // A field is mostly called without its message.
    const short = data.fields.map((name) => name.slice(name.lastIndexOf(".") + 1));
    const all = new Set(forwarded ? data.hosts : compared ? data.symbols : [...short, ...language.functions, ...language.words, ...data.fields]);
    choices = word ? [...all].filter((name) => name !== word && name.toLowerCase().startsWith(low)).slice(0, 8) : [];
    chosen = 0;
    show();
  }
  function show() {
    offered.hidden = !choices.length;
    area.setAttribute("aria-expanded", String(choices.length > 0));
    offered.replaceChildren(...choices.map((text, at) => make("li", { role: "option", id: `offer-${at}`, "aria-selected": String(at === chosen), text,
      on: { mousedown: (event) => { event.preventDefault(); take(at); } } })));
    if (choices.length) area.setAttribute("aria-activedescendant", `offer-${chosen}`); else area.removeAttribute("aria-activedescendant");
  }
  function take(at) {
    const end = area.selectionStart;
    area.setRangeText(choices[at], end - wordBefore().length, end, "end");
    choices = [];
    show();
    paint();
    changed();
  }
  area.addEventListener("input", () => { paint(); offer(); });
  area.addEventListener("scroll", () => { behind.scrollTop = area.scrollTop; });
  area.addEventListener("blur", () => { choices = []; show(); });
  area.addEventListener("keydown", (event) => {
    if (!choices.length) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { chosen = (chosen + step + choices.length) % choices.length; show(); }
    else if (event.key === "Tab" || event.key === "Enter") take(chosen);
    else if (event.key === "Escape") { choices = []; show(); }
    else return;
    event.preventDefault();
  });
  new ResizeObserver(() => { behind.style.height = `${area.offsetHeight}px`; }).observe(area);
  return paint;
}
