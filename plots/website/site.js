// The filters of the rules. With a device chosen, a rule's cell says what that device's rows say.
const [on, word, text] = ["on", "word", "text"].map((id) => document.getElementById(id));
const rules = [...document.querySelectorAll("#rules tbody tr")].map((line) => {
  const cell = line.querySelector("[data-all]");
  return { line, cell, all: cell.innerHTML, by: JSON.parse(line.dataset.on), words: line.querySelector("th").textContent };
});
function filter() {
  let shown = 0;
  for (const rule of rules) {
    if (on.value) rule.cell.textContent = rule.by[on.value] || "–";
    else rule.cell.innerHTML = rule.all;
    const holds = rule.cell.textContent.includes(word.value) && rule.words.toLowerCase().includes(text.value.toLowerCase());
    rule.line.hidden = !holds;
    shown += holds;
  }
  document.getElementById("count").textContent = shown === 1 ? "1 rule" : `${shown} rules`;
}
for (const box of [on, word, text]) box.addEventListener("input", filter);
