// Rules: the list, and the editor of one.
(() => {
  const fields = { id: byId("rule-id"), subscriber: byId("rule-subscriber"), filter: byId("rule-filter") };
  const draft = () => Object.fromEntries(Object.entries(fields).map(([name, node]) => [name, node.value]));
  function tell(text, kind = "") { byId("told").textContent = text; byId("told").className = `told ${kind}`; }
  function setOpened(row) {
    opened = row;
    deletion = null;
    byId("delete").hidden = !row;
  }
  const remark = ({ code, message }) => `${code}: ${message}`;
  const stateOf = (row) => make("span", { className: `state ${row.state.replace(/ .*/, "")}`, text: row.state });
  const liveSince = (row) => `live since version ${number(row.since_version)}, ${time(row.since)}`;
  // Answers may overtake each other: only that to the newest question counts.
  let asked = 0, listed = 0, waiting = null, shown = [];
  // The row that the editor has opened or saved: the console does not replace one that has changed since.
  let opened = null;
  // The version of table subscriptions that no longer has the row that was deleted last, until the stream uses it.
  let deletion = null, versionInUse = -1;

  async function list() {
    const number_ = ++listed;
    const found = await ask(`subscriptions?words=${encodeURIComponent(byId("search").value)}`);
    if (number_ !== listed) return;
    shown = found.rows;
    const counts = Object.entries(found.counts).map(([state, count]) => `${number(count)} ${state}`).join(", ");
    byId("found").textContent = `${number(found.found)} of ${number(found.total)} (${counts})` + (found.rows.length < found.found ? `; only the first ${found.rows.length} are shown` : "");
    const link = (row) => ({ node: make("button", { className: "opens", type: "button", text: row.id, on: { click: () => { go("subscriptions", row.id); } } }) });
    byId("rows").replaceChildren(found.rows.length ? table(["id", "host", "filter", "state", "since"], found.rows.map((row) => [
      link(row), row.subscriber, { node: make("code", {}, ...coloured(row.filter)) }, { node: stateOf(row) },
      row.state === "live" ? `version ${number(row.since_version)}, ${time(row.since)}` : ""])) : note("None."));
    inside("rejected", found.rejected.length ? scrolled(make("ul", { className: "findings" }, ...found.rejected.map((row) => make("li", { className: "problem" },
      link(row).node, ...row.remarks.map((each) => make("pre", { className: "told bad", text: remark(each) })))))) : note("None."), ...fromRunbook("StackcastRejectedRulesRise"));
  }
  async function checkDraft() {
    const number_ = ++asked;
    const told = fields.filter.value.trim() ? await ask("check", draft()) : null;
    if (number_ !== asked) return;
    const lines = told ? (told.error ? [remark(told.error)] : told.warnings.map(remark)) : [];
    byId("checked").textContent = lines.join("\n\n") || (told ? "The rule is valid." : "");
    byId("checked").className = `told ${told?.error ? "bad" : told && !lines.length ? "good" : ""}`;
    fields.filter.setAttribute("aria-invalid", Boolean(told?.error));
  }
  let pause;
  function typed() { clearTimeout(pause); pause = setTimeout(() => attempt(checkDraft), 200); }
  async function attempt(work) {
    try { await work(); } catch (error) {
      if (error.status === 401) { byId("asks-token").hidden = false; byId("token").focus(); }
      tell(failure(error), "bad");
    }
  }
  async function preview() {
    tell("Reading the most recent records …");
    const found = await ask("preview", { ...draft(), records: Number(byId("rule-records").value) });
    if (found.error) return tell(remark(found.error), "bad");
    const shared = found.also.map(({ host, events }) => `${host} (${number(events)})`).join(", ");
    const matched = found.matched === null ? `The rule keeps state and depends on earlier events, so the matches among the last ${number(found.events)} events cannot be counted.`
      : `${number(found.matched)} of the last ${number(found.events)} events match (${percent(found.events ? found.matched / found.events : 0)}).`;
    tell([matched, `Matching events go to ${found.hosts.join(", ")}.`,
      ...(found.matched ? [shared ? `Other hosts that receive some of them: ${shared}.` : "No other host receives them."] : []),
      ...(found.entries ? [`The rule would add ${plural(found.entries.added, "table entry", "table entries")} to the current ${number(found.entries.all)} and remove ${number(found.entries.removed)}.`] : []),
      ...(found.left_out ? [`The preview ignores ${plural(found.left_out, "rule")} with state.`] : []),
      ...found.warnings.map(remark)].join("\n"));
  }
  async function save() {
    const enabled = byId("rule-enabled").checked;
    const row = draft();
    const { version, row: saved } = await ask("save", { ...row, enabled, opened: opened?.id === row.id ? opened : null });
    setOpened(saved);
    waiting = { id: row.id, version };
    tell(`Saved as version ${number(version)} of table subscriptions; the stream has not applied it yet.`);
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
  function askToDelete() {
    byId("deletion-rule").textContent = `Delete rule “${opened.id}” of ${opened.subscriber}? Events that no other rule matches will no longer be sent.`;
    byId("deletion").showModal();
  }
  async function remove() {
    byId("deletion").close();
    const { version } = await ask("delete", { id: opened.id, opened });
    setOpened(null);
    waiting = null;
    deletion = version;
    history.replaceState(null, "", address("subscriptions"));
    byId("new").focus();
    tell(`Deleted in version ${number(version)} of table subscriptions; the stream has not applied it yet. To restore the rule, click Save.`);
    reportDeletion();
    await list();
  }
  function reportDeletion() {
    if (deletion === null || versionInUse < deletion) return;
    tell(`Deleted in version ${number(deletion)} of table subscriptions; the stream uses version ${number(versionInUse)}.`, "good");
    deletion = null;
  }
  // On a narrow page the editor is below the list.
  const toEditor = () => { if (isNarrow()) byId("editor").scrollIntoView({ block: "start" }); };
  async function edit(id) {
    const row = id ? await ask(`subscription?id=${encodeURIComponent(id)}`) : { id: "", subscriber: "", filter: "", enabled: true, remarks: [], state: "" };
    const { subscriber, format, filter, enabled } = row;
    setOpened(id ? { id, subscriber, format, filter, enabled } : null);
    for (const [name, node] of Object.entries(fields)) node.value = row[name];
    paint();
    byId("rule-enabled").checked = row.enabled;
    tell(row.state === "live" ? `${liveSince(row)}.` : row.state, row.state === "live" ? "good" : "");
    await checkDraft();
  }
  const paint = ruleEditor(fields.filter, typed);
  for (const node of Object.values(fields)) node.addEventListener("input", typed);
  byId("editor").addEventListener("submit", (event) => { event.preventDefault(); attempt(save); });
  byId("preview").addEventListener("click", () => attempt(preview));
  byId("new").addEventListener("click", () => { go("subscriptions"); attempt(() => edit("")); fields.id.focus(); });
  byId("delete").addEventListener("click", askToDelete);
  byId("deletion-yes").addEventListener("click", () => attempt(remove));
  byId("deletion-no").addEventListener("click", () => byId("deletion").close());
  byId("asks-token").hidden = Boolean(sessionStorage.getItem("token"));
  byId("token").addEventListener("change", () => {
    sessionStorage.setItem("token", byId("token").value);
    byId("asks-token").hidden = true;
    tell("");
    attempt(checkDraft);
  });
  byId("search").addEventListener("input", () => attempt(list));
  byId("fields").querySelector("div").append(...data.fields.map((name) => make("button", {
    className: "chip", type: "button", text: name,
    on: { click: () => { fields.filter.setRangeText(name, fields.filter.selectionStart, fields.filter.selectionEnd, "end"); fields.filter.focus(); paint(); typed(); } },
  })));

  let versions = "";
  views.subscriptions = {
    show: (text) => { if (text) attempt(() => edit(text).then(toEditor)); },
    take: (news) => {
      const now = JSON.stringify(news.subscriptions);
      if (now !== versions) { versions = now; attempt(follow); }
      versionInUse = news.health.versions.find(({ name }) => name === "subscriptions")?.version ?? -1;
      reportDeletion();
    },
    csv: () => [["id", "host", "filter", "state", "since version", "since"],
      shown.map((row) => [row.id, row.subscriber, row.filter, row.state, row.since_version, row.since])],
  };
})();
