// Which view is shown, and the news for all of them.
(() => {
  let current = null;
  const sectionOf = (name) => byId(name === "map" ? "map-view" : name);
  function route() {
    const { view, text, options } = readAddress();
    if (current && current !== view) views[current].hide?.();
    current = view;
    for (const name of Object.keys(views)) sectionOf(name).hidden = name !== view;
    for (const link of document.querySelectorAll(".views a")) {
      if (link.hash === `#${view}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    views[view].show?.(text, options);
  }
  function take(news) {
    byId("unread").hidden = !news.error;
    if (news.error) {
      byId("verdict").textContent = news.error.code;
      byId("verdict").className = "bad";
      byId("unread").textContent = `${news.error.code}: ${news.error.message}`;
      return;
    }
    for (const view of Object.values(views)) view.take?.(news);
    document.documentElement.dataset.ready = "yes";
  }
  // EventSource has no headers, and connections with the token are not closed for others.
  async function follow() {
    try {
      const answer = await fetch("api/news", { headers: bearer() });
      if (!answer.ok) throw new Error(answer.statusText);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = "", part; !(part = await reader.read()).done;) {
        const events = (text + part.value).split("\n\n");
        text = events.pop();
        for (const event of events) if (event.startsWith("data: ")) queueMicrotask(() => take(JSON.parse(event.slice(6))));
      }
      throw new Error("the stream of updates has ended");
    } catch {
      byId("verdict").textContent = "the console does not respond";
      byId("verdict").className = "bad";
      setTimeout(follow, 3000);
    }
  }
  follow();
  byId("where").textContent = `topic ${data.topic}, tables ${data.tables}`;
  byId("csv").addEventListener("click", () => saveCsv(`stackcast-${current}`, ...views[current].csv()));
  byId("png").addEventListener("click", async () => {
    save(`stackcast-${current}.png`, await (views[current].png ?? (() => picture(sectionOf(current))))());
  });
  addEventListener("hashchange", route);
  // 1 to 5 lead to the views, / to the search of the one that is open.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    const link = document.querySelectorAll(".views a")[Number(event.key) - 1];
    if (link) { event.preventDefault(); location.hash = link.hash; }
    if (event.key !== "/") return;
    event.preventDefault();
    sectionOf(current).querySelector("input[type=search]")?.focus();
  });
  route();
})();
