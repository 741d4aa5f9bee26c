"use strict";
const { data, make, count, percent } = page;
const byId = (id) => document.getElementById(id);
const missing = (value) => value === null || Number.isNaN(value);
const signed = (value) => {
  if (missing(value)) return "–";
  const text = (100 * value).toFixed(1);
  return Number(text) === 0 ? "±0.0" : (value < 0 ? "" : "+") + text;
};
const colour = (verdict) => ({ better: "good", worse: "bad" })[verdict] || "note";
const number = (value, text, more = {}) => make("td", { class: "numeric", "data-value": missing(value) ? "" : value, title: missing(value) ? null : value, ...more }, text);

/* --- the differences ----------------------------------------------------------------------------------------------- */

function chart(versus, id) {
  const rows = [...versus.overall].reverse();
  page.plot(byId(`chart-${id}`), (colours) => ({
    data: [{
      x: rows.map((row) => 100 * row.difference), y: rows.map((row) => row.title), mode: "markers",
      marker: { size: 9, color: rows.map((row) => colours[{ better: "good", worse: "bad" }[row.verdict] || "soft"]) },
      error_x: {
        type: "data", symmetric: false, thickness: 1.5, width: 4, color: colours.soft,
        array: rows.map((row) => 100 * (row.high - row.difference)), arrayminus: rows.map((row) => 100 * (row.difference - row.low)),
      },
      hovertext: rows.map((row) => `${row.title}: ${signed(row.difference)}<br>${row.interval}`),
      hovertemplate: "%{hovertext}<extra></extra>",
    }],
    layout: {
      height: 70 + 30 * rows.length, margin: { l: 8, r: 16, t: 8, b: 44 },
      xaxis: { title: { text: "difference in percentage points" }, rangemode: "tozero", zeroline: true, zerolinewidth: 2, zerolinecolor: colours.soft },
    },
  }));
}

function classes(versus, id) {
  const chosen = byId(`metric-${id}`);
  const table = byId(`classes-${id}`);
  function fill() {
    const { rows } = versus.per_class[Number(chosen.value)];
    table.tBodies[0].replaceChildren(...rows.map((row, place) => make("tr", {},
      make("th", { scope: "row", class: "name" }, page.printable(data.labels[place])),
      number(row.first, percent(row.first)),
      number(row.second, percent(row.second)),
      number(row.difference, signed(row.difference)),
      number(row.low, row.interval),
      number(row.p, row.p_said),
      make("td", { class: colour(row.verdict) }, row.words))));
    page.sortAgain(table);
    document.querySelector(`[data-search="classes-${id}"]`).dispatchEvent(new Event("input"));
  }
  chosen.addEventListener("change", fill);
  fill();
}

/* --- the images on which they disagree ----------------------------------------------------------------------------- */

function images(versus, id) {
  const { name, image, worse, first, second, counts, truth, said, sure } = versus.images;
  const table = byId(`images-${id}`);
  const label = (index) => page.printable(data.labels[index]);
  const runs = [page.printable(versus.first), page.printable(versus.second)];
  const heads = truth
    ? [["ground truth", ""], ...runs.flatMap((run) => [[run, ""], ["confidence", "numeric"]])]
    : runs.flatMap((run) => [[`${run}: TP`, "numeric"], ["FP", "numeric"], ["FN", "numeric"]]);
  table.tHead.rows[0].append(...[["", ""], ...heads].map(([title, kind]) => make("th", { scope: "col", class: kind }, title)));

  function cells(place) {
    if (!truth) return [first, second].flatMap((run) => run.map((part) => number(part[place], count(part[place]))));
    return [
      make("td", { class: "name" }, label(truth[place])),
      ...[0, 1].flatMap((run) => [
        make("td", { class: said[run][place] === truth[place] ? "name good" : "name bad" }, label(said[run][place])),
        number(sure[run][place], sure[run][place].toFixed(4)),
      ]),
    ];
  }

  function title(place) {
    const uri = data.pictures[image[place]];
    const text = page.printable(name[place]);
    return make("th", { scope: "row", class: "name" }, ...(uri ? [make("img", { class: "small", src: uri, alt: "" })] : []), text);
  }

  const which = byId(`which-${id}`);
  function fill() {
    const wanted = which.querySelector("input:checked").value;
    const places = name.map((_, place) => place).filter((place) => worse[place] === (wanted === "worse"));
    const total = counts[wanted];
    const rule = truth ? "of the wrong ones the highest confidence first" : "the greatest difference in errors first";
    byId(`images-said-${id}`).textContent =
      total === 0 ? "None." : places.length < total ? `The first ${count(places.length)} of ${count(total)}, ${rule}.` : `All ${count(total)}, ${rule}.`;
    table.hidden = total === 0;
    table.tBodies[0].replaceChildren(...places.map((place) => make("tr", {}, title(place), ...cells(place))));
    document.querySelector(`[data-search="images-${id}"]`).dispatchEvent(new Event("input"));
  }
  which.addEventListener("change", fill);
  fill();
}

data.versus.forEach((versus, id) => {
  chart(versus, id);
  classes(versus, id);
  images(versus, id);
});
