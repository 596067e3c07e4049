// The newest events, why one was sent, dead letters, and a batch computed again.
(() => {
  const LOOK = 2000;
  let found = [], letters = [], visible = false, timer, number_ = 0, chosen = "";
  // Only the last explanation that the page has asked for counts.
  let explanation = 0, isExplained = true;
  const keyOf = (event) => `${event.session}/${event.sequence}`, placeOf = (event) => `${event.partition}/${event.sequence}`;

  // --- the tail ------------------------------------------------------------------------------------
  async function look() {
    clearTimeout(timer);
    if (!visible) return;
    try { await read(); } catch (error) { byId("events-told").textContent = failure(error); byId("events-told").className = "told bad"; }
    timer = setTimeout(look, LOOK);
  }
  async function read() {
    if (!byId("events-follow").checked && found.length) return;
    const mine = ++number_, wanted = byId("events-wanted").value;
    const tail = await ask("events", { wanted, matched: byId("events-matched").checked, records: Number(byId("events-records").value) });
    if (mine !== number_ || wanted !== byId("events-wanted").value) return;
    byId("events-wanted").setAttribute("aria-invalid", Boolean(tail.error));
    byId("events-told").className = tail.error ? "told bad" : "note";
    if (tail.error) { byId("events-told").textContent = `${tail.error.code}: ${tail.error.message}`; return; }
    byId("events-told").textContent = `Showing ${number(tail.found)} of the last ${plural(tail.looked_at, "event")}${tail.found > tail.events.length ? `; only the newest ${tail.events.length} are shown` : ""}`
      + (tail.left_out ? `; ${plural(tail.left_out, "rule")} with state ignored` : "");
    found = tail.events;
    const dead = byId("events-dead-open").open ? await ask("letters") : null;
    if (dead) { letters = dead; showLetters(); }
    show();
  }
  const words = (event) => Object.entries(event.fields).filter(([, text]) => !/^\d{4}-\d\d-\d\dT/.test(text)).map(([field, text]) => `${field.slice(field.lastIndexOf(".") + 1)} ${text}`).join(", ");
  function show() {
    const kept = document.activeElement?.dataset?.key;
    byId("events-rows").replaceChildren(found.length ? table(["time", "event", "rules", "hosts", "batch"], found.map((event) => [
      time(event.time).slice(11), { node: make("button", { className: "opens", type: "button", "data-key": keyOf(event), "aria-pressed": keyOf(event) === chosen, text: words(event), on: { click: () => go("events", keyOf(event)) } }) },
      { text: event.matches }, { node: make("span", { text: event.hosts.slice(0, 6).join(", ") + (event.hosts.length > 6 ? `, ${event.hosts.length - 6} more` : "") }) },
      event.batch === null ? { text: "pending" } : { node: make("button", { className: "opens", type: "button", text: event.batch, on: { click: () => again(event.batch) } }) },
    ])) : note("None."));
    if (kept) byId("events-rows").querySelector(`[data-key="${CSS.escape(kept)}"]`)?.focus();
  }

  function detail(...nodes) {
    byId("events-detail").replaceChildren(...nodes);
    if (isNarrow()) byId("events-detail").scrollIntoView({ block: "start" });
  }

  // --- one event -----------------------------------------------------------------------------------
  async function explain(key) {
    chosen = key;
    isExplained = false;
    const mine = ++explanation, [session, sequence] = key.split("/"), event = found.find((each) => keyOf(each) === key);
    detail(note("Recomputing the notification from recorded data. The first request starts Spark, which takes some seconds …"));
    try {
      const result = await whenRecorded(session, sequence, (error) => {
        if (mine !== explanation) return false;
        if (error.code === "REPLAY.NO_SESSION") {
          // The first batch of a topic gives its records the session that they really have.
          const now = found.find((each) => event && placeOf(each) === placeOf(event));
          if (!now) throw error;
          if (keyOf(now) !== key) { go("events", keyOf(now)); return false; }
        }
        byId("events-detail").replaceChildren(...waitingForRecord(error));
        return true;
      });
      if (result === null || mine !== explanation) return;
      detail(...explained(result), make("div", { className: "actions" },
        make("button", { type: "button", className: "main", text: "Show its path on the map", on: { click: () => go("map", "", { session, sequence }) } }),
        make("button", { type: "button", text: `Recompute batch ${result.batch}`, on: { click: () => again(result.batch) } })));
      isExplained = true;
    } catch (error) {
      if (mine !== explanation) return;
      detail(make("pre", { className: "told", text: failure(error) }));
      isExplained = true;
    }
  }
  async function again(batch) {
    chosen = "";
    explanation += 1;
    detail(note(`Recomputing batch ${batch} …`));
    try {
      const told = await ask("replay", { batch });
      detail(make("h2", { text: `Batch ${batch}, recomputed` }),
        make("p", { className: told.same ? "told good" : "told bad", text: told.same ? "The result equals what was sent." : "The result differs from the ledger." }),
        table(["", "recomputed", "ledger"], [["frames", told.frames, told.then.frames], ["bytes", told.bytes, told.then.bytes]]),
        make("h3", { text: "First frames" }), ...told.first.map((frame) => make("details", {},
          make("summary", { text: `${frame.session}/${frame.sequence} to ${frame.receivers.join(", ")}` }), hex(frame.hex))));
    } catch (error) { detail(make("pre", { className: "told bad", text: failure(error) })); }
  }

  // --- dead letters --------------------------------------------------------------------------------
  function showLetters() {
    inside("events-dead", letters.length ? scrolled(make("ul", { className: "findings" }, ...letters.map((letter) => make("li", { className: "problem" },
      make("strong", { text: letter.field ? `${letter.reason}: ${letter.field}` : letter.reason }), ` partition ${letter.partition}, offset ${number(letter.offset)}${letter.index === null || letter.index === undefined ? ", whole record" : `, message ${letter.index}`}, ${plural(letter.length ?? 0, "byte")}, ${time(letter.time)}`,
      letter.text ? make("pre", { text: letter.text }) : make("details", {}, make("summary", { text: "hex" }), hex(letter.sample ?? "")))))) : note("None."));
  }

  let pause;
  byId("events-wanted").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(() => { found = []; look(); }, 300); });
  for (const id of ["events-records", "events-matched"]) byId(id).addEventListener("change", () => { found = []; look(); });
  byId("events-follow").addEventListener("change", look);
  byId("events-dead-open").addEventListener("toggle", async () => { if (byId("events-dead-open").open) { letters = await ask("letters"); showLetters(); } });
  views.events = {
    show: (text) => { visible = true; look(); if (text && text !== chosen) explain(text); },
    // An explanation that still waits for its batch starts again when the view is shown again.
    hide: () => { visible = false; clearTimeout(timer); if (!isExplained) { chosen = ""; explanation += 1; } },
    csv: () => [["time", "partition", "offset", "message", "batch", "rules", "hosts", "fields"],
      found.map((event) => [event.time, event.partition, event.offset, event.index, event.batch, event.rules.join(" "), event.hosts.join(" "), words(event)])],
  };
})();
