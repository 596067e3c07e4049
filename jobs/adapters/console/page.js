// What all views of the console share. Every text of a table goes through textContent, never as markup.
// A part of an address, as it is if it contains a percent sign that encodes nothing.
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
// The token is anywhere in the address, and leaves it at once; the other parts stay.
(() => {
  const tokens = [];
  const [query, hash] = [location.search, location.hash].map((text) => {
    const parts = text.slice(1).split("&");
    const others = parts.filter((part) => !part.startsWith("token="));
    if (others.length === parts.length) return text;
    tokens.push(...parts.filter((part) => part.startsWith("token=")));
    return others.length ? text[0] + others.join("&") : "";
  });
  if (!tokens.length) return;
  sessionStorage.setItem("token", decoded(tokens.at(-1).slice("token=".length)));
  history.replaceState(null, "", location.pathname + query + hash);
})();
const bearer = () => ({ Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` });
const RECORD_LOOK = 1000;
// Whether panels are below each other, so that one that changes may be out of sight.
const isNarrow = () => matchMedia("(max-width: 980px)").matches;
async function ask(path, body) {
  const headers = bearer();
  const options = body === undefined ? { headers } : {
    method: "POST", body: JSON.stringify(body), headers: { ...headers, "Content-Type": "application/json" },
  };
  const answer = await fetch(`api/${path}`, options);
  const found = await answer.json();
  if (found.error && !answer.ok) throw Object.assign(new Error(found.error.message), { code: found.error.code, status: answer.status });
  return found;
}
// Waits until the ledger has the batch of a notification, and returns why it was sent; null once it is no longer
// needed. waits: called with each error that says that the batch is not on record yet; returns whether to wait.
async function whenRecorded(session, sequence, waits) {
  for (;;) {
    try { return await ask("explain", { session, sequence }); } catch (error) {
      // Before the first batch of a topic, the ledger has no session of it either.
      if (!["REPLAY.NOT_RECORDED", "REPLAY.NO_SESSION"].includes(error.code)) throw error;
      if (!waits(error)) return null;
    }
    await new Promise((resolve) => { setTimeout(resolve, RECORD_LOOK); });
  }
}
const waitingForRecord = (error) => [
  note("The batch of this event is not on record yet. The explanation appears as soon as the stream has recorded the batch …"), make("p", { className: "note", text: failure(error) })];
const inside = (id, ...nodes) => byId(id).querySelector("div").replaceChildren(...nodes);
const note = (text) => make("p", { className: "note", text });
const time = (text) => (text ? new Date(text).toLocaleString("sv", { timeZone: "UTC" }) + " UTC" : "");
function table(heads, rows) {
  // On narrow pages a cell shows its column by itself.
  const cell = (value, at) => {
    const { text = value, bad = false, node } = value && typeof value === "object" ? value : {};
    const made = make("td", { className: [bad ? "bad" : "", typeof text === "string" ? "text" : ""].join(" ").trim(), "data-column": heads[at] });
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
// Views by their names: show(text, options) as the address says, hide(), take(news), csv() of rows.
const views = {};
// A message of an error, in the console's words or another's.
const failure = (error) => (error.code ? `${error.code}: ${error.message}` : `The console does not respond: ${error.message}`);

// --- the address: #view=text&option=value ------------------------------------------------------
function readAddress() {
  const [, view, text, rest] = /^#(\w+)(?:=([^&]*))?(.*)$/.exec(location.hash) ?? [];
  const known = view in views;
  return { view: known ? view : "map", text: known && text ? decoded(text) : "", options: new URLSearchParams(known ? rest : "") };
}
function address(view, text = "", options = {}) {
  const rest = new URLSearchParams(Object.entries(options).filter(([, value]) => value)).toString();
  return `#${view}${text ? `=${encodeURIComponent(text).replaceAll("%3A", ":")}` : ""}${rest ? `&${rest}` : ""}`;
}
const go = (view, text, options) => { location.hash = address(view, text, options); };

// --- what is shown, as a file --------------------------------------------------------------------
function save(name, url) { make("a", { href: url, download: name }).click(); }
function saveCsv(name, heads, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    // A spreadsheet takes what begins so for a formula.
    const plain = typeof value !== "number" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  const url = URL.createObjectURL(new Blob([[heads, ...rows].map((row) => row.map(cell).join(",")).join("\r\n"), "\r\n"], { type: "text/csv" }));
  save(`${name}.csv`, url);
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
// An element as it is drawn, in a picture: its copy, in an SVG with the styles of the page.
async function picture(node) {
  const copy = node.cloneNode(true), { width, height } = node.getBoundingClientRect();
  const fields = node.querySelectorAll("input, textarea");
  copy.querySelectorAll("input, textarea").forEach((each, at) => {
    each.setAttribute("value", fields[at].value);
    if (each.tagName === "TEXTAREA") each.textContent = fields[at].value;
  });
  const style = [...document.querySelectorAll("style")].map((each) => each.textContent).join("\n");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const colours = dark ? /prefers-color-scheme: dark\) \{\s*(:root \{[^}]*\})/.exec(style)?.[1] ?? "" : "";
  const body = make("div", {}, make("style", { text: `${style}\n${colours}` }), copy);
  body.setAttribute("xmlns", "http://www.w3.org/1999/xhtml");
  const text = new XMLSerializer().serializeToString(body);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${text}</foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = make("canvas", { width: Math.ceil(width), height: Math.ceil(height) });
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, width, height);
  context.drawImage(image, 0, 0);
  return canvas.toDataURL("image/png");
}

// --- an explanation ------------------------------------------------------------------------------
function hex(digits) {
  const lines = (digits.match(/.{1,32}/g) ?? []).map((line, at) => {
    const pairs = line.match(/../g), text = pairs.map((pair) => { const code = parseInt(pair, 16); return code > 31 && code < 127 ? String.fromCharCode(code) : "·"; }).join("");
    return `${(16 * at).toString(16).padStart(4, "0")}  ${pairs.join(" ").padEnd(47)}  ${text}`;
  });
  return make("pre", { className: "hex", text: lines.join("\n") });
}
// What the stream said of a notification, as SentExplanation tells it.
function explained(found) {
  const facts = [["record", `partition ${found.partition}, offset ${number(found.offset)}, message ${found.message_index}`], ["batch", number(found.batch)],
    ["versions", Object.entries(found.versions).map(([name, version]) => `${name}@${version}`).join(", ")]];
  return [
    make("h2", { text: `${found.session}/${found.sequence}` }),
    make("dl", {}, ...facts.flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: value })])),
    ...found.events.flatMap((event, at) => [make("h3", { text: found.events.length > 1 ? `Event ${at}` : "Event" }),
      make("dl", {}, ...Object.entries(event).flatMap(([key, value]) => [make("dt", { text: key.slice(key.lastIndexOf(".") + 1) }), make("dd", { text: value })]))]),
    make("h3", { text: `To ${plural(found.receivers.length, "host")}` }),
    make("div", { className: "chips" }, ...found.receivers.map((host) => make("button", { className: "chip", type: "button", text: host, on: { click: () => go("map", `host:${host}`) } }))),
    make("h3", { text: plural(found.rules.length, "matching rule") }),
    make("ul", { className: "links" }, ...found.rules.slice(0, 50).map((rule) => make("li", {}, make("button", { className: "choice", type: "button", on: { click: () => go("subscriptions", rule.id) } },
      make("code", { text: rule.filter ?? "" }), make("small", { text: `${rule.id} of ${rule.subscriber ?? "?"}` }))))),
    ...found.frames.flatMap((frame) => [make("h3", { text: `Frame of ${plural(frame.bytes, "byte")} to ${frame.receivers.join(", ")}` }),
      make("ol", { className: "labels" }, ...frame.labels.map((text, at) => make("li", {}, text, ...(frame.leave_at[at] ? [make("small", { className: "note", text: `; removed from the stack at ${frame.leave_at[at]}` })] : [])))),
      make("ul", { className: "paths" }, ...Object.values(frame.paths).map((path) => make("li", { text: path.join(" › ") }))),
      make("details", {}, make("summary", { text: "hex" }), hex(frame.hex))]),
  ];
}
