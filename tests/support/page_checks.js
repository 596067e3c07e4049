// Checks of a page; each returns a list of faults, which is empty for a correct page.

// Texts with too little contrast to their background, and the contrast (WCAG 2.2, 1.4.3).
function pale(least) {
  const light = (text) => {
    const [r, g, b] = text.match(/[\d.]+/g).map((part) => part / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (at) => {
    for (; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\)$|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("body *")]
    .filter((at) => at.offsetParent && !at.closest(".editor") && !at.disabled && [...at.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .map((at) => {
      const [one, other] = [light(getComputedStyle(at).color), light(behind(at))].sort((a, b) => b - a);
      return [at.innerText.slice(0, 40), Math.round((100 * (one + 0.05)) / (other + 0.05)) / 100];
    })
    .filter(([, contrast]) => contrast < least);
}

// Elements that exceed the page to the right, except those that scroll.
const outside = () => [...document.querySelectorAll("main *, header *")]
  .filter((at) => at.offsetParent && !at.closest(".scroll, .canvas, .hex, .editor, .unseen"))
  .filter((at) => at.getBoundingClientRect().right > innerWidth + 1).map((at) => at.id || at.className || at.tagName);

// The middle of an element, in coordinates of the window.
function middle(selector) {
  const box = document.querySelector(selector).getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}

// Words that are broken between two lines, except names without a blank that are too long for a line.
function broken(longest = 24) {
  const found = [];
  for (const at of document.querySelectorAll("main *, header *")) {
    if (!at.offsetParent || at.closest(".canvas, .editor, .unseen, .hex")) continue;
    for (const node of at.childNodes) {
      if (node.nodeType !== 3) continue;
      for (const word of node.data.matchAll(/[A-Za-z0-9_.:]+/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1 && word[0].length <= longest) found.push(word[0]);
      }
    }
  }
  return found;
}
