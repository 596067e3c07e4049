// The network, what crosses its links, what a part of it is about, and the way of a notification.
(() => {
  const LOOK = 2000, LISTED = 200;
  const measures = {
    now: ["now", "bytes per second"], stackcast: ["since start", "bytes"],
    unicast: ["with unicast", "bytes"], broadcast: ["with broadcast", "bytes"],
  };
  let drawn = null, map = null, loads = null, versions = "", chosen = null, way = null, visible = false, timer;
  let measure = "now", number_ = 0;
  // What the address says beside the choice stays with the next one.
  const kept = () => ({ bytes: readAddress().options.get("bytes") });
  const told = (text, bad = false) => { byId("map-told").textContent = text; byId("map-told").className = bad ? "told bad" : "note"; };

  // --- links as thick as their bytes -------------------------------------------------------------
  function weigh() {
    if (!map || !loads) return;
    const values = loads[measure];
    // Ways that are compared share a scale, or each would look like the others.
    const most = measure === "now" ? Math.max(...values) : Math.max(...["stackcast", "unicast", "broadcast"].flatMap((name) => loads[name]));
    map.weigh(values.map((value) => (most ? Math.sqrt(value / most) : 0)));
    const sum = (name) => loads[name].reduce((all, value) => all + value, 0);
    const own = sum("stackcast");
    byId("map-sums").replaceChildren(...["stackcast", "unicast", "broadcast"].map((name) =>
      bar({ stackcast: "Stackcast", unicast: "Unicast", broadcast: "Broadcast" }[name], sum(name) / Math.max(1, own, sum("unicast"), sum("broadcast")),
        bytes(sum(name)) + (name !== "stackcast" && own ? ` · ${(sum(name) / own).toFixed(2)} ×` : ""), "", name === "stackcast" ? "own" : "")));
    const high = Math.max(...values);
    byId("map-scale").textContent = `${measures[measure][0]}: busiest link ${bytes(high)}${measure === "now" ? " per second" : ""}`
      + (measure === "now" ? `, all links ${bytes(sum("now"))} per second, averaged over ${loads.seconds} s` : "")
      + (loads.covered < 0.9999 ? `; covers the receiver sets with the most bytes, ${percent(loads.covered)} of all bytes` : "");
  }
  async function look() {
    clearTimeout(timer);
    if (!visible) return;
    try {
      const mine = ++number_, found = await ask("loads");
      if (mine === number_) { loads = found; weigh(); }
    } catch (error) { told(failure(error), true); }
    timer = setTimeout(look, LOOK);
  }

  // --- what is drawn -----------------------------------------------------------------------------
  async function draw() {
    const found = await ask("network");
    drawn = found;
    byId("map").replaceChildren();
    byId("map").parentElement.querySelector(".zoom")?.remove();
    map = networkMap(byId("map"), found.nodes, found.links);
    map.onChoice((choice) => go("map", choice ? name(choice) : "", kept()));
    views.map.of = map;
    loads = null;
    list();
    await look();
    await choose(readAddress());
  }
  const name = ({ kind, id }) => (kind === "link" ? `link:${id.join(" ")}` : `${kind}:${id}`);
  function choiceOf(text) {
    const [, kind, id] = /^(switch|host|link):(.*)$/.exec(text) ?? [];
    return kind ? { kind, id: kind === "link" ? id.split(" ") : id } : null;
  }
  function list() {
    const words = byId("map-search").value.toLowerCase();
    const found = (drawn?.nodes ?? []).filter((node) => node.id.toLowerCase().includes(words)).sort((a, b) => naturally(a.id, b.id));
    byId("map-found").textContent = `${plural(found.length, "switch or host", "switches and hosts")}${found.length > LISTED ? `; only the first ${LISTED} are shown` : ""}`;
    byId("map-nodes").replaceChildren(...found.slice(0, LISTED).map((node) => make("li", {}, make("button", {
      className: "choice", type: "button", text: node.id, "data-id": node.id,
      on: { click: () => go("map", `${node.kind === "switch" ? "switch" : "host"}:${node.id}`, kept()) },
    }))));
  }

  // --- details -----------------------------------------------------------------------------------
  const fact = (pairs) => make("dl", {}, ...pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: typeof value === "number" ? number(value) : String(value) })]));
  const leads = (kind, id) => make("button", { className: "chip", type: "button", text: id, on: { click: () => go("map", `${kind}:${id}`, kept()) } });
  const isSwitch = (id) => drawn.nodes.some((node) => node.id === id && node.kind === "switch");
  const ofTrees = (trees) => (trees.length ? [make("h3", { text: "Stored trees" }), make("div", { className: "chips" }, ...trees.map((tree) =>
    make("button", { className: "chip", type: "button", text: `${tree.id} ${tree.strategy} (${tree.state})`, on: { click: () => go("trees", String(tree.id)) } })))] : []);
  const details = {
    switch: (found) => [make("h2", { text: found.name }), fact([["layer", found.layer], ["device", found.device_id]]),
      make("h3", { text: "Health" }), found.status ? fact([["in sync", found.status.in_sync ? "yes" : "no"], ["entries", `${found.status.installed ?? "?"} of ${found.status.desired} expected`],
        ["checked", time(found.status.checked_at)], ["errors", found.status.errors.join("; ")]]) : note("No refresher has checked this switch yet."),
      make("h3", { text: "Dropped packets" }), ...(found.drops.length ? [fact(found.drops.map((each) => [each.reason, each.packets])), note(`Counted since the switch was programmed; last increase ${time(found.drops.map((each) => each.counted_at).sort().at(-1))}`)] : [note("No refresher has reported dropped packets.")]),
      make("h3", { text: "Expected entries" }), fact(Object.entries(found.entries)),
      ...ofTrees(found.trees), make("h3", { text: "Links" }), make("div", { className: "chips" }, ...found.links.map((link) => make("button", {
        className: "chip", type: "button", text: `${link.port}: ${link.to}${link.up ? "" : " (down)"}`, on: { click: () => go("map", `link:${found.name} ${link.to}`, kept()) } })))],
    link: (found) => [make("h2", { text: `${found.ways[0].from} and ${found.ways[0].to}` }),
      fact([["state", found.up ? "up" : `down in table links, on the side of ${found.down.join(" and ")}`]]),
      ...found.ways.flatMap((one) => [make("h3", { text: `to ${one.to}` }), fact([["now", `${bytes(one.now)} per second`], ["since start", bytes(one.stackcast)],
        ["with unicast", bytes(one.unicast)], ["with broadcast", bytes(one.broadcast)],
        ...one.cables.map(({ id, port, weight, up }) => ["cable", `label ${id}, port ${port}, weight ${weight}${up ? "" : ", down"}`])])]),
      ...ofTrees(found.trees)],
    host: (found) => [make("h2", { text: found.name }), fact([["role", found.role], ["address", found.ipv4]]), make("div", { className: "chips" }, leads("switch", found.switch)),
      make("h3", { text: "Received data" }), fact([["notifications now", `${number(found.now.notifications)} per second`], ["messages now", `${number(found.now.messages)} per second`],
        ["since start", `${number(found.total.notifications)} notifications, ${number(found.total.messages)} messages, ${bytes(found.total.bytes)}`]]),
      make("h3", { text: "Gaps and repairs" }), ...(found.asked ? [fact([["retransmissions requested", found.asked.requests], ["retransmitted", `${plural(found.asked.notifications, "notification")}, ${bytes(found.asked.bytes)}`],
        ["no longer available", found.asked.gone || ""], ["rejected by rate limits", found.asked.refused || ""], ["last", time(found.asked.recorded_at)]])] : [note("This host has not requested any retransmission.")]),
      make("h3", { text: `${plural(found.subscriptions, "live rule")}` }), make("ul", { className: "links" }, ...found.rules.map((rule) => make("li", {},
        make("button", { className: "choice", type: "button", on: { click: () => go("subscriptions", rule.id) } }, make("code", { text: rule.filter }), make("small", { text: rule.id })))))],
  };
  async function choose({ text, options }) {
    if (!map) return;
    const session = options.get("session"), sequence = options.get("sequence");
    if (session && sequence) { await showWay(session, sequence); return; }
    chosen = choiceOf(text);
    if (way) { way = null; map.halt(); map.light({}); byId("map-way").hidden = true; }
    map.choose(chosen);
    for (const button of byId("map-nodes").querySelectorAll(".choice")) button.setAttribute("aria-pressed", button.dataset.id === chosen?.id);
    if (!chosen) { byId("map-detail").replaceChildren(note("Select a switch, a link or a host on the map or in the list.")); return; }
    const { kind, id } = chosen;
    const query = kind === "link" ? { kind, u: id[0], v: id[1] } : { kind, id };
    const found = await ask(`detail?${new URLSearchParams(query)}`);
    if (chosen?.kind === kind && String(chosen.id) === String(id)) byId("map-detail").replaceChildren(...details[kind](found));
  }

  // --- the way of a notification -------------------------------------------------------------------
  // Links of a frame by their distance from the publisher, with the labels that a copy still has there.
  function stepsOf(frame) {
    const passed = new Map([[frame.publisher, []]]), depth = new Map([[frame.links[0]?.[0], 0]]), steps = [];
    for (const [u, v, count] of frame.links) {
      const at = depth.get(u) ?? 0, before = [...(passed.get(u) ?? []), u];
      depth.set(v, at + 1);
      passed.set(v, before);
      const leaves = frame.labels.filter((_, label) => frame.leave_at[label] === u);
      (steps[at] ??= []).push({ u, v, count: count ?? 0, leaves });
    }
    return steps;
  }
  async function showWay(session, sequence) {
    byId("map-detail").replaceChildren(note("Recomputing the notification from recorded data. The first request starts Spark, which takes some seconds …"));
    const address_ = location.hash;
    let found;
    try {
      found = await whenRecorded(session, sequence, (error) => {
        if (location.hash !== address_) return false;
        if (error.code === "REPLAY.NO_SESSION") throw error;
        byId("map-detail").replaceChildren(...waitingForRecord(error));
        return true;
      });
    } catch (error) {
      byId("map-detail").replaceChildren(make("pre", { className: "told bad", text: failure(error) }));
      return;
    }
    if (found === null) return;
    way = found;
    views.map.way = found;
    byId("map-way").hidden = false;
    byId("map-detail").replaceChildren(...explained(found), make("ol", { id: "map-steps", className: "steps" }));
    play();
  }
  async function play() {
    if (!way || !map) return;
    const frames = way.frames;
    map.light({ ways: frames.flatMap((frame) => frame.links.map(([u, v]) => [u, v])), receivers: way.receivers });
    const all = [];
    for (const frame of frames) stepsOf(frame).forEach((step, at) => (all[at] ??= []).push(...step));
    byId("map-steps").replaceChildren(...all.map((step) => make("li", {}, ...step.map(({ u, v, count, leaves }) => make("div", {},
      `${u} → ${v}: ${count ? plural(count, "label") : "no labels"}`, ...leaves.map((text) => make("small", { className: "note", text: ` removed at ${u}: ${text}` })))))));
    await map.travel(all.map((step) => step.map(({ u, v, count }) => [u, v, String(count || "")])), (at) => {
      [...byId("map-steps").children].forEach((line, place) => line.classList.toggle("current", place === at));
    });
  }

  for (const [key, [text]] of Object.entries(measures)) {
    byId("map-measures").append(make("label", {}, make("input", { type: "radio", name: "measure", value: key, on: { change: () => go("map", chosen ? name(chosen) : "", { bytes: key === "now" ? "" : key }) } }), ` ${text}`));
  }
  byId("map-search").addEventListener("input", list);
  byId("map-play").addEventListener("click", play);
  byId("map-clear").addEventListener("click", () => go("map", "", kept()));
  views.map = {
    show: (text, options) => {
      visible = true;
      const asked = options.get("bytes");
      measure = asked in measures ? asked : "now";
      byId("map-measures").querySelector(`[value=${measure}]`).checked = true;
      weigh();
      look();
      choose({ text, options }).catch((error) => byId("map-detail").replaceChildren(make("pre", { className: "told bad", text: failure(error) })));
    },
    hide: () => { visible = false; clearTimeout(timer); map?.halt(); },
    take: (news) => {
      const now = JSON.stringify(news.network);
      if (now === versions) return;
      versions = now;
      draw().catch((error) => told(failure(error), true));
    },
    csv: () => [["from", "to", "up", "bytes per second now", "bytes since start", "with unicast", "with broadcast"],
      (drawn?.links ?? []).map(({ u, v, up }, at) => [u, v, up, ...["now", "stackcast", "unicast", "broadcast"].map((key) => loads?.[key][at])])],
    png: () => map.png(),
  };
})();
