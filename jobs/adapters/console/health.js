// How the deployment is.
(() => {
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
    [/cannot be used/, "StackcastVersionsRejected"], [/wait to be live/, "StackcastPlanNotLive"],
    [/not in the ledger/, "StackcastJournalBacklog"], [/room is left/, "StackcastDiskFull"],
  ];
  function showHealth({ stream, versions, batches, switches, alerts: judged }) {
    const problems = stream.problems ?? [], remarks = stream.remarks ?? [];
    const out = switches.filter((row) => row.in_sync === false);
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
      figure(`${switches.filter((row) => row.in_sync).length} of ${switches.length}`, "switches seen in step", out.length > 0));
    const found = [...problems.map((text) => ["problem", text]), ...remarks.map((text) => ["remark", text])];
    const alerts = found.map(([, text]) => matters.find(([form]) => form.test(text))?.[1]).filter(Boolean);
    if (stream.reached === false) alerts.unshift("StackcastDown");
    panel("stream", alerts.length ? [...new Set(alerts)] : ["StackcastUnhealthy"], [stream.reached, found],
      found.length ? make("ul", { className: "findings" }, ...found.map(([kind, text]) => make("li", { className: kind, text: `${kind}: ${text}` })))
        : note(stream.reached === null ? "The stream serves no health: set spark.stackcast.metrics.port, or give --stream." : "None."));
    const firing = judged.filter((alert) => alert.state === "fires"), quiet = judged.filter((alert) => alert.state === "quiet");
    const others = judged.filter((alert) => alert.state === "not told");
    panel("alerts", [], judged, ...(judged.length ? [
      firing.length ? make("ul", { className: "findings" }, ...firing.map(({ name }) => make("li", { className: "problem", text: name }))) : note("None fires."),
      ...firing.flatMap(({ name }) => fromRunbook(name)),
      make("details", {}, make("summary", { text: `${quiet.length} quiet, ${others.length} that one look cannot tell` }),
        make("p", { text: `Quiet: ${quiet.map(({ name }) => name).join(", ") || "none"}. Rates, and what lasts, are for Prometheus: ${others.map(({ name }) => name).join(", ") || "none"}.` }),
        ...others.flatMap(({ name }) => fromRunbook(name)))] : [note("conf/prometheus-alerts.yml is not at hand.")]));
    panel("throughput", ["StackcastNoFrames"], batches, ...bars(batches, (row) => row.messages / (row.seconds || 1), "messages a second"));
    panel("latency", ["StackcastBatchTooLong"], batches, ...bars(batches, (row) => row.seconds, "s"));
    panel("versions", ["StackcastPlanNotLive"], versions, versions.length ? scrolled(table(["table", "in force", "newest", "waits since"], versions.map(
      (row) => [row.name, row.version, { text: row.newest, bad: row.newest > row.version }, time(row.since)]))) : note("No batch is on record."));
    panel("lag", ["StackcastLagGrows"], lag, lag.length ? scrolled(table(["partition", "records"], lag.map(([name, count]) => [name, count])))
      : note("The stream is not asked, or has not looked yet."));
    panel("switches", ["StackcastSwitchOutOfSync"], switches, switches.length ? scrolled(table(
      ["switch", "in step", "holds", "should hold", "version", "checked", "errors"], switches.map((row) => [
        row.switch, { text: row.in_sync === null ? "never checked" : row.in_sync ? "yes" : "no", bad: row.in_sync === false },
        row.installed ?? "", row.desired ?? "", row.entries_version ?? "", time(row.checked_at), (row.errors ?? []).join("; ")])))
      : note("Table switches is empty."));
    panel("batches", ["StackcastDeadLettersRise"], batches, batches.length ? scrolled(table(
      ["batch", "began", "seconds", "records", "messages", "matched", "frames", "bytes", "dead letters"],
      [...batches].reverse().map((row) => [row.batch_id, time(row.started_at).slice(11), row.seconds, row.packets, row.messages,
        row.matched, row.frames, bytes(row.bytes), { text: row.dead_letters, bad: row.dead_letters > 0 }])))
      : note("No batch is on record."));
  }

  let batches = [];
  views.health = {
    take: (news) => { batches = news.health.batches; showHealth(news.health); },
    csv: () => [["batch", "began", "seconds", "records", "messages", "matched", "frames", "bytes", "dead letters"],
      batches.map((row) => [row.batch_id, row.started_at, row.seconds, row.packets, row.messages, row.matched, row.frames, row.bytes, row.dead_letters])],
  };
})();
