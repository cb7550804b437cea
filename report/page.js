// Tables sort by the column whose heading is clicked, and printing shows what
// is folded; without this script the page only lacks that.
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const number = /^[<≥]?\s*([-+]?\d+(\.\d+)?(e[-+]?\d+)?)(?=$|[%\s])/; // not the start of an address or a time
  const counts = heads.map((head) => head.classList.contains("n"));
  // A row may have one cell in place of its last values, with the reason.
  const value = (row, i) => {
    const cell = row.cells[Math.min(i, row.cells.length - 1)];
    const text = cell.dataset.sort ?? cell.textContent.trim();
    const found = number.exec(text);
    const missing = cell.colSpan > 1 || text === "" || text === "–" || (counts[i] && !found);
    return { row, text, missing, number: found ? Number(found[1]) : Infinity }; // text comes after numbers
  };
  const compare = (a, b) => (a.number < b.number ? -1 : a.number > b.number ? 1 : a.text.localeCompare(b.text, "en", { numeric: true }));
  heads.forEach((head, i) => {
    const button = document.createElement("button"); // for the keyboard and for screen readers
    button.append(...head.childNodes);
    head.append(button);
    head.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const rows = [...table.tBodies[0].rows].map((row) => value(row, i));
      rows.sort((a, b) => a.missing - b.missing || (down ? compare(b, a) : compare(a, b))); // missing values come last
      table.tBodies[0].append(...rows.map(({ row }) => row));
      for (const h of heads) h.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });
}
