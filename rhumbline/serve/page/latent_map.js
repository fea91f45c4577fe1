// The map of the latents: a dot for each, and the distributions that the search draws from.

import { prepare, ramp, theme } from "./canvas.js";

const HIT = 10; // pixels
const RECENT = 48; // dots that count as new where steps are not known
const EXTENTS = [1.5, 3, 6, 12]; // of heat maps
const LEAST_EXTENT = 0.5; // half the width of the map, in units of the latent space

// Returns the share of cheaper latents for each cost: most costs differ little, a few very much.
function rankShares(costs) {
  const sorted = [...costs].sort((a, b) => a - b);
  const first = new Map();
  sorted.forEach((cost, i) => first.has(cost) || first.set(cost, i));
  const last = Math.max(1, first.get(sorted.at(-1)));
  return costs.map((cost) => first.get(cost) / last);
}

export class LatentMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.clear();
  }

  clear() {
    this.data = null;
    this.shares = [];
    this.box = null; // left, right, bottom, top; it only grows, so that the map keeps still
    this.hovered = null; // index of a point
    this.marked = []; // numbers of latents whose plans are shown
    this.moment = null; // index of a step; null: the present
    this.landscape = null; // costs of a grid over a two-dimensional space
  }

  // Returns how far a heat map must reach to lie under all dots, as the service offers it.
  extentNeeded() {
    const farthest = Math.max(...this.box.map(Math.abs));
    return EXTENTS.find((extent) => extent >= farthest) ?? EXTENTS.at(-1);
  }

  takeLandscape(landscape) {
    const { extent } = landscape;
    this.landscape = landscape;
    this.grow([extent, extent]);
    this.grow([-extent, -extent]);
  }

  grow([x, y]) {
    const [left, right, bottom, top] = this.box ?? [x, x, y, y];
    this.box = [Math.min(left, x), Math.max(right, x), Math.min(bottom, y), Math.max(top, y)];
  }

  take(data) {
    this.data = data;
    this.shares = rankShares(data.points.map((point) => point[2]));
    const means = data.steps.flatMap((step) => step.centres.map((centre) => centre.mean));
    for (const point of [...data.points, ...means]) this.grow(point);
  }

  // Returns how many latents had been tried at the moment that is shown.
  tried() {
    return this.moment === null ? this.data.tried : this.data.steps[this.moment].tried;
  }

  // Returns the number of the first latent of the step that is shown.
  firstRecent() {
    const { steps, tried } = this.data;
    if (steps.length < 2) return tried - RECENT;
    return steps[(this.moment ?? steps.length - 1) - 1]?.tried ?? 0;
  }

  best() {
    const tried = this.tried();
    return this.data.points.reduce((best, point) => (point[3] < tried && !(best?.[2] <= point[2]) ? point : best), null);
  }

  // Returns a function from the plane of the latents to pixels, and the pixels of a unit.
  scale() {
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const [left, right, bottom, top] = this.box;
    const unit = Math.min((width - 40) / Math.max(LEAST_EXTENT, right - left), (height - 40) / Math.max(LEAST_EXTENT, top - bottom));
    const [midX, midY] = [(left + right) / 2, (bottom + top) / 2];
    return { unit, place: ([x, y]) => [width / 2 + (x - midX) * unit, height / 2 - (y - midY) * unit] };
  }

  draw() {
    const { context } = prepare(this.canvas);
    if (!this.data?.points.length) return;
    const colours = theme();
    const scale = this.scale();
    if (this.landscape) this.drawLandscape(context, colours, scale);
    this.drawDots(context, colours, scale);
    const step = this.moment ?? this.data.steps.length - 1;
    if (step >= 0) this.drawCentres(context, colours, scale, step);
    this.drawMarks(context, colours, scale);
  }

  // Draws the cost of each latent of the grid as a square around it.
  drawLandscape(context, colours, { unit, place }) {
    const { extent, costs } = this.landscape;
    const palette = ramp(colours);
    const shares = rankShares(costs.flat());
    const side = (2 * extent) / (costs.length - 1);
    context.globalAlpha = 0.45;
    shares.forEach((share, i) => {
      const column = i % costs.length;
      const row = Math.floor(i / costs.length);
      const [x, y] = place([-extent + (column - 0.5) * side, -extent + (row + 0.5) * side]);
      context.fillStyle = palette[Math.round(63 * share)];
      const [left, top] = [Math.round(x), Math.round(y)];
      context.fillRect(left, top, Math.round(x + side * unit) - left, Math.round(y + side * unit) - top);
    });
    context.globalAlpha = 1;
  }

  drawDots(context, colours, { place }) {
    const palette = ramp(colours);
    const tried = this.tried();
    const recent = this.firstRecent();
    this.data.points.forEach((point, i) => {
      if (point[3] >= tried) return;
      const [x, y] = place(point);
      const isRecent = point[3] >= recent;
      context.globalAlpha = isRecent ? 1 : 0.5;
      context.fillStyle = palette[Math.round(63 * this.shares[i])];
      context.beginPath();
      context.arc(x, y, isRecent ? 4.5 : 2.6, 0, 2 * Math.PI);
      context.fill();
    });
    context.globalAlpha = 1;
  }

  // Draws the paths of the means up to a step, and the ellipses of that step.
  drawCentres(context, colours, { unit, place }, last) {
    const { steps } = this.data;
    context.strokeStyle = colours.accent;
    context.lineJoin = "round";
    steps[last].centres.forEach(({ mean, radii, angle }, component) => {
      context.lineWidth = 1.5;
      context.globalAlpha = 0.6;
      context.beginPath();
      for (const step of steps.slice(0, last + 1)) {
        const centre = step.centres[component];
        if (centre) context.lineTo(...place(centre.mean));
      }
      context.stroke();
      context.globalAlpha = 1;
      context.lineWidth = 2.5;
      const [x, y] = place(mean);
      context.beginPath();
      context.ellipse(x, y, Math.max(4, radii[0] * unit), Math.max(4, radii[1] * unit), -angle, 0, 2 * Math.PI);
      context.stroke();
    });
  }

  drawMarks(context, colours, { place }) {
    const best = this.best();
    if (best) drawStar(context, place(best), colours);
    const marked = this.data.points.filter((point) => this.marked.includes(point[3]));
    if (this.hovered !== null) marked.push(this.data.points[this.hovered]);
    context.strokeStyle = colours.focus;
    context.lineWidth = 2.5;
    for (const point of marked) {
      const [x, y] = place(point);
      context.beginPath();
      context.arc(x, y, 8, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // Returns the index of the dot at the mouse, or null.
  nearest(event) {
    if (!this.data?.points.length) return null;
    const frame = this.canvas.getBoundingClientRect();
    const { place } = this.scale();
    const tried = this.tried();
    let best = null;
    let least = HIT;
    this.data.points.forEach((point, index) => {
      const [x, y] = place(point);
      const distance = Math.hypot(x - (event.clientX - frame.left), y - (event.clientY - frame.top));
      if (point[3] < tried && distance <= least) [best, least] = [index, distance];
    });
    return best;
  }
}

function drawStar(context, [x, y], colours) {
  context.beginPath();
  for (let i = 0; i < 10; i++) {
    const radius = i % 2 ? 4 : 9;
    const angle = (i * Math.PI) / 5;
    context.lineTo(x + radius * Math.sin(angle), y - radius * Math.cos(angle));
  }
  context.closePath();
  context.fillStyle = colours.good;
  context.fill();
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.2;
  context.stroke();
}
