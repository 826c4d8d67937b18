"use strict";
(async () => {
  // The text of gzip as base64.
  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }
  if (document.getElementById("content")) table(JSON.parse(await unpacked(document.getElementById("content").textContent)));
  for (const box of document.querySelectorAll("[data-svg]")) box.innerHTML = await unpacked(box.dataset.svg);
  document.body.dataset.ready = "yes";
})();

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// ---- numbers as people write them

function scaled(value, unit, prefixes) {
  if (value === null) return "";
  const [factor, prefix] = prefixes.find(([least]) => value >= least) || prefixes[prefixes.length - 1];
  return `${Number((value / factor).toPrecision(4))} ${prefix}${unit}`;
}
const seconds = (value) => scaled(value, "s", [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]);
const rate = (value, unit) => scaled(value, unit, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
const percent = (value) => (value === null ? "" : `${Math.round(100 * value)} %`);
function half(row) {
  if (row.half === null) return "unknown";
  // Of an interval wider than the time to either side, the percent would hide the lower end.
  if (row.half >= 2) return `× ${(row.low_s / row.median_s).toPrecision(2)} to ${(row.high_s / row.median_s).toPrecision(2)}`;
  return `±${(50 * row.half).toFixed(1)} %`;
}

function asRows(cases) {
  const columns = Object.entries(cases);
  return cases.name.map((_, at) => {
    const row = {};
    for (const [name, of] of columns) row[name] = Array.isArray(of) ? of[at] : of.values[of.at[at]];
    row.half = row.low_s === null || row.high_s === null ? null : (row.high_s - row.low_s) / row.median_s;
    return row;
  });
}

// ---- the table of cases, its filters, and the one case that was chosen

function table(content) {
  const rows = asRows(content.cases);
  const filters = [...document.querySelectorAll("[data-column]")];
  const text = document.getElementById("text");
  const state = { sort: ["name", 1], shown: 50 };
  const all = [
    ["name", "case", (row) => row.name],
    ["device", filters[0].labels[0].firstChild.data, (row) => row.device],
    ["median_s", "time", (row) => seconds(row.median_s)],
    ["half", "95 %", half],
    ["rate", "rate", (row) => rate(row.rate, row.rate_unit)],
    ["predicted_s", "predicted", (row) => seconds(row.predicted_s)],
    ["ratio", "measured / predicted", (row) => (row.ratio === null ? "" : row.ratio.toFixed(2))],
    ["of_roof", "of roof", (row) => percent(row.of_roof)],
    ["bound_by", "bound by", (row) => row.bound_by],
    ["flags", "flags", (row) => row.flags],
  ];
  const several = filters[0].dataset.column === "device";
  // Predictions that no case has need no column; of an interval that none has each says so.
  const has = (field) => field === "half" || rows.some((row) => row[field] !== null && row[field] !== "");
  const columns = all.filter(([field]) => (field === "device" ? several : has(field)));

  function fits(row) {
    const chosen = filters.filter((select) => select.value).every(({ dataset: { column }, value }) => {
      if (column !== "flags") return row[column] === value;
      return value === "(none)" ? row.flags === "" : row.flags.split(" ").includes(value);
    });
    return chosen && row.name.includes(text.value);
  }
  function order(a, b) {
    const [by, direction] = state.sort;
    // Cases without a value stand last, whichever way.
    if (a[by] === null || b[by] === null) return (a[by] === null) - (b[by] === null);
    return (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) * direction;
  }
  function head([field, words]) {
    const [by, direction] = state.sort;
    const [sorted, arrow] = by !== field ? ["none", ""] : direction > 0 ? ["ascending", " ▲"] : ["descending", " ▼"];
    const onclick = () => {
      state.sort = [field, by === field ? -direction : 1];
      update();
      document.querySelectorAll("#table th button")[columns.findIndex(([name]) => name === field)].focus();
    };
    const cell = element("th", { scope: "col" }, element("button", { type: "button", textContent: words + arrow, onclick }));
    cell.setAttribute("aria-sort", sorted);
    return cell;
  }
  function line(row) {
    const name = element("button", { type: "button", className: "name", onclick: () => tell(row) }, row.name);
    const cells = columns.map(([field, , words]) =>
      element("td", typeof row[field] === "number" ? { className: "number" } : {}, field === "name" ? name : words(row)),
    );
    return element("tr", {}, ...cells);
  }
  function update() {
    const listed = rows.filter(fits).sort(order);
    const suspect = listed.filter((row) => row.suspect).length;
    document.getElementById("count").textContent =
      `${listed.length} of ${rows.length} cases` + (suspect ? `, ${suspect} of them suspect` : "");
    document.querySelector("#table thead tr").replaceChildren(...columns.map(head));
    document.querySelector("#table tbody").replaceChildren(...listed.slice(0, state.shown).map(line));
    const more = document.getElementById("more");
    more.hidden = listed.length <= state.shown;
    more.textContent = `Show more of the ${listed.length} cases`;
  }
  function tell(row) {
    const again = row.again.replace("{}", /^[\w@%+=:,./-]+$/.test(row.name) ? row.name : `'${row.name}'`);
    const flags = row.flags.split(" ").filter(Boolean).map((name) => `${name}: ${content.flags[name]}`).join("; ");
    const interval = row.half === null ? ", interval unknown" : ` ${half(row)}`;
    let prediction = row.predicted_s === null ? "none" : `${seconds(row.predicted_s)}, measured ${row.ratio} times that`;
    if (row.calibrating) prediction += " (fitted to this row, so no test of it)";
    const facts = [
      ["measured", `${seconds(row.median_s)}${interval}, ${rate(row.rate, row.rate_unit)}` + (row.suspect ? ", suspect" : "")],
      ["predicted", prediction + (row.bound_by ? `, bound by ${row.bound_by}` : "")],
      ["of the roof", percent(row.of_roof) || "unknown"],
      ["flags", flags || "none"],
      ["to measure it again", element("code", {}, again)],
    ];
    const lines = facts.flatMap(([word, said]) => [element("dt", {}, word), element("dd", {}, said)]);
    const title = element("strong", {}, row.name + (several ? ` on ${row.device}` : ""));
    document.getElementById("case").replaceChildren(title, element("dl", {}, ...lines));
  }

  for (const select of filters) select.onchange = update;
  text.oninput = update;
  document.getElementById("more").onclick = () => { state.shown += 200; update(); };
  document.getElementById("clear").onclick = () => {
    for (const input of [...filters, text]) input.value = "";
    update();
  };
  update();
}
