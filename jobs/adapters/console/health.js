// How the deployment is.
(() => {
  function bars(rows, value, unit) {
    if (!rows.length) return [note("No batch is on record yet.")];
    const most = Math.max(...rows.map(value)) || 1;
    const columns = rows.map((row) => make("i", { style: { height: `${100 * value(row) / most}%` }, title: `batch ${row.batch_id}: ${number(value(row))} ${unit}` }));
    const sorted = rows.map(value).sort((a, b) => a - b);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    return [
      make("div", { className: "histogram high", role: "img", "aria-label": `${rows.length} batches, maximum ${number(most)} ${unit}` }, ...columns),
      make("div", { className: "axis" }, make("span", { text: time(rows[0].started_at) }), make("span", { text: time(rows.at(-1).started_at) })),
      note(`median ${number(at(0.5))}, 99th percentile ${number(at(0.99))}, maximum ${number(most)} ${unit}`),
    ];
  }
  // What may be the matter, and the alert of the runbook that speaks of it.
  const matters = [
    [/has been running/, "StackcastBatchTooLong"], [/last batch failed/, "StackcastBatchFailures"],
    [/cannot be used/, "StackcastVersionsRejected"], [/wait(ing)? to be(come)? live/, "StackcastPlanNotLive"],
    [/not in the ledger/, "StackcastJournalBacklog"], [/room is left|is almost full/, "StackcastDiskFull"],
  ];
  function showHealth({ stream, versions, batches, switches, alerts: judged }) {
    const problems = stream.problems ?? [], remarks = stream.remarks ?? [];
    const out = switches.filter((row) => row.in_sync === false);
    const pending = versions.filter((row) => row.newest > row.version);
    const last = batches.at(-1);
    const dead = batches.reduce((sum, row) => sum + row.dead_letters, 0);
    const lag = Object.entries(stream.lag_by_partition ?? {});
    const words = { true: stream.status, false: "unreachable", null: "not configured" }[stream.reached];
    byId("verdict").textContent = stream.reached === null ? "tables only" : `stream ${words}`;
    byId("verdict").className = stream.status === "unhealthy" || out.length ? "bad" : "";
    byId("headline").replaceChildren(
      figure(words, "stream", problems.length > 0),
      figure(last ? number(last.batch_id) : "none", "last recorded batch"),
      figure(lag.length ? number(stream.lag) : "unknown", "records not sent yet"),
      figure(number(pending.length), "tables with a pending version"),
      figure(number(dead), `dead letters in ${plural(batches.length, "batch", "batches")}`, dead > 0),
      figure(`${switches.filter((row) => row.in_sync).length} of ${switches.length}`, "switches in sync", out.length > 0));
    const found = [...problems.map((text) => ["problem", text]), ...remarks.map((text) => ["remark", text])];
    const alerts = found.map(([, text]) => matters.find(([form]) => form.test(text))?.[1]).filter(Boolean);
    if (stream.reached === false) alerts.unshift("StackcastDown");
    panel("stream", alerts.length ? [...new Set(alerts)] : ["StackcastUnhealthy"], [stream.reached, found],
      found.length ? make("ul", { className: "findings" }, ...found.map(([kind, text]) => make("li", { className: kind, text: `${kind}: ${text}` })))
        : note(stream.reached === null ? "The health of the stream is unknown: set spark.stackcast.metrics.port, or pass --stream." : "None."));
    const firing = judged.filter((alert) => alert.state === "fires"), quiet = judged.filter((alert) => alert.state === "quiet");
    const others = judged.filter((alert) => alert.state === "not told");
    panel("alerts", [], judged, ...(judged.length ? [
      firing.length ? make("ul", { className: "findings" }, ...firing.map(({ name }) => make("li", { className: "problem", text: name }))) : note("No alert is firing."),
      ...firing.flatMap(({ name }) => fromRunbook(name)),
      make("details", {}, make("summary", { text: `${quiet.length} not firing, ${others.length} that only Prometheus can evaluate` }),
        make("p", { text: `Not firing: ${quiet.map(({ name }) => name).join(", ") || "none"}. Only Prometheus can evaluate alerts on rates or durations: ${others.map(({ name }) => name).join(", ") || "none"}.` }),
        ...others.flatMap(({ name }) => fromRunbook(name)))] : [note("The alert rules are unknown, because conf/prometheus-alerts.yml is missing.")]));
    panel("throughput", ["StackcastNoFrames"], batches, ...bars(batches, (row) => row.messages / (row.seconds || 1), "messages per second"));
    panel("latency", ["StackcastBatchTooLong"], batches, ...bars(batches, (row) => row.seconds, "s"));
    panel("versions", ["StackcastPlanNotLive"], versions, versions.length ? scrolled(table(["table", "in use", "newest", "pending since"], versions.map(
      (row) => [row.name, row.version, { text: row.newest, bad: row.newest > row.version }, time(row.since)]))) : note("No batch is on record yet."));
    panel("lag", ["StackcastLagGrows"], lag, lag.length ? scrolled(table(["partition", "records"], lag.map(([name, count]) => [name, count])))
      : note("The lag is unknown, because the stream does not report it or has not measured it yet."));
    panel("switches", ["StackcastSwitchOutOfSync"], switches, switches.length ? scrolled(table(
      ["switch", "in sync", "entries", "expected entries", "version", "checked", "errors"], switches.map((row) => [
        row.switch, { text: row.in_sync === null ? "not checked" : row.in_sync ? "yes" : "no", bad: row.in_sync === false },
        row.installed ?? "", row.desired ?? "", row.entries_version ?? "", time(row.checked_at), (row.errors ?? []).join("; ")])))
      : note("Table switches has no rows."));
    panel("batches", ["StackcastDeadLettersRise"], batches, batches.length ? scrolled(table(
      ["batch", "started", "seconds", "records", "messages", "matched", "frames", "bytes", "dead letters"],
      [...batches].reverse().map((row) => [row.batch_id, time(row.started_at).slice(11), row.seconds, row.packets, row.messages,
        row.matched, row.frames, bytes(row.bytes), { text: row.dead_letters, bad: row.dead_letters > 0 }])))
      : note("No batch is on record yet."));
  }

  let batches = [];
  views.health = {
    take: (news) => { batches = news.health.batches; showHealth(news.health); },
    csv: () => [["batch", "started", "seconds", "records", "messages", "matched", "frames", "bytes", "dead letters"],
      batches.map((row) => [row.batch_id, row.started_at, row.seconds, row.packets, row.messages, row.matched, row.frames, row.bytes, row.dead_letters])],
  };
})();
