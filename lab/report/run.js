// The report of a run: figures and the paths of notifications.
(() => {
  const SHOWN_AT_MOST = 200;

  // --- headline, bytes, batches, hosts ---------------------------------------------------------
  const summary = data.summary;
  byId("verdict").textContent = data.verdict.sentence;
  byId("verdict").classList.toggle("bad", !data.verdict.exact);

  for (const [key, label, fault] of [
    ["messages_in", "messages in"], ["messages_matched", "matched"], ["frames_sent", "frames sent"],
    ["deliveries_expected", "deliveries expected"], ["deliveries_received", "deliveries received"],
    ["missing", "missing", true], ["extra", "extra", true], ["duplicates", "duplicates", true],
    ["dead_letters", "dead letters"], ["seconds", "seconds"],
  ]) {
    if (!(key in summary)) continue;
    byId("headline").append(figure(number(summary[key]), label, fault && summary[key]));
  }

  const settings = Object.entries(data.run.settings ?? {});
  const told = [["started", data.run.began], ["version", data.run.version], ["network", data.run.network], ["labels", data.run.labels], ...settings];
  byId("run").append(...told.filter(([, value]) => value !== undefined && value !== "").flatMap(
    ([key, value]) => [make("dt", { text: key }), make("dd", { text: String(value) })]));
  byId("when").textContent = [data.run.began?.replace("T", " ").replace("+00:00", " UTC"), data.run.version && `version ${data.run.version}`].filter(Boolean).join(", ");

  const ways = [
    ["link_bytes", "Stackcast", "measured on the links"],
    ["unicast_bytes", "Unicast", "one copy per host, shortest paths"],
    ["broadcast_bytes", "Broadcast", "all packets to all hosts"],
  ].filter(([key]) => key in summary);
  const most = Math.max(1, ...ways.map(([key]) => summary[key]));
  for (const [key, label, how] of ways) {
    const times = key !== "link_bytes" && summary.link_bytes
      ? ` · ${(summary[key] / summary.link_bytes).toFixed(2)} ×` : "";
    byId("bytes").append(
      bar(label, summary[key] / most, bytes(summary[key]) + times, how, key === "link_bytes" ? "own" : ""));
  }

  // Each bound is the previous one times a constant, so all bars have the same width.
  const latency = summary.latency ?? {};
  if (latency.count) {
    const rows = latency.histogram, high = Math.max(...rows.map((row) => row.count));
    const ms = (value) => (value < 1000 ? `${number(Math.round(value * 10) / 10)} ms` : `${number(value / 1000)} s`);
    const within = [["p50_ms", "median"], ["p99_ms", "99th percentile"], ["max_ms", "maximum"]];
    const warm = latency.after_first_second;
    byId("latency").hidden = false;
    byId("latency").append(
      make("div", { className: "figures" }, ...within.map(([key, words]) => figure(ms(latency[key]), words))),
      make("div", { className: "histogram", role: "img", "aria-label": `Histogram of ${number(latency.count)} records` },
        ...rows.map((row) => make("i", {
          title: `${ms(row.from_ms)} to ${ms(row.to_ms)}: ${plural(row.count, "record")}`,
          style: { height: `${row.count ? Math.max(1, 100 * row.count / high) : 0}%` },
        }))),
      ...(warm ? [make("p", { className: "note", text: `After the first second: ${within.map(([key, words]) => `${words} ${ms(warm[key])}`).join(", ")}.` })] : []),
      make("p", { className: "axis" }, make("span", { text: ms(rows[0].from_ms) }), make("span", { text: ms(rows.at(-1).to_ms) })),
      make("p", { className: "note", text: `${plural(latency.count, "record")}, ${latency.mode === "realtime" ? "real time" : "micro-batches"}: from the Kafka timestamp of a record, set by the clock of its publisher, to the kernel's timestamp of its first frame at the first switch. The time includes waiting in the topic, if records are published faster than they are sent.` }));
  }

  const parts = Object.entries(summary.parts ?? {});
  const longestPart = Math.max(1e-9, ...parts.map(([, seconds]) => seconds));
  byId("timed").hidden = !parts.length;
  byId("parts").append(...parts.map(([name, seconds]) => bar(name, seconds / longestPart, `${number(seconds)} s`, "", "own")));

  function table(heads, rows) {
    const head = make("tr", {}, ...heads.map(([text, className]) => make("th", { text, scope: "col", ...(className && { className }) })));
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  }

  const longest = Math.max(1e-9, ...data.batches.map((batch) => Number(batch.seconds) || 0));
  let before = null;
  byId("batched").hidden = !data.batches.length;
  byId("batches").append(table(
    [["batch"], ["rows"], ["seconds"], ["rows/s"], ["table versions", "text"]],
    data.batches.map((batch) => {
      const versions = Object.entries(batch.versions ?? {});
      const chips = versions
        .filter(([name, version]) => !before || before[name] !== version)
        .map(([name, version]) => make("span", { className: before ? "chip new" : "chip", text: `${name} ${version}` }));
      const same = before && !chips.length;
      before = batch.versions ?? {};
      return make("tr", {},
        make("td", { text: number(batch.batch_id) }),
        make("td", { text: number(batch.rows) }),
        make("td", {}, make("span", { className: "spark", style: { width: `${60 * batch.seconds / longest}px` } }), number(batch.seconds)),
        make("td", { text: batch.seconds ? number(Math.round(batch.rows / batch.seconds)) : "" }),
        make("td", { className: "text" }, same ? make("span", { className: "note", text: "unchanged" }) : make("span", { className: "chips" }, ...chips)));
    })));

  const counted = ["expected", "received", "missing", "extra", "duplicates"];
  byId("hosts").append(table([["host"], ...counted.map((name) => [name])], data.hosts.map((row) => make("tr", {},
    make("td", {}, make("button", { type: "button", text: row.host, on: { click: () => askForHost(row.host) } })),
    ...counted.map((name, place) => make("td", {
      text: number(row[name]), ...(place > 1 && row[name] && { className: "bad" }),
    }))))));

  // --- texts of a notification -----------------------------------------------------------------
  const shortName = (field) => field.slice(field.lastIndexOf(".") + 1);
  function titleOf(notification) {
    const entries = Object.entries(notification.event ?? {});
    const value = (word) => entries.find(([field]) => shortName(field) === word)?.[1];
    const [stock, side, shares, price] = ["stock", "buy_sell", "shares", "price"].map(value);
    const trade = [side, shares, price && `@ ${price}`].filter(Boolean).join(" ");
    const known = [stock, trade].filter(Boolean).join(" ");
    const told = entries.filter(([, text]) => !/^\d{4}-\d\d-\d\dT/.test(text)).slice(0, 3);
    return known || told.map(([field, text]) => (field.includes(".") ? text : `${field} ${text}`)).join(" ") || `notification ${notification.id}`;
  }
  // "add_order" of the field add_order.price
  function typeOf(notification) {
    const [field = ""] = Object.keys(notification.event ?? {});
    return field.includes(".") ? field.split(".")[0].replaceAll("_", " ") : "";
  }
  const placeOf = (n) => `partition ${n.partition}, offset ${number(n.offset)}, message ${n.message} of its packet`;

  const kinds = {
    subscription: {
      rows: data.subscriptions,
      text: (row) => `${row.id} ${row.host} ${row.filter}`,
      hosts: (row) => [row.host],
      title: (row) => [make("code", { text: row.filter }), make("small", { text: `${row.id} → ${row.host} · ${plural(row.matched, "match", "matches")}` })],
      hint: "stock, threshold, id, host:h3",
    },
    notification: {
      rows: data.notifications,
      text: (row) => `${typeOf(row)} ${titleOf(row)} ${row.publisher} ${Object.values(row.event ?? {}).join(" ")} ${row.offset} ${row.subscriptions.join(" ")}`,
      hosts: (row) => row.receivers,
      title: (row) => [make("strong", { text: titleOf(row) }),
        make("small", { text: `${typeOf(row)} ${row.partition}:${row.offset}:${row.message} ${row.publisher} → ${plural(row.receivers.length, "host")}` })],
      hint: "stock, publisher, offset, host:h3",
    },
  };
  const find = (kind, id) => kinds[kind].rows.find((row) => String(row.id) === String(id));
  const samplesOf = (subscription) => data.notifications.filter(
    (sample) => sample.subscriptions.some((id) => String(id) === String(subscription.id)));
  for (const kind of Object.values(kinds)) kind.index = kind.rows.map((row) => kind.text(row).toLowerCase());

  const map = networkMap(byId("map"), data.nodes, data.links);
  const light = (notifications, targets) => map.light({
    ways: notifications.flatMap((row) => row.edges), receivers: notifications.flatMap((row) => row.receivers), targets,
    stops: notifications.length === 1 ? notifications[0].labels.filter((label) => label.kind === "stop").map((label) => label.link) : [],
  });

  // --- the detail ------------------------------------------------------------------------------
  const meaning = {
    tree: "Each switch copies to its ports of this stored tree. The label remains in the stack.",
    hop: "The switch at the start of this link also sends on it, and removes the label.",
    switch: "This switch sends out of the ports in its label, and removes the label.",
    stop: "The switch at the start of this link does not send on it, which prunes the tree, and removes the label.",
  };
  function stackList(labels, wanted) {
    if (!labels.length) return make("p", { className: "note", text: wanted ? "No stack: the switches match events." : "No label: there are no receivers." });
    // Each kind of label is explained once, at its first label.
    const first = new Set();
    return make("ol", { className: "stack" }, ...labels.map((label) => {
      const told = first.has(label.kind) ? [] : [make("small", { text: meaning[label.kind] ?? "" })];
      first.add(label.kind);
      const show = label.link.length ? {
        tabindex: 0,
        on: Object.fromEntries([["mouseenter", true], ["mouseleave", false], ["focus", true], ["blur", false]].map(
          ([event, marked]) => [event, () => map.mark(label.link, label.kind, marked)])),
      } : {};
      return make("li", { className: label.kind in meaning ? label.kind : "", ...show },
        make("b", { text: label.kind }),
        make("span", { className: "line" }, make("span", { text: label.text.replace(/^\w+ /, "") }),
          make("code", { text: label.wire, title: "as on the wire" })),
        ...told);
    }));
  }
  function linksTo(kind, rows, none) {
    if (!rows.length) return make("p", { className: "note", text: none });
    const list = make("ul", { className: "links" }, ...rows.slice(0, SHOWN_AT_MOST).map((row) => make("li", {},
      make("button", { className: "choice", type: "button", on: { click: () => choose(kind, row.id) } }, ...kinds[kind].title(row)))));
    if (rows.length > SHOWN_AT_MOST) list.append(make("li", { className: "note", text: `and ${number(rows.length - SHOWN_AT_MOST)} more` }));
    return list;
  }
  const hostChips = (hosts) => make("div", { className: "chips" }, ...[...hosts].sort(naturally).map(
    (host) => make("button", { className: "chip", type: "button", text: host, on: { click: () => askForHost(host) } })));
  const heading = (text) => make("h3", { text });

  function showNotification(row) {
    const matched = row.subscriptions.map((id) => find("subscription", id) ?? { id, host: "?", filter: String(id) });
    byId("detail").replaceChildren(
      make("h2", { text: titleOf(row) }), make("p", { className: "note", text: [typeOf(row), `sent by ${row.publisher}`, placeOf(row)].filter(Boolean).join(", ") }),
      heading("Header stack"), stackList(row.labels, row.receivers.length),
      heading(`Receivers (${number(row.receivers.length)}), over ${plural(row.edges.length, "link")}`), hostChips(row.receivers),
      heading(`Matched by (${number(matched.length)})`), linksTo("subscription", matched, "No subscription."),
      heading("Event"),
      make("dl", {}, ...Object.entries(row.event ?? {}).flatMap(([field, value]) => [make("dt", { text: shortName(field) }), make("dd", { text: String(value) })])));
    light([row], []);
  }
  function showSubscription(row) {
    const samples = samplesOf(row);
    byId("detail").replaceChildren(
      make("h2", { text: String(row.id) }), make("p", { className: "note", text: `delivers to ${row.host}; matched ${plural(row.matched, "message")}` }),
      heading("Filter"), make("code", { className: "filter", text: row.filter }),
      heading(row.matched ? `Sample matches (${number(samples.length)} of ${number(row.matched)})` : "Sample matches"),
      linksTo("notification", samples, "The subscription did not match any message of this run."));
    light(samples, [row.host]);
  }
  function showNothing() {
    byId("detail").replaceChildren(
      make("h2", { text: "The network" }),
      make("p", { className: "note", text: `${map.words}; ${plural(data.subscriptions.length, "subscription")}, ${plural(data.notifications.length, "sample notification")}.` }),
      heading("How to read the map"),
      make("p", { text: "Select a notification to highlight its path and to read its header stack label by label. Select a subscription to highlight its host and all sampled notifications that it matched. Select a host on the map to list its subscriptions." }),
      heading("Keys"),
      make("dl", {}, ...[["/", "search"], ["↑ ↓", "move in the list"], ["Enter", "select"], ["Esc", "clear"]].flatMap(
        ([key, text]) => [make("dt", {}, make("code", { text: key })), make("dd", { text })])));
    light([], []);
  }

  // --- choosing --------------------------------------------------------------------------------
  let tab = data.notifications.length ? "notification" : "subscription";
  let chosen = null;

  function showList() {
    const kind = kinds[tab];
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row, place) => words.every((word) => (word.startsWith("host:")
      ? kind.hosts(row).some((host) => host.toLowerCase() === word.slice(5)) : kind.index[place].includes(word)));
    const rows = kind.rows.filter(fits);
    byId("found").textContent = rows.length > SHOWN_AT_MOST
      ? `${plural(rows.length, tab)}, only the first ${SHOWN_AT_MOST} are shown` : plural(rows.length, tab);
    byId("choices").replaceChildren(...rows.slice(0, SHOWN_AT_MOST).map((row) => {
      const pressed = chosen?.kind === tab && String(chosen.id) === String(row.id);
      return make("li", {}, make("button", {
        className: "choice", type: "button", "aria-pressed": pressed, "data-id": row.id, on: { click: () => choose(tab, row.id) },
      }, ...kind.title(row)));
    }));
    for (const name of Object.keys(kinds)) {
      byId(`tab-${name}`).setAttribute("aria-selected", name === tab);
      byId(`tab-${name}`).tabIndex = name === tab ? 0 : -1;
    }
    byId("choices").setAttribute("aria-labelledby", `tab-${tab}`);
    byId("search").placeholder = `Search: ${kind.hint}`;
  }
  function openTab(name) { tab = name; byId("search").value = ""; showList(); }
  function choose(kind, id) { location.hash = `${kind}=${encodeURIComponent(id)}`; }
  function clear() { history.pushState(null, "", location.pathname + location.search); follow(); }
  function askForHost(host) {
    tab = "subscription";
    byId("search").value = `host:${host}`;
    clear();
    showList();
    light([], [host]);
    byId("clear").hidden = false;
  }
  // The address contains the selection (#notification=0, #subscription=s17), so it can be shared.
  function follow() {
    const [, kind, text] = /^#(notification|subscription)=(.*)$/.exec(location.hash) ?? [];
    let row;
    try { row = kind && find(kind, decodeURIComponent(text)); } catch { row = undefined; }
    chosen = row ? { kind, id: row.id } : null;
    if (row && kind !== tab) openTab(kind);
    for (const button of byId("choices").querySelectorAll(".choice")) {
      button.setAttribute("aria-pressed", Boolean(row) && button.dataset.id === String(row.id));
    }
    byId("clear").hidden = !row;
    if (!row) showNothing();
    else if (kind === "notification") showNotification(row);
    else showSubscription(row);
    byId("detail").scrollTop = 0;
    byId("choices").querySelector("[aria-pressed=true]")?.scrollIntoView({ block: "nearest" });
  }

  for (const name of Object.keys(kinds)) {
    byId(`tab-${name}`).addEventListener("click", () => openTab(name));
    byId(`tab-${name}`).addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      openTab(name === "notification" ? "subscription" : "notification");
      byId(`tab-${tab}`).focus();
    });
  }
  byId("search").addEventListener("input", showList);
  byId("clear").addEventListener("click", clear);
  map.onHost(askForHost);
  map.onGround(clear);
  document.addEventListener("keydown", (event) => {
    const typing = document.activeElement === byId("search");
    if (event.key === "/" && !typing) { event.preventDefault(); byId("search").focus(); }
    if (event.key === "Escape") clear();
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const buttons = [...byId("choices").querySelectorAll(".choice")];
    const place = buttons.indexOf(document.activeElement);
    if (!buttons.length || (place < 0 && !typing)) return;
    event.preventDefault();
    const next = place + (event.key === "ArrowDown" ? 1 : -1);
    (next < 0 ? byId("search") : buttons[Math.min(next, buttons.length - 1)]).focus();
  });
  addEventListener("hashchange", follow);
  addEventListener("popstate", follow);
  showList();
  follow();
  document.documentElement.dataset.ready = "yes";
})();
