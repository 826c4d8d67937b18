"use strict";
(async () => {
  const content = JSON.parse(await unpacked("content"));
  const rows = asRows(content.cases);
  const state = { filters: {}, text: "", brush: null, sort: ["name", 1], shown: 50 };
  const views = {};

  // ---- numbers as people write them

  function scaled(value, unit, prefixes) {
    if (value === null) return "";
    const [factor, prefix] = prefixes.find(([least]) => value >= least) || prefixes[prefixes.length - 1];
    return `${Number((value / factor).toPrecision(4))} ${prefix}${unit}`;
  }
  function seconds(value) { return scaled(value, "s", [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]); }
  function rate(value, unit) { return scaled(value, unit, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]); }
  function half(row) {
    if (row.half === null) return "unknown";
    // Of an interval wider than the time to either side, the percent would hide the lower end.
    if (row.half >= 2) return `× ${(row.low_s / row.median_s).toPrecision(2)} to ${(row.high_s / row.median_s).toPrecision(2)}`;
    return `±${(50 * row.half).toFixed(1)} %`;
  }

  function asRows(cases) {
    const read = {};
    for (const [name, column] of Object.entries(cases)) {
      read[name] = Array.isArray(column) ? (at) => column[at] : (at) => column.values[column.at[at]];
    }
    return cases.name.map((_, at) => {
      const row = { at };
      for (const name in read) row[name] = read[name](at);
      row.suspect = row.suspect === 1;
      row.half = row.low_s === null || row.high_s === null ? null : (row.high_s - row.low_s) / row.median_s;
      row.time = row.half === null ? `${seconds(row.median_s)}, interval unknown` : `${seconds(row.median_s)} ${half(row)}`;
      row.rate_text = rate(row.rate, row.rate_unit);
      row.prediction = row.predicted_s === null ? "none" : `${seconds(row.predicted_s)}, measured ${row.ratio} times that`;
      if (row.calibrating) row.prediction += " (fitted to this row, so no test of it)";
      row.flag_text = row.flags || "none";
      return row;
    });
  }

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  // ---- which cases are shown

  function fits(row, column, value) {
    if (column !== "flags") return row[column] === value;
    return value === "(none)" ? row.flags === "" : row.flags.split(" ").includes(value);
  }
  function inBrush(row) {
    return Object.entries(state.brush || {}).every(
      ([field, [low, high]]) => row[field] !== null && row[field] >= low && row[field] <= high,
    );
  }
  function chosen(withBrush) {
    return rows.filter(
      (row) =>
        Object.entries(state.filters).every(([column, value]) => fits(row, column, value)) &&
        (!state.text || row.name.includes(state.text)) &&
        (!withBrush || inBrush(row)),
    );
  }
  const has = { roofline: (row) => row.intensity !== null && row.flop_per_s !== null, ratios: (row) => row.ratio !== null && !row.calibrating };

  function update(brushed) {
    const colour = document.getElementById("colour").value;
    for (const [name, view] of Object.entries(views)) {
      // The chart in which a selection is drawn keeps its points; the other shows only the selected ones.
      const drawn = chosen(name !== brushed).filter(has[name]).map((row) => ({ ...row, colour: row[colour] || "unknown" }));
      if (name !== brushed) view.data("rows", drawn).resize().runAsync();
    }
    const listed = chosen(true);
    const suspect = listed.filter((row) => row.suspect).length;
    document.getElementById("count").textContent =
      `${listed.length} of ${rows.length} cases` + (suspect ? `, ${suspect} of them suspect (hollow diamonds)` : "");
    table(listed);
  }

  // ---- the table

  const all = [
    ["name", "case", (row) => row.name],
    ["median_s", "time", (row) => seconds(row.median_s)],
    ["half", "95 %", half],
    ["rate", "rate", (row) => row.rate_text],
    ["predicted_s", "predicted", (row) => seconds(row.predicted_s)],
    ["ratio", "measured / predicted", (row) => (row.ratio === null ? "" : row.ratio.toFixed(2))],
    ["of_roof", "of roof", (row) => (row.of_roof === null ? "" : `${Math.round(100 * row.of_roof)} %`)],
    ["bound_by", "bound by", (row) => row.bound_by],
    ["flags", "flags", (row) => row.flags],
  ];
  if (document.querySelector("[data-column=device]")) all.splice(1, 0, ["device", content.whose, (row) => row.device]);
  // Predictions that no case has need no column; of an interval that none has each says so.
  const columns = all.filter(([field]) => field === "half" || rows.some((row) => row[field] !== null && row[field] !== ""));

  function heads() {
    const line = document.querySelector("#table thead tr");
    line.replaceChildren(
      ...columns.map(([field, words], place) => {
        const [by, direction] = state.sort;
        const [order, arrow] = by !== field ? ["none", ""] : direction > 0 ? ["ascending", " ▲"] : ["descending", " ▼"];
        const onclick = () => {
          state.sort = [field, by === field ? -direction : 1];
          heads();
          update();
          line.querySelectorAll("button")[place].focus();
        };
        const cell = element("th", { scope: "col" }, element("button", { type: "button", textContent: words + arrow, onclick }));
        cell.setAttribute("aria-sort", order);
        return cell;
      }),
    );
  }
  function table(listed) {
    const [by, direction] = state.sort;
    // Cases without a value stand last, whichever way.
    const order = (a, b) => {
      if (a[by] === null || b[by] === null) return (a[by] === null) - (b[by] === null);
      return (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) * direction;
    };
    const sorted = [...listed].sort(order);
    const lines = sorted.slice(0, state.shown).map((row) => {
      const name = element("button", { type: "button", className: "name", onclick: () => tell(row) }, row.name);
      const cells = columns.map(([field, , text]) => {
        const look = typeof row[field] === "number" ? { className: "number" } : {};
        return element("td", look, field === "name" ? name : text(row));
      });
      return element("tr", {}, ...cells);
    });
    document.querySelector("#table tbody").replaceChildren(...lines);
    const more = document.getElementById("more");
    more.hidden = sorted.length <= state.shown;
    more.textContent = `Show more of the ${sorted.length} cases`;
  }

  // ---- one case

  function tell(row) {
    const again = row.again.replace("{}", /^[\w@%+=:,./-]+$/.test(row.name) ? row.name : `'${row.name}'`);
    const flags = row.flags.split(" ").filter(Boolean).map((name) => `${name}: ${content.flags[name]}`).join("; ");
    const facts = [
      ["measured", `${row.time}, ${row.rate_text}` + (row.suspect ? ", suspect" : "")],
      ["predicted", row.prediction + (row.bound_by ? `, bound by ${row.bound_by}` : "")],
      ["of the roof", row.of_roof === null ? "unknown" : `${Math.round(100 * row.of_roof)} %`],
      ["flags", flags || "none"],
      ["to measure it again", again],
    ];
    const title = row.name + (columns[1][0] === "device" ? ` on ${row.device}` : "");
    const lines = facts.flatMap(([word, text]) => [
      element("dt", {}, word),
      element("dd", {}, element(text === again ? "code" : "span", {}, text)),
    ]);
    document.getElementById("case").replaceChildren(element("strong", {}, title), element("dl", {}, ...lines));
  }

  // ---- charts

  const LEGEND = 130;

  async function linked(name, spec) {
    const box = document.getElementById(name);
    // A finger that drags scrolls the page.
    const touched = matchMedia("(pointer: coarse)").matches;
    const colours = content.colours[document.getElementById("colour").value];
    const scale = { domain: Object.keys(colours), range: Object.values(colours) };
    const layer = spec.layer.map((part) => {
      if (!part.params) return part;
      const { color, fill, opacity, ...others } = part.encoding;
      const encoding = { ...others, color: { ...color, scale }, fill: { ...fill, scale }, ...(touched ? {} : { opacity }) };
      return { ...part, encoding, params: touched ? [] : part.params };
    });
    const { view } = await embed(box, { ...spec, layer }, LEGEND);
    views[name] = view;
    const canvas = box.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${box.previousElementSibling.textContent} The table below holds the same cases.`);
    view.addEventListener("click", (_, item) => {
      if (item && item.datum && item.datum.at !== undefined) tell(rows[item.datum.at]);
    });
    if (touched) return;
    view.addSignalListener("brush", (_, brush) => {
      state.brush = Object.keys(brush).length ? brush : null;
      update(name);
    });
  }

  async function drawLinked() {
    state.brush = null;
    const charts = ["roofline", "ratios"].filter((name) => document.getElementById(name));
    await Promise.all(charts.map((name) => linked(name, content[name])));
    update();
  }

  function values(chart) {
    const { row: places, x, y, line, panel, per, expected } = chart.points;
    return places.map((place, i) => {
      const row = rows[place];
      const part = per ? per[i] : 1;
      const point = { ...row, panel: panel[i], x: x[i] };
      if (chart.quantity === "ratio") return { ...point, y: y[i] };
      const isRate = chart.quantity === "rate";
      const count = row.rate * row.median_s;
      const ends = isRate ? [count / row.high_s, row.low_s > 0 ? count / row.low_s : null] : [row.low_s / part, row.high_s / part];
      const [low, high] = row.half === null ? [null, null] : ends;
      return {
        ...point,
        line: line[i],
        y: isRate ? row.rate : row.median_s / part,
        low,
        high,
        predicted: expected[i],
      };
    });
  }
  async function draw(box) {
    const chart = content.experiments[box.dataset.experiment][box.dataset.chart];
    const points = values(chart).filter((point) => chart.quantity !== "ratio" || point.ratio !== null);
    const panels = new Set(chart.points.panel).size;
    const room = Math.max(1, Math.floor(box.clientWidth / 330));
    const spec = { ...chart.spec, columns: Math.min(room, panels), datasets: { rows: points } };
    const width = Math.min(spec.columns === 1 ? 900 : 460, Math.floor(box.clientWidth / spec.columns) - 80);
    spec.spec = { ...spec.spec, width };
    await embed(box, spec, LEGEND);
    box.dataset.drawn = "yes";
  }

  // ---- begin

  for (const box of document.querySelectorAll("[data-svg]")) box.innerHTML = await inflated(box.dataset.svg);

  new Function(await unpacked("library"))();
  if (document.getElementById("table")) {
    for (const select of document.querySelectorAll("[data-column]")) {
      select.onchange = () => {
        if (select.value) state.filters[select.dataset.column] = select.value;
        else delete state.filters[select.dataset.column];
        update();
      };
    }
    document.getElementById("text").oninput = (event) => { state.text = event.target.value; update(); };
    document.getElementById("colour").onchange = drawLinked;
    document.getElementById("more").onclick = () => { state.shown += 200; update(); };
    document.getElementById("clear").onclick = () => {
      for (const select of document.querySelectorAll("[data-column]")) select.value = "";
      document.getElementById("text").value = "";
      Object.assign(state, { filters: {}, text: "", brush: null });
      for (const view of Object.values(views)) view.signal("brush_x", [0, 0]).signal("brush_y", [0, 0]).runAsync();
      update();
    };
    heads();
    await drawLinked();
  }
  drawWhenSeen("[data-experiment]", draw);
})();
