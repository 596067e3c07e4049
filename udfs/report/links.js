// The links of a large network, on a canvas behind cytoscape's, which would go through every style of every link
// for each frame. While the map moves the canvas moves with it; it is drawn anew in slices that leave time for
// frames. view: what the map shows at the moment. looks: how a link of each step is drawn, {width, colour}; a link that
// is down is dashed.
function linkCanvas(container, map, view, links, position, looks) {
  const SLICE_MS = 8, AT_ONCE = 100, NEAR = 6;
  const shown = make("canvas", { className: "map-links" }), next = make("canvas");
  const context = next.getContext("2d", { willReadFrequently: true });
  const ends = new Float64Array(4 * links.length);
  let steps = links.map(() => 0), order = links.map((_, at) => at), faint = false;
  // Zoom and pan that it was drawn for; whether it is being drawn, and has to be once more.
  let drawn = null, drawing = false, again = false;
  container.prepend(shown);

  const span = (length, from, to) => Math.max(from, to) >= 0 && Math.min(from, to) <= length;
  function line(at, { zoom, x, y }, look) {
    const [ux, uy, vx, vy] = [x + zoom * ends[4 * at], y + zoom * ends[4 * at + 1], x + zoom * ends[4 * at + 2], y + zoom * ends[4 * at + 3]];
    if (!span(next.width, ux, vx) || !span(next.height, uy, vy)) return;
    context.lineWidth = Math.max(0.5, zoom * look.width);
    context.strokeStyle = look.colour;
    context.setLineDash(links[at].up ? [] : [6 * zoom, 3 * zoom]);
    context.beginPath();
    context.moveTo(ux, uy);
    context.lineTo(vx, vy);
    context.stroke();
  }
  function begin() {
    [next.width, next.height] = [container.clientWidth, container.clientHeight];
    again = false;
    if (!next.width || !next.height) { drawing = false; return; }
    context.globalAlpha = faint ? 0.4 : 1;
    slice(0, { zoom: map.zoom(), ...map.pan() }, looks());
  }
  function slice(from, wanted, look) {
    const until = performance.now() + SLICE_MS;
    let at = from;
    do {
      for (const stop = Math.min(at + AT_ONCE, links.length); at < stop; at += 1) line(order[at], wanted, look[steps[order[at]]]);
      context.getImageData(0, 0, 1, 1);  // or all would be drawn at the end, at once
    } while (at < links.length && performance.now() < until);
    if (at < links.length) { requestAnimationFrame(() => slice(at, wanted, look)); return; }
    [shown.width, shown.height] = [next.width, next.height];
    shown.getContext("2d").drawImage(next, 0, 0);
    drawn = wanted;
    drawing = false;
    follow();
    if (again) draw();
  }
  function draw() {
    again = true;
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(begin);
  }
  function follow() {
    if (!drawn) return;
    const { zoom, x, y } = view(), factor = zoom / drawn.zoom;
    shown.style.transform = `translate(${x - factor * drawn.x}px, ${y - factor * drawn.y}px) scale(${factor})`;
  }
  function placed() {
    links.forEach(({ u, v }, at) => { const from = position(u), to = position(v); ends.set([from.x, from.y, to.x, to.y], 4 * at); });
    draw();
  }
  map.on("viewport", () => { follow(); draw(); });
  map.on("dragfree", "node", placed);

  return {
    placed, draw, follow, canvas: shown,
    // Those of most bytes are drawn last, on the others.
    weigh: (now) => { steps = now; order.sort((one, other) => steps[one] - steps[other]); draw(); },
    fade: (faded) => { if (faint !== faded) { faint = faded; draw(); } },
    // The number of the link at a place of the map, or -1.
    nearest: ({ x, y }) => {
      let found = -1, least = NEAR / map.zoom();
      for (let at = 0; at < links.length; at += 1) {
        const [ux, uy, vx, vy] = ends.subarray(4 * at, 4 * at + 4), [dx, dy] = [vx - ux, vy - uy];
        const along = Math.min(1, Math.max(0, ((x - ux) * dx + (y - uy) * dy) / (dx * dx + dy * dy || 1)));
        const apart = Math.hypot(ux + along * dx - x, uy + along * dy - y);
        if (apart < least) [found, least] = [at, apart];
      }
      return found;
    },
  };
}
