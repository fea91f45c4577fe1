// The explorer of the latent space: latents in two dimensions, and the plans of chosen ones.

import * as api from "./api.js";
import { formatCost, prepare, ramp, theme } from "./canvas.js";
import { drawPlan, edgesOf } from "./plans.js";

const HIT = 10; // pixels

// Returns the rank of each cost from 0 (cheapest) to 1: most costs differ little, a few very much.
function rankShares(costs) {
  const sorted = [...new Set(costs)].sort((a, b) => a - b);
  const rank = new Map(sorted.map((cost, i) => [cost, i / (sorted.length - 1 || 1)]));
  return costs.map((cost) => rank.get(cost));
}

export class LatentExplorer {
  constructor() {
    this.canvas = document.getElementById("latent-map");
    this.status = document.getElementById("latent-status");
    this.places = ["a", "b"].map((letter) => ({
      canvas: document.getElementById(`plan-${letter}`),
      caption: document.getElementById(`caption-${letter}`),
      chosen: null, // index and plan
    }));
    this.canvas.addEventListener("mousemove", (event) => this.hover(this.nearest(event)));
    this.canvas.addEventListener("mouseleave", () => this.hover(null));
    this.canvas.addEventListener("click", (event) => this.choose(this.nearest(event), event.shiftKey || this.fillsRight()));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.clear();
  }

  clear() {
    this.job = null;
    this.layout = null;
    this.data = null;
    this.hovered = null;
    this.request = 0;
    for (const place of this.places) place.chosen = null;
    this.places[0].caption.textContent = "Choose a latent.";
    this.places[1].caption.textContent = "Choose another to compare.";
    this.draw();
  }

  show(job, layout) {
    if (this.job?.id !== job.id) this.clear();
    this.job = job;
    this.layout = layout;
  }

  async refresh() {
    if (!this.job) return;
    const id = this.job.id;
    try {
      const data = await api.getLatents(id);
      if (this.job?.id !== id) return;
      this.data = data;
      this.say();
    } catch {
      this.data = null;
      this.status.textContent = "This job has no record of its latents.";
    }
    this.draw();
  }

  say() {
    const { tried, dimensions, points } = this.data;
    if (!points.length) this.status.textContent = "No latents yet.";
    else this.status.textContent = `${tried.toLocaleString("en")} latents of ${dimensions} dimensions, seen along the two directions in which they vary most.`;
  }

  fillsRight() {
    return document.querySelector("input[name=place]:checked").value === "1";
  }

  // Returns a function from the plane of the latents to pixels.
  scale(width, height) {
    const centres = this.data.centres.flatMap(({ mean }) => mean.map(Math.abs));
    const extent = Math.max(1, this.data.extent, ...centres) * 1.08;
    const unit = Math.min(width, height) / (2 * extent);
    return { unit, place: ([x, y]) => [width / 2 + x * unit, height / 2 - y * unit] };
  }

  draw() {
    const { context, width, height } = prepare(this.canvas);
    const points = this.data?.points ?? [];
    if (points.length) {
      const colours = theme();
      const { unit, place } = this.scale(width, height);
      const shares = rankShares(points.map((point) => point[2]));
      const recent = Math.max(0, points.length - 48);
      points.forEach((point, i) => {
        const [x, y] = place(point);
        context.globalAlpha = i >= recent ? 1 : 0.45;
        context.fillStyle = ramp(shares[i], colours);
        context.beginPath();
        context.arc(x, y, i >= recent ? 4 : 2.6, 0, 2 * Math.PI);
        context.fill();
      });
      context.globalAlpha = 1;
      for (const { mean, radii, angle } of this.data.centres) {
        const [x, y] = place(mean);
        context.strokeStyle = colours.accent;
        context.lineWidth = 2;
        context.beginPath();
        context.ellipse(x, y, radii[0] * unit, radii[1] * unit, -angle, 0, 2 * Math.PI);
        context.stroke();
        context.beginPath();
        context.moveTo(x - 5, y);
        context.lineTo(x + 5, y);
        context.moveTo(x, y - 5);
        context.lineTo(x, y + 5);
        context.stroke();
      }
      const marks = [this.hovered, ...this.places.map((one) => one.chosen?.index)];
      context.strokeStyle = colours.focus;
      context.lineWidth = 2.5;
      for (const index of marks) {
        if (index === null || index === undefined || !points[index]) continue;
        const [x, y] = place(points[index]);
        context.beginPath();
        context.arc(x, y, 8, 0, 2 * Math.PI);
        context.stroke();
      }
    }
    this.drawPlans();
  }

  drawPlans() {
    const [a, b] = this.places.map((place) => place.chosen?.plan ?? null);
    this.places.forEach(({ canvas, chosen }, i) => {
      if (this.layout && chosen) drawPlan(canvas, this.layout, chosen.plan, i ? a : b);
      else prepare(canvas);
    });
  }

  nearest(event) {
    if (!this.data?.points.length) return null;
    const box = this.canvas.getBoundingClientRect();
    const { place } = this.scale(this.canvas.clientWidth, this.canvas.clientHeight);
    const [mouseX, mouseY] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    let least = HIT;
    this.data.points.forEach((point, index) => {
      const [x, y] = place(point);
      const distance = Math.hypot(x - mouseX, y - mouseY);
      if (distance <= least) [best, least] = [index, distance];
    });
    return best;
  }

  hover(index) {
    if (index === this.hovered) return;
    this.hovered = index;
    if (index !== null) this.status.textContent = `Latent ${index + 1}: cost ${formatCost(this.data.points[index][2])}.`;
    else if (this.data) this.say();
    this.draw();
  }

  async choose(index, isSecond) {
    if (index === null || !this.job) return;
    const place = this.places[isSecond ? 1 : 0];
    const request = ++this.request;
    place.caption.textContent = "The policy builds its plan ...";
    try {
      const found = await api.decodeLatent(this.job.id, index);
      if (request !== this.request) return;
      place.chosen = { index, plan: found.plan };
      place.caption.textContent = `Latent ${index + 1}, built greedily: cost ${formatCost(found.cost)}.`;
      this.compare();
    } catch (error) {
      place.caption.textContent = error.message;
    }
    this.draw();
  }

  compare() {
    const [a, b] = this.places.map((place) => place.chosen);
    if (!a || !b || this.layout.problem === "jssp") return;
    const known = edgesOf(this.layout, a.plan);
    const edges = [...edgesOf(this.layout, b.plan)];
    const different = edges.filter((edge) => !known.has(edge)).length;
    this.status.textContent = `The two plans differ in ${different} of ${edges.length} edges, which are highlighted.`;
  }

  key(event) {
    const count = this.data?.points.length ?? 0;
    if (!count) return;
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in moves) {
      const from = this.hovered ?? count - 1;
      this.hover((from + moves[event.key] + count) % count);
    } else if (event.key === "Enter") this.choose(this.hovered, event.shiftKey || this.fillsRight());
    else return;
    event.preventDefault();
  }
}
