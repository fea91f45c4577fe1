// The explorer of the latent space: latents in two dimensions, and the plans of chosen ones.

import * as api from "./api.js";
import { LatentMap } from "./latent_map.js";
import { formatCost, prepare } from "./canvas.js";
import { drawPlan, edgesOf } from "./plans.js";

const REPLAY_SECONDS = 8;

export class LatentExplorer {
  constructor() {
    this.map = new LatentMap(document.getElementById("latent-map"));
    this.status = document.getElementById("latent-status");
    this.slider = document.getElementById("moment");
    this.button = document.getElementById("replay");
    this.places = ["a", "b"].map((letter) => ({
      canvas: document.getElementById(`plan-${letter}`),
      caption: document.getElementById(`caption-${letter}`),
      chosen: null, // number and plan
    }));
    const { canvas } = this.map;
    canvas.addEventListener("mousemove", (event) => this.hover(this.map.nearest(event)));
    canvas.addEventListener("mouseleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => this.choose(this.map.nearest(event), event.shiftKey || this.fillsRight()));
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.slider.addEventListener("input", () => this.moveTo(Number(this.slider.value)));
    this.button.addEventListener("click", () => (this.timer ? this.pause() : this.replay()));
    this.clear();
  }

  clear() {
    this.job = null;
    this.layout = null;
    this.request = 0;
    this.askedExtent = 0; // of the heat map
    this.pause();
    this.map.clear();
    document.getElementById("replay-row").hidden = true;
    for (const place of this.places) place.chosen = null;
    this.places[0].caption.textContent = "Click a dot above.";
    this.places[1].caption.textContent = "Another one to compare.";
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
      if (this.job?.id === id) this.take(data);
    } catch {
      this.map.clear();
      this.map.draw();
      this.status.textContent = "This job has no record of its latents.";
    }
  }

  take(data) {
    const last = data.steps.length - 1;
    const isLive = Number(this.slider.value) >= Number(this.slider.max);
    this.slider.max = Math.max(0, last);
    if (isLive) this.slider.value = this.slider.max;
    document.getElementById("replay-row").hidden = last < 1;
    this.map.take(data);
    this.map.moment = isLive ? null : Number(this.slider.value);
    if (this.map.hovered === null) this.say();
    this.map.draw();
    if (data.dimensions === 2) this.fetchLandscape(this.job.id);
  }

  // Fetches the heat map under the dots, which only latents of two dimensions have.
  async fetchLandscape(id) {
    const extent = this.map.extentNeeded();
    if (extent <= this.askedExtent) return;
    this.askedExtent = extent;
    try {
      const landscape = await api.getLandscape(id, extent);
      if (this.job?.id === id) this.map.takeLandscape(landscape);
    } catch (error) {
      this.status.textContent = error.message;
    }
    this.map.draw();
  }

  say() {
    const { data } = this.map;
    if (!data?.points.length) {
      this.status.textContent = "No latents yet.";
      return;
    }
    const seen = this.map.tried();
    const best = formatCost(this.map.best()?.[2]);
    const plane = data.dimensions > 2 ? ` They have ${data.dimensions} dimensions and are seen along the two in which they vary most.` : "";
    this.status.textContent = `${seen.toLocaleString("en")} latents tried, the best plan costs ${best}.${plane}`;
  }

  // Shows the search as it was at a step; the last step is the present.
  moveTo(step) {
    this.slider.value = step;
    this.map.moment = step >= Number(this.slider.max) ? null : step;
    this.say();
    this.map.draw();
  }

  replay() {
    const last = Number(this.slider.max);
    const pause = (1000 * REPLAY_SECONDS) / Math.max(20, last);
    let step = Number(this.slider.value) < last ? Number(this.slider.value) : 0;
    this.button.textContent = "Pause";
    this.timer = setInterval(() => {
      this.moveTo(step);
      step += 1;
      if (step > Number(this.slider.max)) this.pause();
    }, pause);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Replay";
  }

  fillsRight() {
    return document.querySelector("input[name=place]:checked").value === "1";
  }

  draw() {
    this.map.draw();
    this.drawPlans();
  }

  drawPlans() {
    const [a, b] = this.places.map((place) => place.chosen?.plan ?? null);
    this.places.forEach(({ canvas, chosen }, i) => {
      if (this.layout && chosen) drawPlan(canvas, this.layout, chosen.plan, i ? a : b);
      else prepare(canvas);
    });
  }

  hover(index) {
    if (index === this.map.hovered) return;
    this.map.hovered = index;
    const point = index === null ? null : this.map.data.points[index];
    if (point) this.status.textContent = `Latent ${point[3] + 1}: its best sampled plan costs ${formatCost(point[2])}.`;
    else this.say();
    this.map.draw();
  }

  async choose(index, isSecond) {
    if (index === null || !this.job) return;
    const place = this.places[isSecond ? 1 : 0];
    const number = this.map.data.points[index][3];
    const request = ++this.request;
    place.caption.textContent = "The policy builds its plan ...";
    try {
      const found = await api.decodeLatent(this.job.id, number);
      if (request !== this.request) return;
      place.chosen = { number, plan: found.plan };
      place.caption.textContent = `Latent ${number + 1}, built greedily: cost ${formatCost(found.cost)}.`;
      this.map.marked = this.places.map((one) => one.chosen?.number);
      this.compare();
    } catch (error) {
      place.caption.textContent = error.message;
    }
    this.draw();
  }

  compare() {
    const [a, b] = this.places.map((place) => place.chosen);
    if (!a || !b) return;
    const known = edgesOf(this.layout, a.plan);
    const edges = [...edgesOf(this.layout, b.plan)];
    const different = edges.filter((edge) => !known.has(edge)).length;
    const what = this.layout.problem === "jssp" ? "pairs of neighbours on a machine" : "edges";
    this.status.textContent = !different ? "The two policies build the same plan." : `The two plans differ in ${different} of ${edges.length} ${what}, which are highlighted.`;
  }

  key(event) {
    const count = this.map.data?.points.length ?? 0;
    if (!count) return;
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in moves) {
      const from = this.map.hovered ?? count - 1;
      this.hover((from + moves[event.key] + count) % count);
    } else if (event.key === "Enter") this.choose(this.map.hovered, event.shiftKey || this.fillsRight());
    else return;
    event.preventDefault();
  }
}
