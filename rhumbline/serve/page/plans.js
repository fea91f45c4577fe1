// Draws plans: tours, routes and schedules. A plan comes in the numbers of its file.

import { fit, formatCost, hue, isDark, prepare, theme } from "./canvas.js";

// Draws a plan; `other` is a second plan whose missing edges are highlighted.
export function drawPlan(canvas, layout, plan, other = null) {
  if (layout.problem === "jssp") drawSchedule(canvas, layout, plan, other);
  else drawRoutes(canvas, layout, plan, other);
}

// Returns the routes of a plan as lists of node indices, each closed.
export function closedRoutes(layout, plan) {
  if (layout.problem === "cvrp") return plan.map((route) => [0, ...route, 0]);
  const indexOf = new Map(layout.numbers.map((number, index) => [number, index]));
  const order = plan.map((number) => indexOf.get(number));
  return [[...order, order[0]]];
}

// Returns what two plans are compared by: the edges of routes as "smaller-larger" node pairs, or
// the pairs of operations that follow each other on a machine.
export function edgesOf(layout, plan) {
  if (layout.problem === "jssp") return new Set(previousOnMachine(operationsOf(layout, plan)).values());
  const edges = new Set();
  for (const route of closedRoutes(layout, plan))
    for (let i = 1; i < route.length; i++) edges.add(edgeKey(route[i - 1], route[i]));
  return edges;
}

const edgeKey = (a, b) => (a < b ? `${a}-${b}` : `${b}-${a}`);

function drawRoutes(canvas, layout, plan, other) {
  const { context, width, height } = prepare(canvas);
  const colours = theme();
  const place = fit(layout.xy, width, height);
  const points = layout.xy.map(place);
  const routes = plan ? closedRoutes(layout, plan) : [];
  const known = other ? edgesOf(layout, other) : null;
  const dark = isDark();
  context.lineJoin = "round";
  routes.forEach((route, number) => {
    const colour = layout.problem === "cvrp" ? hue(number, dark) : colours.route;
    context.strokeStyle = known ? colours.quiet : colour;
    context.lineWidth = known ? 1 : 1.8;
    context.beginPath();
    route.forEach((node, i) => context[i ? "lineTo" : "moveTo"](...points[node]));
    context.stroke();
    if (!known) return;
    context.strokeStyle = colours.accent;
    context.lineWidth = 2.4;
    context.beginPath();
    for (let i = 1; i < route.length; i++) {
      if (known.has(edgeKey(route[i - 1], route[i]))) continue;
      context.moveTo(...points[route[i - 1]]);
      context.lineTo(...points[route[i]]);
    }
    context.stroke();
  });
  const radius = points.length > 300 ? 1.4 : 2.6;
  context.fillStyle = colours.ink;
  context.beginPath();
  for (const [x, y] of points) {
    context.moveTo(x + radius, y);
    context.arc(x, y, radius, 0, 2 * Math.PI);
  }
  context.fill();
  if (layout.problem !== "cvrp") return;
  const [x, y] = points[0];
  context.fillStyle = colours.accent;
  context.fillRect(x - 5, y - 5, 10, 10);
}

// Returns the colour of a route in drawings.
export const routeColour = (number) => hue(number, isDark());

export const routeLoads = (layout, plan) =>
  plan.map((route) => route.reduce((sum, customer) => sum + layout.demands[customer], 0));

function operationsOf(layout, starts) {
  const operations = [];
  starts.forEach((row, job) =>
    row.forEach((start, step) => {
      const duration = layout.durations[job][step];
      operations.push({ job, step, start, end: start + duration, machine: layout.machines[job][step] });
    }),
  );
  return operations;
}

// Returns for each operation which one comes before it on its machine, and the operation, as text.
function previousOnMachine(operations) {
  const pairs = new Map();
  const latest = new Map();
  for (const operation of [...operations].sort((a, b) => a.start - b.start)) {
    const { job, step, machine } = operation;
    const name = `${job}.${step}`;
    pairs.set(operation, `${latest.get(machine) ?? "first"} ${name}`);
    latest.set(machine, name);
  }
  return pairs;
}

// Returns the operations that decide the makespan: from the last end back to time 0.
export function criticalPath(operations) {
  const path = new Set();
  let current = operations.reduce((a, b) => (b.end > a.end ? b : a));
  while (current && !path.has(current)) {
    path.add(current);
    const { job, step, machine, start } = current;
    current = operations.find(
      (other) =>
        other.end === start && other !== current && !path.has(other) &&
        ((other.job === job && other.step === step - 1) || other.machine === machine),
    );
  }
  return path;
}

// Draws a schedule and outlines its critical path, or what differs from another schedule.
function drawSchedule(canvas, layout, starts, other) {
  const { context, width, height } = prepare(canvas);
  if (!starts) return;
  const colours = theme();
  const operations = operationsOf(layout, starts);
  const makespan = Math.max(...operations.map((operation) => operation.end));
  const pairs = previousOnMachine(operations);
  const known = other ? edgesOf(layout, other) : null;
  const path = known ? null : criticalPath(operations);
  const isOutlined = (operation) => (known ? !known.has(pairs.get(operation)) : path.has(operation));
  const left = 34;
  const row = (height - 24) / layout.machine_count;
  const scale = (width - left - 8) / (makespan || 1);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = colours.quiet;
  for (let machine = 0; machine < layout.machine_count; machine++)
    context.fillText(`M${machine + 1}`, 6, (machine + 0.5) * row);
  const dark = isDark();
  for (const operation of operations) {
    const x = left + operation.start * scale;
    const y = operation.machine * row + 2;
    const w = Math.max(1, (operation.end - operation.start) * scale - 1);
    context.fillStyle = hue(operation.job, dark);
    context.globalAlpha = isOutlined(operation) ? 1 : 0.5;
    context.fillRect(x, y, w, row - 4);
    context.globalAlpha = 1;
    if (isOutlined(operation)) {
      context.strokeStyle = known ? colours.accent : colours.ink;
      context.lineWidth = 1.5;
      context.strokeRect(x, y, w, row - 4);
    }
    if (w > 18 && row > 14) {
      context.fillStyle = isOutlined(operation) ? colours.paper : colours.ink;
      context.fillText(`${operation.job + 1}`, x + 4, y + (row - 4) / 2);
    }
  }
  context.fillStyle = colours.quiet;
  context.fillText("0", left, height - 10);
  const end = `${makespan.toLocaleString("en")}`;
  context.fillText(end, width - 10 - context.measureText(end).width, height - 10);
}

// Returns the plan in words, for screen readers and below the picture.
export function describePlan(layout, plan, cost) {
  if (layout.problem === "jssp")
    return `Schedule of ${plan.length} jobs on ${layout.machine_count} machines, makespan ${formatCost(cost)}. Outlined operations form the critical path.`;
  if (layout.problem !== "cvrp") {
    const note = layout.are_positions_reconstructed ? " Positions are reconstructed from distances." : "";
    return `Tour of ${plan.length} cities, length ${formatCost(cost)}.${note}`;
  }
  return `${plan.length} routes, length ${formatCost(cost)}. A vehicle carries ${layout.capacity.toLocaleString("en")}; loads of the routes:`;
}
