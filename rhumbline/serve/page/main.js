// The page: sends a job, follows it, and keeps all drawings up to date.

import * as api from "./api.js";
import { formatCost } from "./canvas.js";
import { drawCurve } from "./curve.js";
import { LatentExplorer } from "./latents.js";
import { describePlan, drawPlan, routeColour, routeLoads } from "./plans.js";
import { ProblemInput } from "./problem_input.js";

const element = (id) => document.getElementById(id);
const LATENT_INTERVAL = 700; // milliseconds between two looks at the latents

const input = new ProblemInput();
const explorer = new LatentExplorer();

// The job that is shown, what is needed to draw it, and the plan that is drawn.
let shown = null;
let layout = null;
let drawn = null;
let following = null;
let isDue = false;

async function solve() {
  element("error").textContent = "";
  element("solve").disabled = true;
  try {
    const { id } = await api.submit({ ...input.readProblem(), ...options() });
    show(id).catch(report);
  } catch (error) {
    report(error);
  } finally {
    element("solve").disabled = false;
  }
}

function options() {
  const chosen = { seconds: Number(element("seconds").value), seed: Number(element("seed").value), latents: true };
  if (element("search").value) chosen.search = element("search").value;
  chosen.then = element("then").value;
  return chosen;
}

// Shows a job and follows it until it has ended.
async function show(id) {
  following?.abort();
  const signal = (following = new AbortController()).signal;
  location.hash = id;
  const [job, itsLayout] = await Promise.all([api.getJob(id), api.getLayout(id)]);
  [shown, layout, drawn] = [null, itsLayout, null];
  explorer.show(job, layout);
  update(job);
  refreshJobs();
  const timer = setInterval(() => explorer.refresh(), LATENT_INTERVAL);
  try {
    if (!api.isFinal(job)) await api.follow(id, update, signal);
  } finally {
    clearInterval(timer);
  }
  if (signal.aborted) return;
  await explorer.refresh();
  refreshJobs();
}

// Takes in a state of the job; its plan and its curve are left out where they have not changed.
function update(job) {
  if (job.best && !job.best.plan) job.best.plan = shown?.best?.plan;
  job.curve ??= shown?.curve ?? [];
  shown = job;
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}

function draw() {
  if (!shown || !layout) return;
  const { best, progress, state } = shown;
  const elapsed = progress.elapsed ?? 0;
  say(element("status"), statusText(shown));
  element("progress").value = state === "queued" ? 0 : api.isFinal(shown) ? 1 : (progress.share ?? 0);
  element("cost").textContent = formatCost(best?.cost);
  element("gap").textContent = best?.gap === null || best?.gap === undefined ? "–" : `${(100 * best.gap).toFixed(2)} %`;
  element("attempts").textContent = (progress.attempts ?? best?.attempts ?? 0).toLocaleString("en");
  element("rate").textContent = elapsed ? Math.round(progress.attempts / elapsed).toLocaleString("en") : "–";
  element("phase").textContent = best?.phase ?? "–";
  element("stop").disabled = api.isFinal(shown);
  for (const id of ["download-plan", "download-svg", "download-png"]) element(id).setAttribute("aria-disabled", String(!best));
  if (shown.error) element("error").textContent = shown.error;
  drawBest();
  drawCurve(element("curve"), shown.curve, elapsed, layout.best_known);
}

// Draws the best plan if it has changed.
function drawBest() {
  const best = shown.best;
  if (drawn !== null && drawn === best?.plan) return;
  drawn = best?.plan ?? null;
  drawPlan(element("plan"), layout, drawn);
  const words = drawn ? describePlan(layout, drawn, best.cost) : "There is no plan yet.";
  element("plan-note").textContent = words;
  element("plan").setAttribute("aria-label", words);
  const list = element("routes");
  list.hidden = layout.problem !== "cvrp" || !drawn;
  if (!list.hidden) list.replaceChildren(...routeLoads(layout, drawn).map(loadItem));
}

function loadItem(load, number) {
  const item = document.createElement("li");
  const dot = document.createElement("span");
  dot.style.background = routeColour(number);
  item.append(dot, load.toLocaleString("en"));
  return item;
}

// Changes a text that screen readers announce only if it is another one.
function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

function statusText(job) {
  const texts = {
    queued: "waiting for a worker",
    running: "searching",
    done: "done, verified",
    interrupted: job.best ? "stopped; this is the best plan so far" : "stopped before there was a plan",
    failed: "failed",
  };
  const together = job.batch > 1 ? `, together with ${job.batch - 1} others` : "";
  return `${job.name}: ${texts[job.state]}${job.state === "running" ? together : ""}`;
}

async function refreshJobs() {
  let jobs;
  try {
    jobs = await api.listJobs();
  } catch (error) {
    report(error);
    return;
  }
  const rows = jobs.map((job) => {
    const row = document.createElement("tr");
    const cells = [
      [job.name, ""],
      [job.problem, "detail"],
      [job.size, "detail"],
      [job.state, ""],
      [formatCost(job.best?.cost), ""],
      [`${job.waited.toFixed(1)} s`, "detail"],
    ];
    for (const [text, kind] of cells) {
      const cell = row.insertCell();
      cell.textContent = text;
      cell.className = kind;
    }
    const button = document.createElement("button");
    button.className = "plain";
    button.textContent = "Show";
    button.setAttribute("aria-label", `Show ${job.name}`);
    button.addEventListener("click", () => show(job.id).catch(report));
    row.insertCell().append(button);
    return row;
  });
  element("jobs").replaceChildren(...rows);
}

function report(error) {
  element("error").textContent = error.message;
  if (error.status === 401) document.querySelector(".token").hidden = false;
}

function redraw() {
  drawn = null;
  draw();
  explorer.draw();
  if (input.source === "draw") input.drawSketch();
}

element("solve").addEventListener("click", solve);
element("stop").addEventListener("click", () => shown && api.stopJob(shown.id).then(update).catch(report));
element("token").addEventListener("change", (event) => {
  api.setToken(event.target.value);
  element("error").textContent = "";
  refreshJobs();
});
const downloads = { "download-plan": "plan", "download-svg": "picture?format=svg", "download-png": "picture?format=png" };
for (const [id, path] of Object.entries(downloads)) {
  element(id).href = "#";
  element(id).addEventListener("click", (event) => {
    event.preventDefault();
    if (shown?.best) api.download(`/v1/jobs/${shown.id}/${path}`).catch(report);
  });
}
window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

refreshJobs();
if (location.hash.length > 1) show(location.hash.slice(1)).catch(() => (location.hash = ""));
