"use strict";
(async () => {
  const content = JSON.parse(await unpacked("content"));
  new Function(await unpacked("library"))();
  const PANEL = { units: 420, nights: 380 };
  const CHOSEN = new Map();

  async function draw(box) {
    const { kind, chart } = box.dataset;
    let spec = { ...content.kinds[kind].charts[chart] };
    spec.datasets = { [spec.data.name]: content.kinds[kind].data[spec.data.name] };
    if (spec.facet) {
      const room = Math.max(1, Math.floor(box.clientWidth / PANEL[box.dataset.panel]));
      spec.columns = Math.min(room, spec.facet.sort.length);
      const width = Math.floor((box.clientWidth - 75) / spec.columns) - 25;
      spec.spec = { ...spec.spec, width };
      spec.facet = { ...spec.facet, header: { ...spec.facet.header, labelLimit: width } };
    }
    if (spec.params) {
      const choice = chosen(kind);
      spec.params = spec.params.map((param) => ({ ...param, value: choice[param.name] }));
    }
    const { view } = await embed(box, spec, 150);
    const canvas = box.querySelector("canvas");
    if (canvas) canvas.setAttribute("aria-hidden", "true");
    if (spec.params) CHOSEN.set(kind, [...(CHOSEN.get(kind) || []), view]);
    box.dataset.drawn = "yes";
  }

  // ---- the class and the manner of a kind's strips and clocks

  function chosen(kind) {
    const [of, manner] = document.querySelector(`select[data-kind="${kind}"]`).value.split(", ");
    return { of, manner };
  }
  for (const select of document.querySelectorAll("select[data-kind]")) {
    select.onchange = () => {
      const choice = chosen(select.dataset.kind);
      for (const view of CHOSEN.get(select.dataset.kind) || []) {
        view.signal("of", choice.of).signal("manner", choice.manner).runAsync();
      }
    };
  }

  drawWhenSeen("[data-chart]", draw);
})();
