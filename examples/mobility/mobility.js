// The page of the mobility use case: states and their replicas, the city, and staleness.
(() => {
  const { summary, found, runsOn, ways } = data;
  byId("verdict").textContent = data.verdict.sentence;
  byId("verdict").classList.toggle("bad", !data.verdict.exact);
  byId("when").textContent = `${data.run.began.replace("T", " ").replace("+00:00", " UTC")}, version ${data.run.version}`;
  const ms = (value) => `${number(Math.round(value * 10) / 10)} ms`;
  byId("headline").append(
    figure(number(summary.replicas), "replicas"),
    figure(number(summary.replicas_wrong), "wrong replicas", summary.replicas_wrong),
    figure(number(summary.updates), "updates published"),
    figure(number(summary.movements), "movements"),
    figure(number(summary.movements_missing + summary.movements_extra + summary.movements_wrong), "wrong movements", summary.movements_missing + summary.movements_extra + summary.movements_wrong),
    figure(ms(summary.p50_ms), "median latency from publication to replica"),
    figure(ms(summary.p99_ms), "99th percentile of the latency"),
    figure(ms(summary.worst_staleness_ms), "stalest replica"),
    figure(bytes(summary.link_bytes), "on links"),
    figure(number(summary.seconds), "seconds"));
  const settings = [["start", data.run.began], ["version", data.run.version], ["network", data.run.network], ...Object.entries(data.run.settings), ...Object.entries(summary.drops).map(([why, count]) => [`dropped: ${why}`, number(count)])];
  byId("run").append(...settings.flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: String(value) })]));

  // --- states on the map -----------------------------------------------------------------------
  const map = networkMap(byId("map"), data.nodes, data.links);
  const carried = data.links.map(({ u, v }) => (data.linkBytes[`${u}->${v}`] ?? 0) + (data.linkBytes[`${v}->${u}`] ?? 0));
  const busiest = Math.max(1, ...carried);
  const buttons = new Map();
  function choose(state) {
    for (const [edge, button] of buttons) button.setAttribute("aria-pressed", String(edge === state?.edge));
    map.weigh(state ? null : carried.map((size) => size / busiest));
    if (!state) {
      map.light({});
      byId("detail").replaceChildren(make("p", { className: "note", text: `The width of a link is the number of bytes that it carried for all states, including registrations and acknowledgements: at most ${bytes(busiest)}.` }));
      return;
    }
    map.light({ ways: ways[state.edge], receivers: state.holders.map((edge) => runsOn[edge]), targets: [runsOn[state.edge]] });
    const rows = found.replicas.filter((row) => row.edge === state.edge && !row.own);
    byId("detail").replaceChildren(
      make("h2", { text: state.state }),
      make("p", { className: "note", text: `published by ${state.edge} on ${runsOn[state.edge]}: ${plural(state.updates, "update")}, of which the last has ${bytes(state.bytes)}` }),
      make("h3", { text: "Replicas" }),
      make("dl", {}, ...rows.flatMap((row) => [
        make("dt", { text: `${row.holder} on ${runsOn[row.holder]}` }),
        make("dd", { text: `${row.held ? "correct" : "wrong"}, ${plural(row.updates, "update")}, median latency ${ms(row.p50_ms)}, maximum ${ms(row.max_ms)}` }),
      ]), make("dt", { text: `controller on ${runsOn.controller}` }), make("dd", { text: "keeps the last update, to repair losses" })));
  }
  for (const state of found.states) {
    const button = make("button", { type: "button", className: "choice", "aria-pressed": "false", on: { click: () => choose(state) } },
      make("strong", { text: state.state }), make("small", { text: `${plural(state.updates, "update")}, replicated by ${state.holders.join(", ") || "no tracker"}` }));
    buttons.set(state.edge, button);
    byId("choices").append(make("li", {}, button));
  }
  byId("clear").addEventListener("click", () => choose(null));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") choose(null); });
  map.onGround(() => choose(null));
  choose(found.states[0] ?? null);

  // --- tables ----------------------------------------------------------------------------------
  function table(heads, rows) {
    return make("table", {},
      make("thead", {}, make("tr", {}, ...heads.map((text, at) => make("th", { text, scope: "col", ...(at < 2 && { className: "text" }) })))),
      make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((text, at) => make("td", { text: String(text), ...(at < 2 && { className: "text" }), ...(text === "no" && { className: "bad" }) }))))));
  }
  byId("replicas").append(table(["tracker", "state", "correct", "updates", "p50", "p99", "maximum"],
    found.replicas.map((row) => [row.holder, row.own ? `${row.edge} (own)` : row.edge, row.held ? "yes" : "no", row.own ? "" : number(row.updates), ...(row.own ? ["", "", ""] : [ms(row.p50_ms), ms(row.p99_ms), ms(row.max_ms)])])));
  byId("movements").append(table(["tracker", "host", "expected", "missing", "extra", "wrong"],
    found.movements.map((row) => [row.who, runsOn[row.who] ?? "Structured Streaming", number(row.expected), number(row.missing), number(row.extra), number(row.wrong)])));
  byId("flows").append(table(["from", "to", "movements", "mean speed"],
    found.flows.map((row) => [row.from, row.to, number(row.count), `${number(row.speed)} m/s`])));

  // --- drawings --------------------------------------------------------------------------------
  const SVG = "http://www.w3.org/2000/svg";
  function draw(name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  const paint = (name) => `var(--${name})`;

  (() => {
    const xs = data.scanners.map((s) => s.x), ys = data.scanners.map((s) => s.y), edge = 90;
    const left = Math.min(...xs) - edge, low = Math.min(...ys) - edge;
    const wide = Math.max(...xs) + edge - left, high = Math.max(...ys) + edge - low;
    const spot = (x, y) => [x - left, high - (y - low)];
    const picture = draw("svg", { viewBox: `0 0 ${wide} ${high}`, width: "100%", style: "max-height: 420px", role: "img", "aria-label": "Map of the city" });
    const middles = new Map();
    for (const scanner of data.scanners) middles.set(scanner.edge, [...(middles.get(scanner.edge) ?? []), scanner]);
    for (const [name, each] of middles) {
      const x = each.reduce((sum, s) => sum + s.x, 0) / each.length, y = each.reduce((sum, s) => sum + s.y, 0) / each.length;
      middles.set(name, spot(x, y));
      const [cx, cy] = spot(x, y);
      picture.append(draw("circle", { cx, cy, r: 150, fill: paint("raise"), stroke: paint("line") }));
    }
    const most = Math.max(1, ...found.flows.map((flow) => flow.count));
    for (const flow of found.flows) {
      const [x1, y1] = middles.get(flow.from), [x2, y2] = middles.get(flow.to), long = Math.hypot(x2 - x1, y2 - y1);
      const [dx, dy] = [(x2 - x1) / long, (y2 - y1) / long], aside = 14, width = 1 + 11 * flow.count / most;
      const at = (x, y, along) => [x + along * dx - aside * dy, y + along * dy + aside * dx];
      const [sx, sy] = at(x1, y1, 60), [ex, ey] = at(x2, y2, -75), [tx, ty] = at(x2, y2, -55);
      const head = 6 + width / 2;
      const way = draw("g", { fill: paint("way"), opacity: 0.7 });
      way.append(draw("line", { x1: sx, y1: sy, x2: ex, y2: ey, stroke: paint("way"), "stroke-width": width }),
        draw("path", { d: `M${tx} ${ty}L${ex - head * dy} ${ey + head * dx}L${ex + head * dy} ${ey - head * dx}z` }),
        draw("title", {}, `${flow.from} to ${flow.to}: ${plural(flow.count, "movement")}, ${number(flow.speed)} m/s on average`));
      picture.append(way);
    }
    for (const scanner of data.scanners) {
      const [cx, cy] = spot(scanner.x, scanner.y);
      const dot = draw("circle", { cx, cy, r: 9, fill: paint("receiver") });
      dot.append(draw("title", {}, scanner.name));
      picture.append(dot);
    }
    for (const [name, [x, y]] of middles) picture.append(draw("text", { x, y: y + 8, "text-anchor": "middle", fill: paint("ink"), "font-size": 26, "font-weight": 600 }, name));
    byId("city").append(picture);
  })();

  (() => {
    const { seconds, worst_ms: worst, mean_ms: mean } = found.staleness;
    if (!seconds.length) return;
    const wide = 640, high = 240, left = 84, bottom = 30, top = 12;
    const longest = Math.max(1e-9, seconds.at(-1)), most = Math.max(1, ...worst);
    const across = (value) => left + (wide - left - 8) * value / longest, up = (value) => high - bottom - (high - bottom - top) * value / most;
    const picture = draw("svg", { viewBox: `0 0 ${wide} ${high}`, width: "100%", role: "img", "aria-label": "Staleness over time" });
    for (const share of [0, 0.5, 1]) {
      picture.append(draw("line", { x1: left, x2: wide - 8, y1: up(share * most), y2: up(share * most), stroke: paint("line") }),
        draw("text", { x: left - 6, y: up(share * most) + 4, "text-anchor": "end", fill: paint("soft"), "font-size": 12 }, ms(share * most)),
        draw("text", { x: across(share * longest), y: high - 8, "text-anchor": share === 1 ? "end" : "middle", fill: paint("soft"), "font-size": 12 }, `${number(Math.round(10 * share * longest) / 10)} s`));
    }
    for (const [values, colour, name, at] of [[worst, "way", "worst", 0], [mean, "accent", "mean", 1]]) {
      picture.append(draw("polyline", { points: seconds.map((x, n) => `${across(x)},${up(values[n])}`).join(" "), fill: "none", stroke: paint(colour), "stroke-width": 1.8 }),
        draw("text", { x: wide - 60, y: top + 14 + 16 * at, fill: paint(colour), "font-size": 12 }, name));
    }
    byId("staleness").append(picture);
  })();
})();
