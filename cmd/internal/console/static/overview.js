// The bars of the overview, drawn from the figures in its table.
import uPlot from "./vendor/uplot/uPlot.esm.js";

const table = document.getElementById("chart-table");
const box = document.getElementById("chart");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// short writes a number of the axis in the unit of the bars.
function short(unit, n) {
  if (unit === "seconds") return n >= 3600 ? +(n / 3600).toFixed(1) + " h" : n >= 60 ? Math.round(n / 60) + " min" : n + " s";
  const text = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: n < 1 ? 4 : 1}).format(n);
  return unit === "usd" ? "$" + text : text;
}

// read returns the periods, the names of the series, and the cells of each series.
function read() {
  const rows = [...table.tBodies[0].rows];
  const names = [...table.querySelectorAll("th[data-series]")].map((th) => th.textContent);
  return {
    periods: rows.map((row) => row.cells[0].textContent),
    names,
    cells: names.map((_, i) => rows.map((row) => row.cells[i + 2])),
  };
}

let chart = null;

function draw() {
  const {periods, names, cells} = read();
  const unit = table.dataset.unit;
  const values = cells.map((list) => list.map((td) => Number(JSON.parse(td.dataset.value)) || 0));
  // Each series stands on those before it; the highest is drawn first, and the lower ones over it.
  const sums = [];
  for (const [i, list] of values.entries()) sums.push(list.map((n, x) => n + (i > 0 ? sums[i - 1][x] : 0)));
  const order = names.map((_, i) => names.length - 1 - i);
  const bars = uPlot.paths.bars({size: [0.82, 60]});
  const ink = colour("--muted"), line = colour("--line");
  chart?.destroy();
  chart = new uPlot({
    width: Math.max(260, box.clientWidth), height: 300,
    scales: {
      x: {time: false, range: () => [-0.6, periods.length - 0.4]},
      y: {range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1]},
    },
    axes: [
      {stroke: ink, grid: {show: false}, ticks: {stroke: line}, space: 90, incrs: [1, 2, 5, 10, 20, 50], values: (_, splits) => splits.map((x) => periods[x] ?? "")},
      {stroke: ink, grid: {stroke: line}, ticks: {stroke: line}, size: 64, values: (_, splits) => splits.map((n) => short(unit, n))},
    ],
    series: [
      {label: table.tHead.rows[0].cells[0].textContent, value: (_, x) => periods[x] ?? ""},
      ...order.map((i) => ({
        label: names[i], fill: colour(`--series-${i + 1}`), stroke: colour(`--series-${i + 1}`), width: 0, paths: bars, points: {show: false},
        value: (_, __, ___, x) => x == null ? "" : cells[i][x].textContent || "0",
      })),
    ],
    cursor: {drag: {x: false, y: false}, points: {show: false}, y: false},
    legend: {markers: {width: 0}},
  }, [periods.map((_, x) => x), ...order.map((i) => sums[i])], box);
}

if (table && box && table.tBodies[0].rows.length > 0) {
  box.hidden = false;
  draw();
  document.getElementById("chart-figures").open = false;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = box.clientWidth;
  new ResizeObserver(() => {
    if (box.clientWidth === width) return;
    width = box.clientWidth;
    chart.setSize({width: Math.max(260, width), height: 300});
  }).observe(box);
}
