// Moves a map of the console, and tells the milliseconds from frame to frame.
const began = performance.now(), map = networkMap(byId("map"), data.nodes, data.links);
requestAnimationFrame(() => requestAnimationFrame(() => { window.drawnIn = performance.now() - began; }));
// Times from frame to frame, a step before each.
window.measure = (frames, step) => new Promise((done) => {
  const times = [];
  let at = 0, before;
  const next = (now) => {
    if (before !== undefined) times.push(now - before);
    before = now;
    if (at++ === frames) { done(times); return; }
    step(at);
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
});
const canvas = () => [...byId("map").querySelectorAll("canvas:not(.map-links)")].at(-1);
const mouse = (kind, x, y) => canvas().dispatchEvent(new MouseEvent(kind, { bubbles: true, cancelable: true, view: window, clientX: x, clientY: y, button: 0, buttons: 1 }));
window.drag = async (frames) => {
  mouse("mousedown", 30, 400);
  const times = await measure(frames, (at) => mouse("mousemove", 30 + 3 * (at % 100), 400 + 2 * (at % 50)));
  mouse("mouseup", 30, 400);
  return times;
};
// The longest of the frames after a movement has ended.
window.rest = async () => [Math.max(...await measure(60, () => {}))];
window.zoom = (frames) => measure(frames, (at) => canvas().dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, ctrlKey: true, deltaY: at % 40 < 20 ? -20 : 20, clientX: 600, clientY: 400 })));
// News: every tenth link has another weight.
window.weigh = (frames) => measure(frames, (at) => map.weigh(data.links.map((_, number) => ((number % 10 ? number : number + at) % 17) / 17)));
