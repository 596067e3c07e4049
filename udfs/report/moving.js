// A large map is moved as the picture that it is, and drawn anew when it rests: to draw a thousand nodes takes longer
// than a frame. This is for mouse and wheel; fingers move it by cytoscape's own means. moved: is called when the view
// has changed.
function movedAsPicture(container, map, moved) {
  const REST_MS = 150, TENFOLD = 250;
  const picture = container.querySelector("canvas").parentElement;
  picture.style.transformOrigin = "0 0";
  const current = () => ({ zoom: map.zoom(), ...map.pan() });
  // For which view it was drawn; to which it has been moved since, or null; where the mouse holds it, or null.
  let drawn = current(), moving = null, held = null, resting = 0;
  const view = () => moving ?? current();

  function show() {
    const { zoom, x, y } = view(), factor = zoom / drawn.zoom;
    picture.style.transform = `translate(${x - factor * drawn.x}px, ${y - factor * drawn.y}px) scale(${factor})`;
    moved();
  }
  function rest() {
    clearTimeout(resting);
    if (!moving) return;
    const { zoom, x, y } = moving;
    moving = null;
    map.viewport({ zoom, pan: { x, y } });
  }
  map.on("render", () => { drawn = current(); show(); });

  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    event.stopPropagation();
    const { zoom, x, y } = view(), box = container.getBoundingClientRect();
    const wanted = zoom * 10 ** (-event.deltaY * (event.deltaMode === 1 ? 33 : 1) / TENFOLD);
    const next = Math.min(map.maxZoom(), Math.max(map.minZoom(), wanted)), factor = next / zoom;
    const [px, py] = [event.clientX - box.x, event.clientY - box.y];
    moving = { zoom: next, x: px - factor * (px - x), y: py - factor * (py - y) };
    show();
    clearTimeout(resting);
    resting = setTimeout(rest, REST_MS);
  }, { capture: true });

  function drag({ clientX, clientY }) {
    if (!held) return;
    const { zoom, x, y } = view();
    moving = { zoom, x: x + clientX - held.clientX, y: y + clientY - held.clientY };
    held = { clientX, clientY };
    show();
  }
  picture.addEventListener("mousedown", () => {
    map.userPanningEnabled(false);
    addEventListener("mousemove", drag);
    addEventListener("mouseup", () => {
      removeEventListener("mousemove", drag);
      map.userPanningEnabled(true);
      held = null;
      rest();
    }, { once: true });
  }, { capture: true });
  // Whether it is the ground that is held, and no node, cytoscape says.
  map.on("tapstart", ({ target, originalEvent: { type, button, clientX, clientY } }) => {
    if (target === map && type === "mousedown" && button === 0) held = { clientX, clientY };
  });
  return view;
}
