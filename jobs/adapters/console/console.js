// The console's views. Every text of a table goes through textContent, never as markup.
(() => {
  // --- the server --------------------------------------------------------------------------------
  // The token comes in the address that the job prints, and leaves it at once.
  const given = /[#&]token=([^&]*)/.exec(location.hash);
  if (given) {
    sessionStorage.setItem("token", decodeURIComponent(given[1]));
    history.replaceState(null, "", location.pathname + location.search);
  }
  async function ask(path, body) {
    const options = body === undefined ? {} : {
      method: "POST", body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` },
    };
    const answer = await fetch(`api/${path}`, options);
    const found = await answer.json();
    if (found.error && !answer.ok) throw Object.assign(new Error(found.error.message), { code: found.error.code, status: answer.status });
    return found;
  }
  const inside = (id, ...nodes) => byId(id).querySelector("div").replaceChildren(...nodes);
  const note = (text) => make("p", { className: "note", text });
  const time = (text) => (text ? new Date(text).toLocaleString("sv", { timeZone: "UTC" }) + " UTC" : "");
  function table(heads, rows) {
    const cell = (value, at) => {
      const { text = value, bad = false, node } = value && typeof value === "object" ? value : {};
      const made = make("td", { className: [bad ? "bad" : "", typeof text === "string" ? "text" : ""].join(" ").trim() });
      made.append(node ?? (typeof text === "number" ? number(text) : text ?? ""));
      return made;
    };
    return make("table", {},
      make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { text, scope: "col" })))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell)))));
  }
  const scrolled = (node) => make("div", { className: "scroll", tabindex: 0 }, node);
  function fromRunbook(name) {
    if (!data.runbook[name]) return [];
    return [make("details", {}, make("summary", { text: `Runbook: ${name}` }), make("pre", { text: data.runbook[name] }))];
  }
  // A panel is drawn anew only where it differs, so that nothing that is open or chosen closes.
  const drawn = new Map();
  function panel(id, runbook, of, ...nodes) {
    const now = JSON.stringify(of);
    if (drawn.get(id) === now) return;
    drawn.set(id, now);
    inside(id, ...nodes, ...runbook.flatMap(fromRunbook));
  }

  // --- health ------------------------------------------------------------------------------------
  function bars(rows, value, unit) {
    if (!rows.length) return [note("No batch is on record.")];
    const most = Math.max(...rows.map(value)) || 1;
    const columns = rows.map((row) => make("i", { style: { height: `${100 * value(row) / most}%` }, title: `batch ${row.batch_id}: ${number(value(row))} ${unit}` }));
    const sorted = rows.map(value).sort((a, b) => a - b);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    return [
      make("div", { className: "histogram high", role: "img", "aria-label": `${rows.length} batches, the most ${number(most)} ${unit}` }, ...columns),
      make("div", { className: "axis" }, make("span", { text: time(rows[0].started_at) }), make("span", { text: time(rows.at(-1).started_at) })),
      note(`half ${number(at(0.5))}, 99 % ${number(at(0.99))}, at most ${number(most)} ${unit}`),
    ];
  }
  // What may be the matter, and the alert of the runbook that speaks of it.
  const matters = [
    [/has been running/, "StackcastBatchTooLong"], [/last batch failed/, "StackcastBatchFailures"],
    [/cannot be used/, "StackcastVersionsRefused"], [/wait to be live/, "StackcastPlanNotLive"],
    [/not in the ledger/, "StackcastJournalBacklog"], [/room is left/, "StackcastDiskFull"],
  ];
  function showHealth({ stream, versions, batches, switches }) {
    const problems = stream.problems ?? [], remarks = stream.remarks ?? [];
    const out = switches.filter((row) => row.in_step === false);
    const pending = versions.filter((row) => row.newest > row.version);
    const last = batches.at(-1);
    const dead = batches.reduce((sum, row) => sum + row.dead_letters, 0);
    const lag = Object.entries(stream.lag_by_partition ?? {});
    const words = { true: stream.status, false: "not reached", null: "not asked" }[stream.reached];
    byId("verdict").textContent = stream.reached === null ? "tables alone" : `stream ${words}`;
    byId("verdict").className = stream.status === "unhealthy" || out.length ? "bad" : "";
    byId("headline").replaceChildren(
      figure(words, "the stream", problems.length > 0),
      figure(last ? number(last.batch_id) : "none", "the last batch on record"),
      figure(lag.length ? number(stream.lag) : "not known", "records not sent yet"),
      figure(number(pending.length), "tables with a version not in force"),
      figure(number(dead), `dead letters in ${plural(batches.length, "batch", "batches")}`, dead > 0),
      figure(`${switches.filter((row) => row.in_step).length} of ${switches.length}`, "switches seen in step", out.length > 0));
    const found = [...problems.map((text) => ["problem", text]), ...remarks.map((text) => ["remark", text])];
    const alerts = found.map(([, text]) => matters.find(([form]) => form.test(text))?.[1]).filter(Boolean);
    if (stream.reached === false) alerts.unshift("StackcastDown");
    panel("stream", alerts.length ? [...new Set(alerts)] : ["StackcastUnhealthy"], [stream.reached, found],
      found.length ? make("ul", { className: "findings" }, ...found.map(([kind, text]) => make("li", { className: kind, text: `${kind}: ${text}` })))
        : note(stream.reached === null ? "The stream serves no health: set spark.stackcast.metrics.port, or give --stream." : "None."));
    panel("throughput", ["StackcastNoFrames"], batches, ...bars(batches, (row) => row.messages / (row.seconds || 1), "messages a second"));
    panel("latency", ["StackcastBatchTooLong"], batches, ...bars(batches, (row) => row.seconds, "s"));
    panel("versions", ["StackcastPlanNotLive"], versions, versions.length ? table(["table", "in force", "newest", "waits since"], versions.map(
      (row) => [row.name, row.version, { text: row.newest, bad: row.newest > row.version }, time(row.since)])) : note("No batch is on record."));
    panel("lag", ["StackcastLagGrows"], lag, lag.length ? table(["partition", "records"], lag.map(([name, count]) => [name, count]))
      : note("The stream is not asked, or has not looked yet."));
    panel("switches", ["StackcastSwitchOutOfStep"], switches, switches.length ? scrolled(table(
      ["switch", "in step", "holds", "should hold", "version", "checked", "errors"], switches.map((row) => [
        row.switch, { text: row.in_step === null ? "never checked" : row.in_step ? "yes" : "no", bad: row.in_step === false },
        row.held ?? "", row.desired ?? "", row.entries_version ?? "", time(row.checked_at), (row.errors ?? []).join("; ")])))
      : note("Table switches is empty."));
    panel("batches", ["StackcastDeadLettersRise"], batches, batches.length ? scrolled(table(
      ["batch", "began", "seconds", "records", "messages", "matched", "frames", "bytes", "dead letters"],
      [...batches].reverse().map((row) => [row.batch_id, time(row.started_at), row.seconds, row.packets, row.messages,
        row.matched, row.frames, bytes(row.bytes), { text: row.dead_letters, bad: row.dead_letters > 0 }])))
      : note("No batch is on record."));
  }

  // --- subscriptions -----------------------------------------------------------------------------
  const fields = { id: byId("rule-id"), subscriber: byId("rule-subscriber"), filter: byId("rule-filter") };
  const draft = () => Object.fromEntries(Object.entries(fields).map(([name, node]) => [name, node.value]));
  function tell(text, kind = "") { byId("told").textContent = text; byId("told").className = `told ${kind}`; }
  const remark = ({ code, message }) => `${code}: ${message}`;
  const stateOf = (row) => make("span", { className: `state ${row.state.replace(/ .*/, "")}`, text: row.state });
  const liveSince = (row) => `live since version ${number(row.since_version)}, ${time(row.since)}`;
  // Answers may overtake each other: only that to the newest question counts.
  let asked = 0, listed = 0, waiting = null;

  async function list() {
    const number_ = ++listed;
    const found = await ask(`subscriptions?words=${encodeURIComponent(byId("search").value)}`);
    if (number_ !== listed) return;
    const counts = Object.entries(found.counts).map(([state, count]) => `${number(count)} ${state}`).join(", ");
    byId("found").textContent = `${number(found.found)} of ${number(found.total)} (${counts})` + (found.rows.length < found.found ? `, the first ${found.rows.length} shown` : "");
    const open = (row) => ({ node: make("button", { className: "opens", type: "button", text: row.id, on: { click: () => { location.hash = `subscriptions=${encodeURIComponent(row.id)}`; } } }) });
    byId("rows").replaceChildren(found.rows.length ? table(["id", "host", "filter", "state", "since"], found.rows.map((row) => [
      open(row), row.subscriber, { node: make("code", { text: row.filter }) }, { node: stateOf(row) },
      row.state === "live" ? `version ${number(row.since_version)}, ${time(row.since)}` : ""])) : note("None."));
    inside("rejected", found.rejected.length ? scrolled(make("ul", { className: "findings" }, ...found.rejected.map((row) => make("li", { className: "problem" },
      open(row).node, ...row.remarks.map((each) => make("pre", { className: "told bad", text: remark(each) })))))) : note("None."), ...fromRunbook("StackcastRejectedRulesRise"));
  }
  async function checkDraft() {
    const number_ = ++asked;
    const told = fields.filter.value.trim() ? await ask("check", draft()) : null;
    if (number_ !== asked) return;
    const lines = told ? (told.error ? [remark(told.error)] : told.warnings.map(remark)) : [];
    byId("checked").textContent = lines.join("\n\n") || (told ? "The rule is right." : "");
    byId("checked").className = `told ${told?.error ? "bad" : told && !lines.length ? "good" : ""}`;
    fields.filter.setAttribute("aria-invalid", Boolean(told?.error));
  }
  let pause;
  function typed() { clearTimeout(pause); pause = setTimeout(() => attempt(checkDraft), 200); }
  async function attempt(work) {
    try { await work(); } catch (error) {
      if (error.status === 401) { byId("asks-token").hidden = false; byId("token").focus(); }
      tell(error.code ? `${error.code}: ${error.message}` : `The console does not answer: ${error.message}`, "bad");
    }
  }
  async function preview() {
    tell("Reading the last records …");
    const found = await ask("preview", { ...draft(), records: Number(byId("rule-records").value) });
    if (found.error) return tell(remark(found.error), "bad");
    const shared = found.also.map(({ host, events }) => `${host} (${number(events)})`).join(", ");
    const matched = found.matched === null ? `A rule with state depends on what came before: ${number(found.events)} events are not counted.`
      : `${number(found.matched)} of the last ${number(found.events)} events match (${percent(found.events ? found.matched / found.events : 0)}).`;
    tell([matched, `They go to ${found.hosts.join(", ")}.`,
      ...(found.matched ? [shared ? `Who else gets them: ${shared}.` : "Nobody else gets them."] : []),
      ...(found.left_out ? [`${plural(found.left_out, "rule")} with state not counted.`] : []),
      ...found.warnings.map(remark)].join("\n"));
  }
  async function save() {
    if (byId("token").value) sessionStorage.setItem("token", byId("token").value);
    const enabled = byId("rule-enabled").checked;
    const row = draft();
    const { version } = await ask("save", { ...row, enabled });
    byId("asks-token").hidden = true;
    waiting = { id: row.id, version };
    tell(`Saved as version ${number(version)} of table subscriptions; the stream has not taken it up yet.`);
    await follow();
  }
  // What became of the row that was saved last, once the stream has taken it up.
  async function follow() {
    await list();
    if (!waiting) return;
    const { id, version } = waiting;
    const row = await ask(`subscription?id=${encodeURIComponent(id)}`);
    if (row.state === "pending" || waiting?.version !== version) return;
    waiting = null;
    if (row.state === "live") tell(`Saved as version ${number(version)}, ${liveSince(row)}.`, "good");
    else tell([`Saved as version ${number(version)}: ${row.state}.`, ...row.remarks.map(remark)].join("\n"), row.state === "rejected" ? "bad" : "");
  }
  async function edit(id) {
    const row = id ? await ask(`subscription?id=${encodeURIComponent(id)}`) : { id: "", subscriber: "", filter: "", enabled: true, remarks: [], state: "" };
    for (const [name, node] of Object.entries(fields)) node.value = row[name];
    byId("rule-enabled").checked = row.enabled;
    tell(row.state === "live" ? `${liveSince(row)}.` : row.state, row.state === "live" ? "good" : "");
    await checkDraft();
  }
  for (const node of Object.values(fields)) node.addEventListener("input", typed);
  byId("editor").addEventListener("submit", (event) => { event.preventDefault(); attempt(save); });
  byId("preview").addEventListener("click", () => attempt(preview));
  byId("new").addEventListener("click", () => { location.hash = "subscriptions"; attempt(() => edit("")); fields.id.focus(); });
  byId("search").addEventListener("input", () => attempt(list));
  byId("fields").querySelector("div").append(...data.fields.map((name) => make("button", {
    className: "chip", type: "button", text: name,
    on: { click: () => { fields.filter.setRangeText(name, fields.filter.selectionStart, fields.filter.selectionEnd, "end"); fields.filter.focus(); typed(); } },
  })));

  // --- views and news ----------------------------------------------------------------------------
  // The address names the view, and the subscription that is open: #subscriptions=s17.
  function route() {
    const [, view = "health", text] = /^#(health|subscriptions)(?:=(.*))?$/.exec(location.hash) ?? [];
    for (const name of ["health", "subscriptions"]) byId(name).hidden = name !== view;
    for (const link of document.querySelectorAll(".views a")) {
      if (link.hash === `#${view}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    if (text) attempt(() => edit(decodeURIComponent(text)));
  }
  let versions = "";
  function take(news) {
    if (news.error) {
      byId("verdict").textContent = news.error.code;
      byId("verdict").className = "bad";
      panel("stream", [], news, make("ul", { className: "findings" }, make("li", { className: "problem", text: `${news.error.code}: ${news.error.message}` })));
      return;
    }
    showHealth(news.health);
    const now = JSON.stringify(news.subscriptions);
    if (now !== versions) { versions = now; attempt(follow); }
    document.documentElement.dataset.ready = "yes";
  }
  const source = new EventSource("api/news");
  source.addEventListener("message", (event) => take(JSON.parse(event.data)));
  source.addEventListener("error", () => { byId("verdict").textContent = "the console does not answer"; byId("verdict").className = "bad"; });
  byId("where").textContent = `topic ${data.topic}, tables ${data.tables}`;
  addEventListener("hashchange", route);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    location.hash = "subscriptions";
    byId("search").focus();
  });
  route();
})();
