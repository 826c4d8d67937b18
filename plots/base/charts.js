// The text of an element that holds gzip as base64.
async function unpacked(id) {
  return inflated(document.getElementById(id).textContent);
}
async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// A chart whose legend has as many columns, of this width in pixels, as there is room for.
function embed(box, spec, width) {
  const legend = { ...spec.config.legend, columns: Math.max(1, Math.floor(box.clientWidth / width)) };
  return vegaEmbed(box, { ...spec, config: { ...spec.config, legend } }, { actions: false, renderer: "canvas" });
}

// Draws each of these boxes once, when it is about to be seen.
function drawWhenSeen(selector, draw) {
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    },
    { rootMargin: "300px" },
  );
  for (const box of document.querySelectorAll(selector)) seen.observe(box);
  document.body.dataset.ready = "yes";
}
