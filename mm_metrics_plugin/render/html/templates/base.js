"use strict";
/* What all pages share. Names reach the page by textContent only, and plotly's labels through page.label. */
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  const percent = (value) => (missing(value) ? "–" : (100 * value).toFixed(1) + "\u202f%");
  const grouped = new Intl.NumberFormat("en-US");
  const count = (value) => grouped.format(value);
  const ratio = (part, whole) => (whole === 0 ? NaN : part / whole);

  /* Signs that could move a cursor or turn the writing round are written out. */
  const printable = (text) =>
    String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}]/gu, (sign) => "\\u" + sign.codePointAt(0).toString(16).padStart(4, "0"));
  /* In the middle, as names often differ at their ends only. */
  const shortened = (text, most = 24) => {
    const end = Math.floor((most - 1) / 2);
    return text.length > most ? text.slice(0, most - 1 - end) + "…" + text.slice(text.length - end) : text;
  };

  /* Text for plotly, which would take some tags in it for its own. */
  const label = (text, most) =>
    shortened(printable(text), most).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /* An element with attributes and children; children that are no elements are text. */
  function make(tag, attributes = {}, ...children) {
    const drawn = ["svg", "rect", "text", "g", "image", "title"].includes(tag);
    const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  /* Puts a share into an element: for reading as text, in full as data-value. */
  function show(element, value, text = percent(value)) {
    const full = missing(value) ? "" : String(value);
    element.dataset.value = full;
    element.title = full;
    const number = element.querySelector(".number") || element;
    if (number.textContent !== text) number.textContent = text;
    const fill = element.querySelector(".fill");
    if (fill) fill.style.setProperty("--share", missing(value) ? "0" : String(value));
  }

  /* --- tables ------------------------------------------------------------------------------------------------ */

  const key = (cell) => (cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value);

  function sortRows(table, column, direction) {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, place) => ({ row, place, key: key(row.cells[column]) }));
    const numeric = table.tHead.rows[0].cells[column].classList.contains("numeric");
    rows.sort((a, b) => {
      if (a.key === "" || b.key === "") return (a.key === "") - (b.key === "") || a.place - b.place; // undefined last
      const order = numeric ? Number(a.key) - Number(b.key) : a.key.localeCompare(b.key, "en", { numeric: true });
      return direction * order || a.place - b.place;
    });
    body.append(...rows.map((one) => one.row));
  }

  function sortable(table) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = cell.querySelector("button.sort");
      if (!button) return;
      button.addEventListener("click", () => {
        const first = cell.classList.contains("numeric") ? "descending" : "ascending";
        const other = first === "descending" ? "ascending" : "descending";
        const next = cell.getAttribute("aria-sort") === first ? other : first;
        for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", next);
        sortRows(table, column, next === "ascending" ? 1 : -1);
      });
    });
  }

  /* Sorts again by the column it is sorted by, after its numbers moved. */
  function sortAgain(table) {
    const cells = [...table.tHead.rows[0].cells];
    const column = cells.findIndex((cell) => cell.hasAttribute("aria-sort"));
    if (column >= 0) sortRows(table, column, cells[column].getAttribute("aria-sort") === "ascending" ? 1 : -1);
  }

  function searchable(field) {
    const table = document.getElementById(field.dataset.search);
    const said = document.querySelector(`[data-found="${field.dataset.search}"]`);
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      let found = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
        found += !row.hidden;
      }
      if (said) said.textContent = wanted ? `${count(found)} of ${count(table.tBodies[0].rows.length)}` : "";
    });
  }

  /* --- charts ------------------------------------------------------------------------------------------------ */

  const plots = [];
  const charts = new Promise((resolve) => {
    addEventListener("load", () => setTimeout(() => {
      const source = document.getElementById("plotly");
      source.replaceWith(make("script", {}, source.textContent)); // runs it
      resolve();
    }));
  });
  /* The page, and each chart, is aria-busy until it answers to a click. */
  const main = document.getElementById("main");
  main.setAttribute("aria-busy", "true");
  charts.then(() => main.setAttribute("aria-busy", "false"));

  /* The colours in use: light, dark or for paper. */
  function colours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["back", "card", "ink", "soft", "line", "accent", "good", "bad", "miss", "empty", "scale-good", "scale-bad"];
    return Object.fromEntries(names.map((name) => [name.replace("-", "_"), style.getPropertyValue("--" + name).trim()]));
  }

  function layout(own) {
    const used = colours();
    const axis = { gridcolor: used.line, zerolinecolor: used.line, linecolor: used.line, automargin: true };
    const result = {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: used.ink },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: 8, t: 8, b: 8 },
      dragmode: false, // a finger on a chart scrolls the page
      hoverlabel: { bgcolor: used.card, bordercolor: used.line, font: { color: used.ink }, align: "left" },
      ...own,
    };
    for (const name of ["xaxis", "yaxis"]) result[name] = { ...axis, ...own[name] };
    return result;
  }

  /* Nothing is zoomed, so a double click is two clicks. */
  const options = { displaylogo: false, displayModeBar: false, responsive: true, doubleClick: false };

  /* Draws into an element what describe(colours) says ({data, layout}), once it comes near the window, and again
     whenever the colours change. Calls ready() when it is first drawn. Returns the function that draws it anew. */
  function plot(element, describe, ready = () => {}) {
    let drawn = false;
    let newest = 0;
    const draw = () => {
      const number = ++newest;
      element.setAttribute("aria-busy", "true");
      const { data: traces, layout: own } = describe(colours());
      const finished = Plotly.react(element, traces, layout(own), options);
      if (!drawn) ready();
      drawn = true;
      finished.then(() => number === newest && element.setAttribute("aria-busy", "false"));
    };
    element.setAttribute("aria-busy", "true");
    plots.push(draw);
    const watch = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watch.disconnect();
      charts.then(() => drawn || draw());
    }, { rootMargin: "400px" });
    watch.observe(element);
    return () => drawn && draw();
  }

  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", () => charts.then(() => plots.forEach((draw) => draw())));
  }

  /* --- when the page is there ---------------------------------------------------------------------------------- */

  for (const title of document.querySelectorAll("main > section > h2")) {
    const link = make("a", { href: "#" + title.parentElement.id }, title.textContent);
    document.getElementById("contents").append(make("li", {}, link));
  }
  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("[data-search]").forEach(searchable);

  return { data, percent, count, ratio, printable, label, make, show, sortable, sortAgain, plot };
})();
