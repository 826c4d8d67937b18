"use strict";
(async () => {
  // The text of gzip as base64.
  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }
  for (const [id, show] of [["content", table], ["verdicts", matrix]]) {
    const packed = document.getElementById(id);
    if (packed) show(JSON.parse(await unpacked(packed.textContent)));
  }
  if (document.getElementById("buy")) buying(document.getElementById("buy"));
  for (const each of document.querySelectorAll(".wide > table")) labelled(each);
  for (const box of document.querySelectorAll("[data-svg]")) box.innerHTML = await unpacked(box.dataset.svg);
  document.body.dataset.ready = "yes";
})();

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Where the page is narrow a row is a card, whose cells say what they are (report.css).
function labelled(of) {
  const heads = of.tHead ? [...of.tHead.rows[0].cells].map((head) => head.textContent.replace(/ [▲▼]/, "").trim()) : [];
  for (const row of of.tBodies[0].rows) [...row.cells].forEach((cell, at) => { cell.dataset.label ??= heads[at] ?? ""; });
}

// ---- numbers as people write them

function scaled(value, unit, prefixes) {
  if (value === null) return "";
  const [factor, prefix] = prefixes.find(([least]) => value >= least) || prefixes[prefixes.length - 1];
  return `${Number((value / factor).toPrecision(4))} ${prefix}${unit}`;
}
const seconds = (value) => scaled(value, "s", [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]);
const rate = (value, unit) => scaled(value, unit, [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
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
    labelled(document.getElementById("table"));
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

// ---- the guides' rules by devices

function matrix(content) {
  const [text, device, verdict] = ["rule", "device", "verdict"].map((name) => document.getElementById(`of-${name}`));
  const box = document.getElementById("of-cell");
  const told = ([word, claim, effect, source, holds, fails, aligned]) =>
    element("li", {}, element("span", { className: `verdict ${word.toLowerCase()}` }, word),
      ` ${effect} `, element("span", { className: "soft" }, `(${claim}${aligned && `, alignment of ${aligned} alone`}; ${holds} hold, ${fails} do not; ${source})`));

  function cell(rule, slug, name) {
    const { share, of } = rule.cells[slug] ?? { of: [] };
    const shown = of.filter(([word]) => !verdict.value || word === verdict.value);
    if (!shown.length) return element("td");
    if (device.value) return element("td", {}, element("ul", { className: "state" }, ...shown.map(told)));
    const words = share === null ? "?" : `${Math.round(100 * share)}`;
    const onclick = () => {
      const title = element("strong", {}, `Rule ${rule.number} on ${name}: ${rule.says}`);
      box.replaceChildren(title, element("ul", { className: "state" }, ...of.map(told)));
    };
    const bar = element("span", { className: "share" });
    bar.style.setProperty("--share", share === null ? "none" : `${100 * share}%`);
    const button = element("button", { type: "button", title: `rule ${rule.number} on ${name}`, onclick }, words, bar);
    return Object.assign(element("td", {}, button), { className: share === null ? "open" : "" });
  }
  function update() {
    const devices = content.devices.filter(([slug]) => !device.value || slug === device.value);
    const names = devices.map(([, name]) => element("th", { scope: "col", className: device.value ? "" : "upright" }, name));
    document.querySelector("#matrix thead tr").replaceChildren(element("th", { scope: "col" }, "rule"), ...names);
    const lines = content.rules
      .filter(({ number, says }) => `${number} ${says}`.toLowerCase().includes(text.value.toLowerCase()))
      .map((rule) => [rule, devices.map(([slug, name]) => cell(rule, slug, name))])
      .filter(([, cells]) => cells.some((each) => each.childElementCount))
      .map(([{ number, says }, cells]) => element("tr", {}, element("th", { scope: "row" }, `${number} ${says}`), ...cells));
    document.querySelector("#matrix tbody").replaceChildren(...lines);
    labelled(document.getElementById("matrix"));
  }
  text.oninput = device.onchange = verdict.onchange = update;
  update();
}

// ---- what to buy: sorted by any column, or by what a price gives of it

function buying(of) {
  const lines = [...of.tBodies[0].rows];
  const price = (line) => Number(line.querySelector("input").value);
  of.oninput = () => {
    for (const span of of.querySelectorAll(".priced")) {
      const [cell, paid] = [span.closest("td"), price(span.closest("tr"))];
      const [gets, unit] = [(1000 * cell.dataset.value) / paid, span.dataset.unit];
      span.textContent = paid ? `${unit === "times" ? Number(gets.toPrecision(3)) : rate(gets, unit)} for 1,000` : "";
    }
  };
  const heads = [...of.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    const button = head.querySelector("button");
    if (!button) return;
    const words = button.textContent;
    button.onclick = () => {
      const priced = head.ariaSort === "descending" && !button.textContent.includes("price") && lines.some(price);
      const value = (line) => {
        const known = line.cells[at].dataset.value;
        return known === undefined || (priced && !price(line)) ? -1 : known / (priced ? price(line) : 1);
      };
      for (const each of heads) { each.ariaSort = null; if (each.querySelector("button")) each.querySelector("button").textContent = each.dataset.words; }
      head.ariaSort = "descending";
      button.textContent = words + (priced ? " for its price ▼" : " ▼");
      of.tBodies[0].append(...lines.sort((a, b) => value(b) - value(a)));
    };
    head.dataset.words = words;
  });
}
