"use strict";
/* Shared by all pages. Names are set as textContent only, and for Plotly they are escaped by page.label. */
const page = (() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  const percent = (value) => (missing(value) ? "–" : (100 * value).toFixed(1) + "\u202f%");
  const grouped = new Intl.NumberFormat("en-US");
  const count = (value) => grouped.format(value);
  const ratio = (part, whole) => (whole === 0 ? NaN : part / whole);
  /* A threshold without trailing zeros, from a text that selects the same scores as the exact threshold. */
  const short = (text) => (missing(text) || Number.isNaN(Number(text)) ? "–" : String(Number(text)));

  /* Escapes control characters and those that change the direction of writing. */
  const printable = (text) =>
    String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}]/gu, (character) => "\\u" + character.codePointAt(0).toString(16).padStart(4, "0"));
  /* Shortens the middle, as names often differ at their ends only. */
  const shortened = (text, length = 24) => {
    const end = Math.floor((length - 1) / 2);
    return text.length > length ? text.slice(0, length - 1 - end) + "…" + text.slice(text.length - end) : text;
  };

  /* Text for Plotly, which interprets some tags. */
  const label = (text) =>
    shortened(printable(text)).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /* Creates an element; children that are not elements become text. */
  function make(tag, attributes = {}, ...children) {
    const isSvg = ["svg", "rect", "path", "text", "g", "image", "title"].includes(tag);
    const element = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  /* Shows a rate in an element: as text, with all digits in data-value, and as its bar. */
  function show(element, value, text = percent(value)) {
    const full = missing(value) ? "" : String(value);
    element.dataset.value = full;
    element.title = full;
    const number = element.querySelector(".number") || element;
    if (number.textContent !== text) number.textContent = text;
    const fill = element.querySelector(".fill");
    if (fill) fill.style.setProperty("--share", missing(value) ? "0" : String(value));
  }

  /* Shows a count in an element. */
  function showCount(element, value) {
    element.dataset.value = String(value);
    element.textContent = count(value);
  }

  /* Elements with a data-column inside another, by column. */
  const columnCells = (element) =>
    Object.fromEntries([...element.querySelectorAll("[data-column]")].map((cell) => [cell.dataset.column, cell]));

  /* Shows the score threshold of the slider. */
  function showThreshold(threshold, text) {
    const output = byId("score-thr-value");
    output.textContent = short(text);
    output.dataset.value = missing(threshold) ? "" : String(threshold);
    byId("score-thr").setAttribute("aria-valuetext", output.textContent);
  }

  /* Connects the slider: move() shows the numbers at once, redraw() the charts in the next frame. */
  function onSlide(move, redraw) {
    let frame = 0;
    byId("score-thr").addEventListener("input", () => {
      move();
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(redraw);
    });
  }

  /* Which part of a list is shown: "First 50 of 120, …". */
  const shownPart = (shown, total, order) =>
    shown < total ? `First ${count(shown)} of ${count(total)}, ${order}.` : `All ${count(total)}, ${order}.`;

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
    body.append(...rows.map(({ row }) => row));
  }

  function sortable(table) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = cell.querySelector("button.sort");
      if (!button) return;
      button.addEventListener("click", () => {
        const first = cell.classList.contains("numeric") ? "descending" : "ascending";
        const other = first === "descending" ? "ascending" : "descending";
        const next = cell.getAttribute("aria-sort") === first ? other : first;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", next);
        sortRows(table, column, next === "ascending" ? 1 : -1);
      });
    });
  }

  /* Sorts by the current column again, after its numbers changed. */
  function sortAgain(table) {
    const cells = [...table.tHead.rows[0].cells];
    const column = cells.findIndex((cell) => cell.hasAttribute("aria-sort"));
    if (column >= 0) sortRows(table, column, cells[column].getAttribute("aria-sort") === "ascending" ? 1 : -1);
  }

  function searchable(field) {
    const table = byId(field.dataset.search);
    const output = document.querySelector(`[data-found="${field.dataset.search}"]`);
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      let found = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
        found += !row.hidden;
      }
      if (output) output.textContent = wanted ? `${count(found)} of ${count(table.tBodies[0].rows.length)}` : "";
    });
  }

  /* --- charts ------------------------------------------------------------------------------------------------ */

  const plots = [];
  const charts = new Promise((resolve) => {
    addEventListener("load", () => setTimeout(() => {
      const source = byId("plotly");
      source.replaceWith(make("script", {}, source.textContent)); // runs it
      resolve();
    }));
  });
  /* The page, and each chart, is aria-busy until it responds to clicks. */
  const main = byId("main");
  main.setAttribute("aria-busy", "true");
  charts.then(() => main.setAttribute("aria-busy", "false"));

  /* The colors of the current scheme: light, dark or print. */
  function colors() {
    const style = getComputedStyle(document.documentElement);
    const names = ["card", "ink", "soft", "line", "accent", "tp", "fp", "empty", "scale-tp", "scale-fp"];
    return Object.fromEntries(names.map((name) => [name.replace("-", "_"), style.getPropertyValue("--" + name).trim()]));
  }

  function layout(own) {
    const used = colors();
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

  /* Without zooming, a double click is two clicks. */
  const options = { displaylogo: false, displayModeBar: false, responsive: true, doubleClick: false };

  /* Draws a chart from describe(colors), which returns {data, layout}: once it comes near the viewport, and again when
     the color scheme changes. Calls ready() at the first drawing. Returns the function that draws it again. */
  function plot(element, describe, ready = () => {}) {
    let drawn = false;
    let newest = 0;
    const draw = () => {
      const number = ++newest;
      element.setAttribute("aria-busy", "true");
      const { data: traces, layout: own } = describe(colors());
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

  /* --- start ------------------------------------------------------------------------------------------------------- */

  const gaps = (values) => values.map((value) => (Number.isNaN(value) ? null : value)); // undefined values
  const marker = (x, y, color, symbol, name) => ({
    x: [x], y: [y], mode: "markers", marker: { color, size: 11, symbol }, hovertemplate: `${name}<br>%{x:.3f}, %{y:.3f}<extra></extra>`,
  });

  for (const title of document.querySelectorAll("main > section > h2")) {
    const link = make("a", { href: "#" + title.parentElement.id }, title.textContent);
    byId("contents").append(make("li", {}, link));
  }
  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("[data-search]").forEach(searchable);

  return { byId, data, missing, percent, count, ratio, short, printable, label, make, show, showCount, columnCells, showThreshold, onSlide, shownPart, sortAgain, plot, gaps, marker };
})();
