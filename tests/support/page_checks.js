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
