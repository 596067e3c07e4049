"use strict";
// What the pages of all reports share: making elements, numbers, bars, and the map of a network.
// Every text of a user reaches a page through textContent or a canvas label, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const { className, text, style, on, ...attributes } = properties;
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(style ?? {})) node.style.setProperty(name, value);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const [event, handler] of Object.entries(on ?? {})) node.addEventListener(event, handler);
  node.append(...children);
  return node;
}

// --- numbers -----------------------------------------------------------------------------------
function number(value) {
  if (typeof value !== "number") return value === undefined || value === null ? "" : String(value);
  return value.toLocaleString("en-US", { maximumFractionDigits: Number.isInteger(value) ? 0 : 2 });
}
const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${value.toFixed(unit ? 2 : 0)} ${units[unit]}`;
}
const percent = (share) => `${(100 * share).toFixed(2)} %`;
const naturally = new Intl.Collator("en", { numeric: true }).compare;

// One of the numbers at the top of a page.
const figure = (value, words, bad = false) =>
  make("div", bad ? { className: "bad" } : {}, make("b", { text: value }), make("span", { text: words }));

// A bar of a length from 0 to 1 (none: only the words), with its name before and words behind it.
function bar(name, share, words, note = "", kind = "") {
  return make("div", { className: `bar ${kind}` },
    make("b", { text: name }), make("span", { text: words }),
    ...(share === undefined ? [] : [make("i", { style: { width: `${100 * share}%` } })]),
    ...(note ? [make("small", { className: "note", text: note })] : []));
}

// "#rrggbb" or "#rgb" to three numbers, and so far from one colour to another.
function rgb(text) {
  const digits = text.length === 4 ? [...text.slice(1)].map((digit) => digit + digit) : text.slice(1).match(/../g);
  return digits.map((pair) => parseInt(pair, 16));
}
const mixed = (from, to, share) => `rgb(${from.map((value, at) => Math.round(value + share * (to[at] - value))).join(",")})`;

// --- the map -----------------------------------------------------------------------------------
// nodes: {id, kind, layer, x, y}, kind is switch, host or publisher, x and y from 0 to 1. links:
// {u, v, up}, each once. The wheel zooms with Ctrl alone, fingers with two of them, or nobody could scroll past the map.
function networkMap(container, nodes, links) {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const switches = nodes.filter((node) => node.kind === "switch");
  // In rows names fit into the nodes; else they stand below them.
  const layered = switches.length > 0 && switches.every((node) => node.layer);

  function style() {
    const label = { label: "data(label)", color: colour("ink"), "font-size": 11.5, "font-family": "system-ui, sans-serif", "text-valign": "center", "text-wrap": "wrap", "min-zoomed-font-size": 5 };
    const node = { ...label, "background-color": colour("node"), "border-color": colour("node-line"), "border-width": 1.5 };
    return [
      { selector: "node", style: node },
      { selector: "node.switch", style: { shape: "round-rectangle", width: 56, height: 36 } },
      { selector: "node.host", style: { shape: "ellipse", width: 32, height: 32, "background-color": colour("panel") } },
      { selector: "node.publisher", style: { shape: "round-rectangle", "corner-radius": 15, width: 44, height: 30, "background-color": colour("panel"), "border-color": colour("publisher"), "border-width": 2.5, color: colour("publisher") } },
      { selector: "node.outside", style: { "text-valign": "bottom", "text-margin-y": 3 } },
      { selector: "node.switch.outside", style: { width: 18, height: 18 } },
      { selector: "node.host.outside", style: { width: 11, height: 11, "font-size": 9 } },
      { selector: "node.publisher.outside", style: { width: 22, height: 14 } },
      { selector: "edge", style: { width: 1.3, "line-color": colour("edge"), "curve-style": "straight", "arrow-scale": 1.05 } },
      { selector: "edge.weighed", style: { width: "data(width)", "line-color": "data(colour)" } },
      { selector: "edge.down", style: { "line-style": "dashed" } },
      { selector: ".faded", style: { opacity: 0.4 } },
      { selector: "node.lit", style: { "border-color": colour("way"), "border-width": 2.5 } },
      { selector: "node.publisher.lit", style: { "border-color": colour("publisher"), "border-width": 3.5 } },
      { selector: "edge.lit", style: { width: 3.2, "line-color": colour("way"), "target-arrow-color": colour("way"), "source-arrow-color": colour("way"), "z-index": 9 } },
      { selector: "edge.pruned", style: { width: 2.4, "line-color": colour("stop"), "line-style": "dashed", "z-index": 8 } },
      { selector: "edge.forward", style: { "target-arrow-shape": "triangle" } },
      { selector: "edge.backward", style: { "source-arrow-shape": "triangle" } },
      { selector: "node.receiver", style: { "background-color": colour("receiver"), "border-color": colour("receiver"), color: colour("panel"), "font-weight": "bold" } },
      { selector: "node.outside.receiver", style: { color: colour("receiver") } },
      { selector: "edge.marked", style: { width: 6, "z-index": 10 } },
      { selector: "edge.marked.stop", style: { label: "\u2715", "font-size": 26, "font-weight": "bold", color: colour("stop"), "line-color": colour("stop"), "min-zoomed-font-size": 0 } },
      { selector: "node.target", style: { "border-color": colour("accent"), "border-width": 4 } },
      { selector: "edge.target", style: { "line-color": colour("accent"), "overlay-color": colour("accent"), "overlay-opacity": 0.25, "overlay-padding": 5 } },
      { selector: "node.copy", style: { shape: "ellipse", width: 20, height: 20, "background-color": colour("way"), "border-width": 0, color: colour("panel"), "font-size": 11, "font-weight": "bold", "min-zoomed-font-size": 0, "z-index": 20, events: "no" } },
    ];
  }

  const joined = (u, v) => `${u}\u0000${v}`;
  const nodeIds = new Map(nodes.map((node, place) => [node.id, `n${place}`]));
  const edgeIds = new Map();
  // Links of a large network are on a canvas of their own; cytoscape has those that stand out, while they do.
  const large = nodes.length + links.length > 1500;
  const elements = nodes.map((node) => ({
    group: "nodes", classes: node.kind + (layered ? "" : " outside"),
    data: { id: nodeIds.get(node.id), name: node.id, label: layered ? node.id.replaceAll("-", "\n") : node.id },
  }));
  const edges = links.map(({ u, v, up }, place) => {
    edgeIds.set(joined(u, v), `e${place}`);
    return { group: "edges", classes: up ? "" : "down", data: { id: `e${place}`, source: nodeIds.get(u), target: nodeIds.get(v) } };
  });
  if (!large) elements.push(...edges);
  container.addEventListener("wheel", (event) => { if (!event.ctrlKey) event.stopImmediatePropagation(); }, { capture: true });
  // A finger scrolls past it, too; two of them zoom and move it.
  container.addEventListener("touchmove", (event) => { if (event.touches.length < 2) event.stopImmediatePropagation(); }, { capture: true });
  const drawn = cytoscape({
    container, elements, style: style(), layout: { name: "preset" }, minZoom: 0.005, maxZoom: 3, boxSelectionEnabled: false,
    autounselectify: true, textureOnViewport: large, ...(large && { pixelRatio: 1 }),
  });
  let apart = null;
  if (large) {
    const view = movedAsPicture(container, drawn, () => apart?.follow());
    apart = linkCanvas(container, drawn, view, links, (id) => drawn.getElementById(nodeIds.get(id)).position(), looks);
  }
  const middle = () => ({ x: container.clientWidth / 2, y: container.clientHeight / 2 });
  const zoom = (factor) => drawn.zoom({ level: drawn.zoom() * factor, renderedPosition: middle() });
  container.parentElement.append(make("div", { className: "zoom" }, ...[
    ["+", "Zoom in", () => zoom(1.4)], ["\u2212", "Zoom out", () => zoom(1 / 1.4)], ["\u2922", "Show the whole map", () => place()],
  ].map(([text, title, click]) => make("button", { type: "button", text, title: `${title} (Ctrl + mouse wheel also zooms)`, "aria-label": title, on: { click } }))));

  // Wide enough for all hosts in a row, in the container's proportions; or a square for all nodes.
  const hosts = nodes.length - switches.length;
  function place() {
    let wide = Math.max(320, container.clientWidth - 60), high = Math.max(260, container.clientHeight - 60);
    const zoom = Math.max(1, 50 * hosts / wide);
    [wide, high] = [wide * zoom, high * zoom];
    if (!layered) wide = high = Math.max(Math.min(wide, high), 60 * Math.sqrt(nodes.length));
    nodes.forEach(({ id, x, y }) => drawn.getElementById(nodeIds.get(id)).position({ x: x * wide, y: y * high }));
    drawn.fit(undefined, layered ? 16 : 24);
    apart?.placed();
  }
  place();
  if (!nodes.length) container.replaceChildren(make("p", { className: "note", text: "There is no network to draw." }));
  let size = null;
  new ResizeObserver(() => {
    const before = size;
    size = `${container.clientWidth} ${container.clientHeight}`;
    if (before === null || before === size) return;
    drawn.resize();
    place();
  }).observe(container);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { steps = steps.map(() => -1); drawn.style(style()); weigh(weighed); });

  function edgeOf(u, v) {
    const id = edgeIds.get(joined(u, v)) ?? edgeIds.get(joined(v, u)) ?? "", found = drawn.getElementById(id);
    return large && id && found.empty() ? drawn.add(edges[Number(id.slice(1))]) : found;
  }
  const tidy = () => { if (large) drawn.edges().not(".lit, .pruned, .marked, .target").remove(); };
  // ways: [u, v] of each link, as it is flown through if arrows are wanted. stops: links that are
  // not. receivers, targets: ids.
  function light({ ways = [], arrows = true, receivers = [], targets = [], stops = [] }) {
    drawn.batch(() => {
      drawn.elements().removeClass("lit forward backward receiver target faded pruned marked hop stop");
      tidy();
      apart?.fade(ways.length + receivers.length + targets.length > 0);
      if (!ways.length && !receivers.length && !targets.length) return;
      drawn.elements().addClass("faded");
      const show = (id, classes) => nodeIds.has(id) && drawn.getElementById(nodeIds.get(id)).removeClass("faded").addClass(classes);
      for (const [u, v] of ways) {
        const forward = edgeIds.has(joined(u, v)), edge = edgeOf(u, v);
        edge.removeClass("faded").addClass("lit");
        if (arrows) edge.addClass(forward ? "forward" : "backward");
        show(u, "lit");
        show(v, "lit");
      }
      for (const [u, v] of stops) edgeOf(u, v).removeClass("faded").addClass("pruned");
      for (const id of receivers) show(id, "receiver");
      for (const id of targets) show(id, "target");
    });
  }

  // Of each link a share from 0 to 1, in their order: how thick and warm it is; none: as they were. In steps, and
  // only those are drawn anew that are of another step, as news of ten thousand links come every two seconds.
  const STEPS = 24;
  let steps = links.map(() => -1), weighed = null;
  function looks() {
    const cold = rgb(colour("edge")), warm = rgb(colour("warm")), hot = rgb(colour("hot"));
    return Array.from({ length: STEPS + 1 }, (_, step) => {
      const share = step / STEPS;
      return { width: 1.3 + 9 * share, colour: share < 0.5 ? mixed(cold, warm, 2 * share) : mixed(warm, hot, 2 * share - 1) };
    });
  }
  function weigh(shares) {
    weighed = shares;
    if (large) { apart.weigh(links.map((_, at) => Math.ceil(STEPS * (shares?.[at] ?? 0)))); return; }
    const wide = looks();
    const now = links.map((_, at) => (shares ? Math.ceil(STEPS * (shares[at] ?? 0)) : -1));
    drawn.batch(() => now.forEach((step, at) => {
      if (step === steps[at]) return;
      const edge = drawn.getElementById(`e${at}`);
      if (step < 0) edge.removeClass("weighed"); else edge.data(wide[step]);
      if (step >= 0 && steps[at] < 0) edge.addClass("weighed");
    }));
    steps = now;
  }

  // Copies of a notification go from node to node, all of one distance together. steps: lists of
  // [u, v, text], the text is on the copy. told: is called with the number of each step before it.
  let travels = 0;
  async function travel(steps, told) {
    const mine = ++travels, milliseconds = 900;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    drawn.nodes(".copy").remove();
    for (const [at, step] of steps.entries()) {
      told(at);
      const copies = step.map(([u, v, text]) => {
        const from = drawn.getElementById(nodeIds.get(u)).position(), to = drawn.getElementById(nodeIds.get(v)).position();
        const copy = drawn.add({ group: "nodes", classes: "copy", grabbable: false, data: { label: text }, position: { ...(still ? to : from) } });
        if (!still) copy.animate({ position: { ...to } }, { duration: milliseconds });
        return copy;
      });
      await new Promise((done) => { setTimeout(done, milliseconds + 150); });
      copies.forEach((copy) => copy.remove());
      if (mine !== travels) return;
    }
    told(steps.length);
  }

  return {
    light, weigh, travel,
    halt: () => { travels += 1; drawn.nodes(".copy").remove(); },
    png: async () => {
      if (!large) return drawn.png({ bg: colour("panel"), scale: 2 });
      const image = new Image(), canvas = make("canvas", { width: container.clientWidth, height: container.clientHeight });
      image.src = drawn.png();
      await image.decode();
      const context = canvas.getContext("2d");
      context.fillStyle = colour("panel");
      context.fillRect(0, 0, canvas.width, canvas.height);
      for (const layer of [apart.canvas, image]) context.drawImage(layer, 0, 0);
      return canvas.toDataURL("image/png");
    },
    // What is tapped: {kind, id} of a node, {kind: "link", id: [u, v]}, or nothing.
    onChoice: (handler) => drawn.on("tap", (event) => {
      const of = event.target, near = of === drawn ? (apart?.nearest(event.position) ?? -1) : -1;
      if (of === drawn) handler(near < 0 ? null : { kind: "link", id: [links[near].u, links[near].v] });
      else if (of.isNode()) handler({ kind: of.hasClass("switch") ? "switch" : "host", id: of.data("name") });
      else { const { u, v } = links[Number(of.id().slice(1))]; handler({ kind: "link", id: [u, v] }); }
    }),
    choose: (choice) => {
      drawn.elements().removeClass("target");
      tidy();
      if (choice) (choice.kind === "link" ? edgeOf(...choice.id) : drawn.getElementById(nodeIds.get(choice.id) ?? "")).addClass("target");
    },
    size: { nodes: nodes.length, links: links.length },
    // Where something stands, in the container: for who drives the page.
    at: (choice) => {
      const [from, to] = (choice.kind === "link" ? choice.id : [choice.id, choice.id]).map((id) => drawn.getElementById(nodeIds.get(id)).renderedPosition());
      return { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    },
    // A link stands out, and is crossed out where its kind is stop.
    mark: ([u, v], kind, marked) => { edgeOf(u, v)[marked ? "addClass" : "removeClass"](`marked ${kind}`); tidy(); },
    // The counts in words, as the log of a run has them.
    words: [
      plural(switches.length, "switch", "switches"),
      plural(nodes.filter((node) => node.kind === "host").length, "subscriber"),
      plural(nodes.filter((node) => node.kind === "publisher").length, "publisher"),
      plural(links.length, "link"),
    ].join(", "),
    onHost: (handler) => drawn.on("tap", "node.host", (event) => handler(event.target.data("name"))),
    onGround: (handler) => drawn.on("tap", (event) => { if (event.target === drawn) handler(); }),
  };
}
