// Tables sort by the column whose heading is clicked, and printing shows what
// is folded; without this script the page only lacks that.
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const number = /^[<≥]?\s*([-+]?\d+(\.\d+)?(e[-+]?\d+)?)(?=$|[%\s])/; // not the start of an address or a time
  const value = (row, i) => {
    const cell = row.cells[i];
    const text = cell.dataset.sort ?? cell.textContent.trim();
    return { text, number: Number(number.exec(text)?.[1] ?? Infinity) }; // text comes after numbers
  };
  const compare = (a, b) => (a.number < b.number ? -1 : a.number > b.number ? 1 : a.text.localeCompare(b.text, "en", { numeric: true }));
  heads.forEach((head, i) => head.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const h of heads) h.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [value(row, i), row]);
    rows.sort(([a], [b]) => compare(a, b));
    if (down) rows.reverse();
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }));
}
