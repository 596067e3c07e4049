// Stored trees on the map, what each saves, and what a retuning would change.
(() => {
  let found = null, map = null, drawnOf = "", visible = false, chosen = "", versions = "", timer;
  const size = (tree) => `${plural(tree.switches, "switch", "switches")}, ${plural(tree.edges?.length ?? 0, "link")}`;
  const share = (part, whole) => (whole ? `${part > 0 ? "−" : "+"}${(100 * Math.abs(part) / whole).toFixed(2)} %` : "");

  async function draw() {
    const network = await ask("network"), now = JSON.stringify([network.nodes, network.links]);
    if (now === drawnOf) return;
    drawnOf = now;
    byId("trees-map").replaceChildren();
    byId("trees-map").parentElement.querySelector(".zoom")?.remove();
    map = networkMap(byId("trees-map"), network.nodes, network.links);
    views.trees.of = map;
  }
  async function read() {
    await draw();
    found = await ask("trees");
    byId("trees-figures").replaceChildren(figure(number(found.trees.length), "stored trees"), figure(found.labels.toFixed(2), "labels a notification"),
      figure(bytes(found.bytes), `on links, of ${plural(found.publications, "publication")} on record`), figure(bytes(found.without - found.bytes), `saved by trees: ${share(found.without - found.bytes, found.without)}`));
    list();
    light();
  }
  function list() {
    byId("trees-list").replaceChildren(...(found.trees.length ? found.trees.map((tree) => make("li", {}, make("button", {
      className: "choice", type: "button", "aria-pressed": String(tree.id) === chosen, on: { click: () => go("trees", String(tree.id)) } },
    make("span", { className: "tag", text: tree.state }), make("strong", { text: `${tree.id} ${tree.strategy}` }),
    make("small", { text: `${size(tree)}; named ${plural(tree.uses, "time")}, saves ${bytes(tree.saves)} (${share(tree.saves, found.bytes) || "0 %"})` })))) : [make("li", { className: "note", text: "No stored trees." })]));
  }
  function light() {
    const tree = found?.trees.find((each) => String(each.id) === chosen);
    map?.light({ ways: tree?.edges ?? [], arrows: false });
    byId("trees-caption").textContent = tree ? `tree ${tree.id}, ${tree.strategy}: ${size(tree)}` : "Choose a tree to see it.";
  }

  // --- retuning, dry -------------------------------------------------------------------------------
  async function follow() {
    clearTimeout(timer);
    if (!visible) return;
    const told = await ask("proposal");
    byId("trees-run").disabled = told.state === "running";
    byId("trees-told").className = told.state === "failed" ? "told bad" : "note";
    byId("trees-told").textContent = { none: "Not tried yet. It writes nothing.", running: "Strategies are compared on what is on record; this takes a while …",
      failed: told.error, done: told.plan ? `Tried at ${time(new Date(1000 * told.began).toISOString())}, in ${number(Math.round(told.seconds))} s. A dry run: nothing is written.` : "Nothing is on record that the network can carry." }[told.state];
    if (told.plan) showPlan(told.plan);
    if (told.state === "running") timer = setTimeout(() => follow().catch(fail), 1000);
  }
  // Differences from now, to both sides of a middle: bars from zero would all look alike.
  function showPlan(plan) {
    const { now, change, choice, strategies, trees } = plan;
    const rows = [["after this change", change.bytes_after, change.added + change.kept, "own"], [choice.name === "mixture" ? "chosen: a mixture" : `chosen: ${choice.name}`, choice.bytes, choice.trees, "own"],
      ...strategies.filter((row) => !row.error).sort((a, b) => a.bytes - b.bytes).map((row) => [row.name, row.bytes, row.trees, ""])];
    const most = Math.max(1, ...rows.map(([, size_]) => Math.abs(size_ - now.bytes)));
    const line = ([title, size_, count, kind]) => {
      const less = now.bytes - size_, width = `${50 * Math.abs(less) / most}%`;
      return make("div", { className: `differs ${kind}` }, make("b", { text: title }),
        make("span", { className: "middle" }, make("i", { className: less >= 0 ? "less" : "more", style: { width } })),
        make("span", { text: `${share(less, now.bytes) || "0 %"}: ${less >= 0 ? "−" : "+"}${bytes(Math.abs(less))}, ${plural(count, "tree")}` }));
    };
    const button = (tree) => make("li", {}, make("button", { className: "choice", type: "button", on: { click: () => {
      map?.light({ ways: tree.edges ?? [], arrows: false });
      byId("trees-caption").textContent = `${{ new: "comes", kept: "stays", goes: "goes" }[tree.state]}: ${tree.strategy}, ${size(tree)}`;
    } } }, make("span", { className: `tag ${tree.state}`, text: { new: "comes", kept: "stays", goes: "goes" }[tree.state] }), make("strong", { text: tree.strategy || "tree" }), make("small", { text: size(tree) })));
    byId("trees-plan").replaceChildren(make("div", { className: "figures" }, figure(`${bytes(now.bytes)}`, `now, ${plural(now.trees, "tree")}`), figure(percent(change.saving), "saved by this change"),
      figure(number(change.rules), "rules change"), figure(`${change.added} / ${change.removed}`, "trees come / go")),
      make("h3", { text: "Bytes on links, beside now" }), ...rows.map(line), make("h3", { text: "Trees" }), make("ul", { className: "links" }, ...trees.map(button)),
      note("To write it: ./spark-submit.sh jobs/retune_trees.py with the same properties."));
  }
  function fail(error) {
    byId("trees-told").textContent = failure(error);
    byId("trees-told").className = "told bad";
  }
  byId("trees-run").addEventListener("click", () => { byId("trees-plan").replaceChildren(); ask("propose", {}).then(follow).catch(fail); });
  views.trees = {
    show: (text) => { visible = true; chosen = text; if (found) { list(); light(); } read().catch(fail); follow().catch(fail); },
    hide: () => { visible = false; clearTimeout(timer); },
    take: (news) => {
      const now = JSON.stringify(news.network);
      if (now !== versions) { versions = now; if (visible) read().catch(fail); }
    },
    csv: () => [["tree", "strategy", "state", "switches", "links", "named", "saves bytes"],
      (found?.trees ?? []).map((tree) => [tree.id, tree.strategy, tree.state, tree.switches, tree.edges.length, tree.uses, tree.saves])],
  };
})();
