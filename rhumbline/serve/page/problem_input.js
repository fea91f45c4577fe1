// Where a problem comes from: an example, a file, pasted coordinates or a drawing.
// `readProblem` returns the fields of a job, or throws an Error that says what is missing.

import { prepare, theme } from "./canvas.js";

// Numbers that are the same on every visit (mulberry32).
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const randomPoints = (count, next) => Array.from({ length: count }, () => [Math.round(1000 * next()), Math.round(1000 * next())]);

function randomTour(count) {
  return { name: `random${count}`, coordinates: randomPoints(count, random(count)) };
}

function randomRoutes(count) {
  const next = random(count);
  const demands = Array.from({ length: count }, () => 1 + Math.floor(9 * next()));
  return { name: `deliveries${count}`, depot: [500, 500], customers: randomPoints(count, next), demands, capacity: 50 };
}

function randomShop(jobs, machines) {
  const next = random(jobs * 100 + machines);
  const rows = Array.from({ length: jobs }, () => {
    const order = Array.from({ length: machines }, (_, machine) => [next(), machine]).sort((a, b) => a[0] - b[0]);
    return order.map(([, machine]) => machine);
  });
  const durations = rows.map((row) => row.map(() => 1 + Math.floor(99 * next())));
  return { name: `shop${jobs}x${machines}`, durations, machines: rows };
}

const EXAMPLES = [
  ["Tour of 100 cities", () => randomTour(100)],
  ["Tour of 500 cities", () => randomTour(500)],
  ["Tour of 1,000 cities", () => randomTour(1000)],
  ["Vehicle routes, 60 customers", () => randomRoutes(60)],
  ["Vehicle routes, 200 customers", () => randomRoutes(200)],
  ["Job shop, 10 jobs on 10 machines", () => randomShop(10, 10)],
];

export class ProblemInput {
  constructor() {
    this.file = null;
    this.points = [];
    this.cross = [0.5, 0.5];
    this.source = "example";
    this.prepareTabs();
    this.prepareExamples();
    this.prepareFile();
    this.prepareSketch();
  }

  prepareTabs() {
    const tabs = [...document.querySelectorAll("[role=tab]")];
    const select = (tab) => {
      for (const other of tabs) {
        const isChosen = other === tab;
        other.setAttribute("aria-selected", String(isChosen));
        other.tabIndex = isChosen ? 0 : -1;
        document.getElementById(other.getAttribute("aria-controls")).hidden = !isChosen;
      }
      this.source = tab.id.replace("tab-", "");
      if (this.source === "draw") this.drawSketch();
    };
    this.selectSource = (name) => select(document.getElementById(`tab-${name}`));
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => select(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = tabs[(i + step + tabs.length) % tabs.length];
        select(next);
        next.focus();
        event.preventDefault();
      });
    });
  }

  prepareExamples() {
    const list = document.getElementById("example");
    EXAMPLES.forEach(([label], i) => list.add(new Option(label, i)));
  }

  prepareFile() {
    const drop = document.getElementById("drop");
    document.getElementById("file").addEventListener("change", (event) => this.takeFile(event.target.files[0]));
    const stop = (event) => event.preventDefault();
    window.addEventListener("dragover", (event) => {
      stop(event);
      drop.classList.add("over");
    });
    window.addEventListener("dragleave", () => drop.classList.remove("over"));
    window.addEventListener("drop", (event) => {
      stop(event);
      drop.classList.remove("over");
      this.selectSource("file");
      this.takeFile(event.dataTransfer.files[0]);
    });
  }

  async takeFile(file) {
    if (!file) return;
    this.file = { name: file.name, text: await file.text() };
    document.getElementById("file-name").textContent = `${file.name}, ${file.size.toLocaleString("en")} bytes`;
  }

  prepareSketch() {
    this.sketch = document.getElementById("sketch");
    const position = (event) => {
      const box = this.sketch.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    this.sketch.addEventListener("pointerdown", (event) => this.addPoint(position(event)));
    this.sketch.addEventListener("keydown", (event) => this.sketchKey(event));
    document.getElementById("clear-sketch").addEventListener("click", () => {
      this.points = [];
      this.drawSketch();
    });
  }

  addPoint(point) {
    if (this.points.length < 1000) this.points.push(point);
    this.drawSketch();
  }

  sketchKey(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) this.cross = this.cross.map((value, i) => Math.min(1, Math.max(0, value + 0.02 * step[i])));
    else if (event.key === "Enter" || event.key === " ") this.addPoint([...this.cross]);
    else if (event.key === "Backspace") this.points.pop();
    else return;
    event.preventDefault();
    this.drawSketch();
  }

  drawSketch() {
    const { context, width, height } = prepare(this.sketch);
    const colours = theme();
    context.fillStyle = colours.ink;
    for (const [x, y] of this.points) {
      context.beginPath();
      context.arc(x * width, y * height, 3.5, 0, 2 * Math.PI);
      context.fill();
    }
    const [x, y] = [this.cross[0] * width, this.cross[1] * height];
    context.strokeStyle = colours.quiet;
    context.beginPath();
    context.moveTo(x - 6, y);
    context.lineTo(x + 6, y);
    context.moveTo(x, y - 6);
    context.lineTo(x, y + 6);
    context.stroke();
    document.getElementById("sketch-count").textContent = `${this.points.length} points`;
  }

  readProblem() {
    if (this.source === "example") return EXAMPLES[Number(document.getElementById("example").value)][1]();
    if (this.source === "file") {
      if (!this.file) throw new Error("Choose a file first.");
      return this.file;
    }
    if (this.source === "draw") {
      if (this.points.length < 2) throw new Error("Draw two points at least.");
      const box = this.sketch;
      const round = (value) => Math.round(10 * value) / 10;
      const coordinates = this.points.map(([x, y]) => [round(x * box.clientWidth), round((1 - y) * box.clientHeight)]);
      return { name: "drawing", coordinates };
    }
    return pastedProblem(document.getElementById("pasted").value, Number(document.getElementById("capacity").value));
  }
}

// Returns the problem of pasted lines: "x y" each, or "x y demand" with the depot first.
function pastedProblem(text, capacity) {
  const rows = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const table = rows.map((line) => line.split(/[\s,;]+/).map(Number));
  const bad = table.findIndex((row) => row.some(Number.isNaN) || row.length !== table[0].length || row.length < 2 || row.length > 3);
  if (bad >= 0) throw new Error(`Line ${bad + 1} is "${rows[bad].slice(0, 40)}"; expected two numbers, or three with a demand.`);
  if (table.length < 2) throw new Error("Paste two points at least.");
  if (table[0].length === 2) return { name: "pasted", coordinates: table };
  const [depot, ...customers] = table;
  return {
    name: "pasted",
    depot: depot.slice(0, 2),
    customers: customers.map((row) => row.slice(0, 2)),
    demands: customers.map((row) => row[2]),
    capacity,
  };
}
