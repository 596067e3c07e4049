// Draws the report of a retuning: figures, a comparison of strategies, and the trees on the map.
(() => {
  const { objective, record, change, choice, now, budget, strategies, trees } = data;
  const cost = (value) => (objective.name === "latency" ? plural(value, "link") : bytes(value));
  const heads = [`${plural(record.publications, "different publication")}, ${plural(record.notifications, "notification")} of ${plural(record.batches, "batch", "batches")}`];
  if (record.first) heads[0] += `, ${record.first.slice(0, 19)} to ${record.last.slice(0, 19)} UTC`;
  if (record.bytes_covered < 1) heads.push(`the largest publications, with ${percent(record.bytes_covered)} of the bytes`);
  if (record.deliveries_left_out) heads.push(`${plural(record.deliveries_left_out, "delivery", "deliveries")} ignored, because the network no longer has a path for them`);
  const best = data.encodings.find((each) => each.name === data.encoding);
  if (best && best !== data.encodings[0]) heads.push(`encoding ${best.name} with labels of ${best.bits} bits would need ${bytes(best.bytes)} on links, but ${data.encodings[0].name} needs ${bytes(data.encodings[0].bytes)}`);
  byId("about").textContent = `${heads.join("; ")}.`;
  byId("outcome").textContent = `${data.outcome}, ${data.at.replace("T", " ").replace("+00:00", " UTC")}`;
  byId("reason").textContent = objective.reason;
  byId("cost").textContent = `Recorded publications: ${objective.unit}`;

  for (const [value, words] of [
    [percent(change.saving), `of the ${objective.unit} saved`],
    [number(change.rules), "rules changed"],
    [number(change.added), "trees added"],
    [number(change.removed), "trees removed"],
    [number(change.kept), "trees kept"],
    [budget.least === budget.most ? number(budget.most) : `${budget.least} to ${budget.most}`, "trees allowed per switch"],
  ]) byId("headline").append(figure(value, words));

  const rows = [
    { name: "current trees", kind: "now", ...now },
    { name: "after this change", kind: "own", cost: change.cost_after, labels: change.labels_after, trees: change.added + change.kept },
    { ...choice, name: choice.name === "mixture" ? "chosen: a mixture" : `chosen: ${choice.name}`, kind: "own" },
    ...strategies.slice().sort((a, b) => Boolean(a.error) - Boolean(b.error) || a.cost - b.cost),
  ];
  const most = Math.max(1, ...rows.map((row) => (row.error ? 0 : row.cost)));
  for (const row of rows) {
    const labels = row.labels === undefined ? "" : `, ${row.labels.toFixed(2)} labels`;
    byId("bars").append(row.error
      ? bar(row.name, undefined, row.error)
      : bar(row.name, row.cost / most, `${cost(row.cost)}, ${plural(row.trees, "tree")}${labels}`, "", row.kind));
  }

  const map = data.map && networkMap(byId("map"), data.map.nodes, data.map.links);
  if (!map) byId("map").append(make("p", { className: "note", text: "The network is too large for a map." }));
  const size = (tree) => `${plural(tree.switches, "switch", "switches")}, ${plural(tree.hosts, "host")}`;

  const buttons = [];
  function show(tree, button) {
    for (const other of buttons) other.setAttribute("aria-pressed", other === button);
    map?.light({ ways: tree.edges, arrows: false });
    byId("caption").textContent = `${tree.strategy || "tree"}: ${size(tree)}`;
  }
  const states = { new: "added", kept: "kept", goes: "removed" };
  for (const tree of trees) {
    const ends = [...new Set((tree.edges ?? []).flat())];
    const some = ends.slice(0, 4).join(", ") + (ends.length > 4 ? ", …" : "");
    const button = make("button", { className: "choice", type: "button", "aria-pressed": false, on: { click: () => show(tree, button) } },
      make("span", { className: `tag ${tree.state}`, text: states[tree.state] }),
      make("strong", { text: tree.strategy || "tree" }),
      make("small", { text: some ? `${size(tree)}: ${some}` : size(tree) }));
    buttons.push(button);
    byId("choices").append(make("li", {}, button));
  }
  if (buttons.length) buttons[0].click();
  else byId("choices").append(make("li", { className: "note", text: "No stored trees." }));
  document.documentElement.dataset.ready = "yes";
})();
