"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const filters = document.getElementById("filters");
  const panel = document.getElementById("detail");
  const selects = Array.from(filters.querySelectorAll("select"));
  const tables = Array.from(document.querySelectorAll("table.lead, table.paper"));
  let state = new URLSearchParams();

  // The column of each cell of a row; the error and the retained part belong to the value before them.
  const columns = (row) => {
    const found = [];
    let last = "";
    for (const cell of row.cells) {
      last = cell.dataset.x || (cell.matches(".se, .ret") ? last : "");
      found.push(last);
    }
    return found;
  };
  // A mean is shown where all that it is over is shown.
  const kept = (column) =>
    !column ||
    ["task", "backend"].every((name) => {
      const wanted = state.get(name);
      return !wanted || data.columns[column][name].every((own) => own === wanted);
    });

  // Rows of values; a block's heading and foot have no variant.
  const rowsOf = (body) => Array.from(body.rows).filter((row) => row.dataset.v);
  const isDense = (row) => data.rows[row.dataset.v].method === data.dense;

  const filterTable = (table) => {
    const rows = Array.from(table.tBodies).flatMap(rowsOf);
    if (!rows.length) return;
    const shown = columns(rows[0]).map(kept);
    const wanted = state.get("method");
    for (const row of rows)
      row.hidden = Boolean(wanted) && data.rows[row.dataset.v].method !== wanted && !isDense(row);
    for (const row of table.rows) {
      let place = 0;
      for (const cell of row.cells) {
        const span = Number(cell.dataset.span || (cell.dataset.span = cell.colSpan));
        const left = shown.slice(place, place + span).filter(Boolean).length;
        cell.hidden = !left;
        cell.colSpan = Math.max(left, 1);
        place += span;
      }
    }
  };

  const filter = () => {
    const unlike = (name, value) => Boolean(state.get(name)) && state.get(name) !== value;
    for (const section of document.querySelectorAll("section[data-model]"))
      section.hidden = unlike("model", section.dataset.model);
    for (const part of document.querySelectorAll("[data-budget]"))
      part.hidden = unlike("budget", part.dataset.budget);
    tables.forEach(filterTable);
    for (const select of selects) {
      select.value = state.get(select.name) || "";
      if (select.selectedIndex < 0) select.value = "";
    }
    const all = tables.flatMap((table) => Array.from(table.tBodies).flatMap(rowsOf));
    const visible = all.filter((row) => !row.closest("[hidden]")).length;
    filters.querySelector("output").textContent =
      visible < all.length ? `${visible} of ${all.length} rows` : `${all.length} rows`;
  };

  // What a cell is sorted by: the unrounded number that it names, else its text.
  const order = (cell) => {
    const named = cell.matches("[title]") ? cell : cell.querySelector("[title]");
    const text = cell.classList.contains("name") || !named ? cell.textContent.trim() : named.title;
    if (/^-?inf/.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
    const number = parseFloat(text);
    return cell.classList.contains("name") ? text : number;
  };
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  const leaves = (table) => Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
  const start = (cells, place) =>
    cells.slice(0, place).reduce((sum, cell) => sum + Number(cell.dataset.span || cell.colSpan), 0);
  const rising = (head) => !head.matches(".ret") && !head.textContent.includes("↑");

  const sortTable = (table, place, direction) => {
    const heads = leaves(table);
    heads.forEach((head, number) => {
      const way = number === place ? direction : "";
      head.setAttribute("aria-sort", way ? (way === "up" ? "ascending" : "descending") : "none");
    });
    const at = start(heads, place);
    const sign = direction === "down" ? -1 : 1;
    for (const body of table.tBodies) {
      const rows = rowsOf(body);
      const keys = new Map(rows.map((row) => [row, order(row.cells[at])]));
      const hole = (row) => (Number.isNaN(keys.get(row)) ? 1 : 0);
      const after = rows.length && rows[rows.length - 1].nextSibling;
      rows.sort((a, b) =>
        isDense(b) - isDense(a) ||
        (direction &&
          (hole(a) - hole(b) || (hole(a) ? 0 : sign * compare(keys.get(a), keys.get(b))))) ||
        Number(a.dataset.place) - Number(b.dataset.place)
      );
      for (const row of rows) body.insertBefore(row, after);
    }
  };

  const sort = () => {
    const [table, place, direction] = (state.get("sort") || "").split(".");
    tables.forEach((one, number) => {
      const own = String(number) === table && leaves(one)[Number(place)];
      if (own || one.dataset.sorted) sortTable(one, own ? Number(place) : 0, own ? direction : "");
      one.dataset.sorted = own ? "yes" : "";
    });
  };

  const element = (name, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const list = (pairs) => {
    const made = element("dl");
    for (const [name, value] of pairs)
      made.append(element("dt", name.replaceAll("_", " ")), element("dd", value));
    return made;
  };

  const show = () => {
    const [key, number] = (state.get("cell") || "").split(".");
    const row = Object.hasOwn(data.rows, key) && data.rows[key];
    const cell = row && Object.hasOwn(row.cells, number) && row.cells[number];
    for (const one of document.querySelectorAll(".chosen")) one.classList.remove("chosen");
    panel.hidden = !cell;
    if (!cell) return;
    for (const one of document.querySelectorAll(`tr[data-v="${key}"] td[data-x="${number}"]`))
      one.classList.add("chosen");
    const column = data.columns[number];
    panel.querySelector("h2").textContent = `${row.name}: ${column.name}, ${column.metric}`;
    const body = panel.querySelector("div");
    body.replaceChildren(
      list(Object.entries(cell)),
      element("h3", "key"),
      list(column.key.length ? column.key : [["mean of", column.task.join(", ")]]),
      element("h3", "row"),
      list(row.facts)
    );
    if (row.files.length)
      body.append(
        element("h3", "scores of each document"),
        element("p", `${row.files.join(", ")} in the store:`),
        element("pre", `SELECT * FROM 'STORE/samples/*.parquet' WHERE plan_id = '${row.plan}'`)
      );
  };

  const apply = () => { filter(); sort(); show(); };
  const read = () => {
    state = new URLSearchParams(location.hash.slice(1));
    apply();
    const chosen = document.querySelector(".chosen");
    if (chosen) chosen.scrollIntoView({ block: "center" });
  };
  const set = (name, value) => {
    if (value) state.set(name, value);
    else state.delete(name);
    history.replaceState(null, "", `#${state}`);
    apply();
  };

  const headOf = (target) => {
    const head = target.closest(".lead thead tr:last-child th, .paper thead tr:last-child th");
    return head && { table: head.closest("table"), head };
  };
  const act = (target) => {
    const head = headOf(target);
    if (head) {
      const place = leaves(head.table).indexOf(head.head);
      const ways = rising(head.head) ? ["up", "down"] : ["down", "up"];
      const now = { ascending: "up", descending: "down" }[head.head.getAttribute("aria-sort")];
      const next = now ? ways[ways.indexOf(now) + 1] : ways[0];
      set("sort", next ? `${tables.indexOf(head.table)}.${place}.${next}` : "");
      return true;
    }
    const cell = target.closest("td[data-x]");
    if (!cell) return false;
    const chosen = `${cell.parentElement.dataset.v}.${cell.dataset.x}`;
    set("cell", state.get("cell") === chosen ? "" : chosen);
    return true;
  };

  for (const table of tables) {
    Array.from(table.rows).forEach((row, place) => { row.dataset.place = place; });
    for (const head of leaves(table)) {
      head.tabIndex = 0;
      head.setAttribute("aria-sort", "none");
    }
    for (const cell of table.querySelectorAll("td[data-x]")) cell.tabIndex = 0;
  }
  document.documentElement.classList.add("live");
  filters.hidden = false;
  for (const select of selects) select.addEventListener("change", () => set(select.name, select.value));
  document.addEventListener("click", (event) => act(event.target));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") set("cell", "");
    else if ((event.key === "Enter" || event.key === " ") && act(event.target)) event.preventDefault();
  });
  panel.querySelector("button").addEventListener("click", () => set("cell", ""));
  window.addEventListener("hashchange", read);
  read();
})();
