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
    byId("trees-figures").replaceChildren(figure(number(found.trees.length), "stored trees"), figure(found.labels.toFixed(2), "labels per notification"),
      figure(bytes(found.bytes), `on links, for ${plural(found.publications, "recorded publication")}`), figure(bytes(found.without - found.bytes), `saved by trees: ${share(found.without - found.bytes, found.without)}`));
    list();
    light();
  }
  function list() {
    byId("trees-list").replaceChildren(...(found.trees.length ? found.trees.map((tree) => make("li", {}, make("button", {
      className: "choice", type: "button", "aria-pressed": String(tree.id) === chosen, on: { click: () => go("trees", String(tree.id)) } },
    make("span", { className: "tag", text: tree.state }), make("strong", { text: `${tree.id} ${tree.strategy}` }),
    make("small", { text: `${size(tree)}; used ${plural(tree.uses, "time")}, saves ${bytes(tree.saves)} (${share(tree.saves, found.bytes) || "0 %"})` })))) : [make("li", { className: "note", text: "No stored trees." })]));
  }
  function light() {
    const tree = found?.trees.find((each) => String(each.id) === chosen);
    map?.light({ ways: tree?.edges ?? [], arrows: false });
    byId("trees-caption").textContent = tree ? `tree ${tree.id}, ${tree.strategy}: ${size(tree)}` : "Select a tree to show it on the map.";
  }

  // --- retuning, dry -------------------------------------------------------------------------------
  async function follow() {
    clearTimeout(timer);
    if (!visible) return;
    const told = await ask("proposal");
    byId("trees-run").disabled = told.state === "running";
    byId("trees-told").className = told.state === "failed" ? "told bad" : "note";
    byId("trees-told").textContent = { none: "A dry run compares the strategies for stored trees and changes nothing.", running: "Comparing strategies on the recorded publications, which takes a while …",
      failed: told.error, done: told.plan ? `Dry run of ${time(new Date(1000 * told.began).toISOString())}, which took ${number(Math.round(told.seconds))} s. Nothing was changed.` : "There are no recorded publications that the network can carry." }[told.state];
    if (told.plan) showPlan(told.plan);
    if (told.state === "running") timer = setTimeout(() => follow().catch(fail), 1000);
  }
  // Differences from now, to both sides of a middle: bars from zero would all look alike.
  function showPlan(plan) {
    const { now, change, choice, strategies, trees } = plan;
    const rows = [["after this change", change.bytes_after, change.added + change.kept, "own"], [choice.name === "mixture" ? "selected: a mixture" : `selected: ${choice.name}`, choice.bytes, choice.trees, "own"],
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
      byId("trees-caption").textContent = `${{ new: "added", kept: "kept", goes: "removed" }[tree.state]}: ${tree.strategy}, ${size(tree)}`;
    } } }, make("span", { className: `tag ${tree.state}`, text: { new: "added", kept: "kept", goes: "removed" }[tree.state] }), make("strong", { text: tree.strategy || "tree" }), make("small", { text: size(tree) })));
    byId("trees-plan").replaceChildren(make("div", { className: "figures" }, figure(`${bytes(now.bytes)}`, `now, ${plural(now.trees, "tree")}`), figure(percent(change.saving), "saved by this change"),
      figure(number(change.rules), "switch entries changed"), figure(`${change.added} / ${change.removed}`, "trees added / removed")),
      make("h3", { text: "Bytes on links, compared with now" }), ...rows.map(line), make("h3", { text: "Trees" }), make("ul", { className: "links" }, ...trees.map(button)),
      note("To apply this plan, run ./spark-submit.sh jobs/retune_trees.py with the same properties."));
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
