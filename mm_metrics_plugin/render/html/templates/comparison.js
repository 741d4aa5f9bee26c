"use strict";
const { byId, data, make, count, percent, missing, printable } = page;
const signed = (value) => {
  if (missing(value)) return "–";
  const text = (100 * value).toFixed(1);
  return Number(text) === 0 ? "±0.0" : (value < 0 ? "" : "+") + text;
};
const cssClass = (verdict, other = "note") => ({ better: "tp", worse: "fp" })[verdict] || other;
const number = (value, text) => make("td", { class: "numeric", "data-value": missing(value) ? "" : value, title: missing(value) ? null : value }, text);
const search = (table) => document.querySelector(`[data-search="${table}"]`).dispatchEvent(new Event("input"));

/* --- differences --------------------------------------------------------------------------------------------------- */

function chart(comparison, id) {
  const rows = comparison.overall.filter((row) => !missing(row.difference)).reverse();
  page.plot(byId(`chart-${id}`), (colors) => ({
    data: [{
      x: rows.map((row) => 100 * row.difference), y: rows.map((row) => row.title), mode: "markers",
      marker: { size: 9, color: rows.map((row) => colors[cssClass(row.verdict, "soft")]) },
      error_x: {
        type: "data", symmetric: false, thickness: 1.5, width: 4, color: colors.soft,
        array: rows.map((row) => 100 * (row.high - row.difference)), arrayminus: rows.map((row) => 100 * (row.difference - row.low)),
      },
      hovertext: rows.map((row) => `${row.title}: ${signed(row.difference)}<br>${row.interval}`),
      hovertemplate: "%{hovertext}<extra></extra>",
    }],
    layout: {
      height: 70 + 30 * rows.length, margin: { l: 8, r: 16, t: 8, b: 44 },
      xaxis: { title: { text: "difference in percentage points" }, rangemode: "tozero", zeroline: true, zerolinewidth: 2, zerolinecolor: colors.soft },
    },
  }));
}

function classes(comparison, id) {
  const select = byId(`metric-${id}`);
  const table = byId(`classes-${id}`);
  function fill() {
    const { rows } = comparison.per_class[Number(select.value)];
    table.tBodies[0].replaceChildren(...rows.map((row, label) => make("tr", {},
      make("th", { scope: "row", class: "name" }, printable(data.labels[label])),
      number(row.first, percent(row.first)),
      number(row.second, percent(row.second)),
      number(row.difference, signed(row.difference)),
      number(row.low, row.interval),
      number(row.p, row.p_text),
      make("td", { class: cssClass(row.verdict) }, row.verdict_text))));
    page.sortAgain(table);
    search(table.id);
  }
  select.addEventListener("change", fill);
  fill();
}

/* --- images on which the runs disagree ----------------------------------------------------------------------------- */

function images(comparison, id) {
  const { name, image, worse, first, second, counts, ground_truth: truth, predictions, confidences } = comparison.images;
  const table = byId(`images-${id}`);
  const className = (label) => printable(data.labels[label]);
  const runs = [printable(comparison.first), printable(comparison.second)];
  const headings = truth
    ? [["ground truth", ""], ...runs.flatMap((run) => [[run, ""], ["confidence", "numeric"]])]
    : runs.flatMap((run) => [[`${run}: TP`, "numeric"], ["FP", "numeric"], ["FN", "numeric"]]);
  table.tHead.rows[0].append(...[["", ""], ...headings].map(([title, css]) => make("th", { scope: "col", class: css }, title)));

  function cells(place) {
    if (!truth) return [first, second].flatMap((run) => run.map((part) => number(part[place], count(part[place]))));
    return [
      make("td", { class: "name" }, className(truth[place])),
      ...[0, 1].flatMap((run) => [
        make("td", { class: predictions[run][place] === truth[place] ? "name tp" : "name fp" }, className(predictions[run][place])),
        number(confidences[run][place], confidences[run][place].toFixed(4)),
      ]),
    ];
  }

  function heading(place) {
    const uri = data.thumbnails[image[place]];
    return make("th", { scope: "row", class: "name" }, uri && make("img", { class: "small", src: uri, alt: "" }), printable(name[place]));
  }

  const which = byId(`which-${id}`);
  function fill() {
    const wanted = which.querySelector("input:checked").value;
    const places = name.map((_, place) => place).filter((place) => worse[place] === (wanted === "worse"));
    const order = truth ? "highest confidence of the wrong prediction first" : "largest difference in errors first";
    byId(`images-summary-${id}`).dataset.value = String(counts[wanted]);
    byId(`images-summary-${id}`).textContent = counts[wanted] === 0 ? "None." : page.shownPart(places.length, counts[wanted], order);
    table.hidden = counts[wanted] === 0;
    table.tBodies[0].replaceChildren(...places.map((place) => make("tr", {}, heading(place), ...cells(place))));
    search(table.id);
  }
  which.addEventListener("change", fill);
  fill();
}

data.comparisons.forEach((comparison, id) => {
  chart(comparison, id);
  classes(comparison, id);
  images(comparison, id);
});
