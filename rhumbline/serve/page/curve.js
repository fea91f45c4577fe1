// The best cost over time, or the gap to the best known cost where there is one.

import { formatCost, prepare, theme } from "./canvas.js";

const LEFT = 74; // pixels for labels
const RIGHT = 14;
const TOP = 12;
const BOTTOM = 22;
const FIRST_TIME = 0.1; // seconds; time is logarithmic, since most happens early

// Draws pairs of seconds and costs.
export function drawCurve(canvas, curve, elapsed, bestKnown) {
  const { context, width, height } = prepare(canvas);
  if (!curve.length) return;
  const colours = theme();
  const value = (cost) => (bestKnown ? ((cost - bestKnown) / Math.abs(bestKnown)) * 100 : cost);
  const steps = curve.map(([seconds, cost]) => [Math.max(FIRST_TIME, seconds), value(cost)]);
  const low = Math.min(...steps.map((step) => step[1]), bestKnown ? 0 : Infinity);
  const high = Math.max(...steps.map((step) => step[1]));
  const end = Math.max(2 * FIRST_TIME, elapsed, steps.at(-1)[0]);
  const share = (seconds) => Math.log(seconds / FIRST_TIME) / Math.log(end / FIRST_TIME);
  const x = (seconds) => LEFT + share(seconds) * (width - LEFT - RIGHT);
  const y = (v) => height - BOTTOM - ((v - low) / (high - low || 1)) * (height - BOTTOM - TOP);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colours.quiet;
  context.strokeStyle = colours.line;
  context.textBaseline = "middle";
  const label = (v) => (bestKnown ? `${v.toFixed(2)} %` : formatCost(Number.isInteger(v) ? v : +v.toFixed(3)));
  for (const v of new Set([low, high])) {
    context.fillText(label(v), 6, y(v));
    line(context, [LEFT, y(v)], [width - RIGHT, y(v)]);
  }
  context.textAlign = "center";
  for (let seconds = FIRST_TIME; seconds <= end * 1.001; seconds *= 10) {
    const tick = Number(seconds.toPrecision(1));
    if (width - RIGHT - x(tick) > 45) context.fillText(`${tick} s`, x(tick), height - 8);
    line(context, [x(tick), TOP], [x(tick), height - BOTTOM]);
  }
  context.textAlign = "right";
  context.fillText(`${end.toFixed(1)} s`, width - RIGHT, height - 8);
  context.strokeStyle = colours.route;
  context.lineWidth = 2;
  context.beginPath();
  steps.forEach(([seconds, v], i) => {
    if (i) context.lineTo(x(seconds), y(steps[i - 1][1]));
    context.lineTo(x(seconds), y(v));
  });
  context.lineTo(x(end), y(steps.at(-1)[1]));
  context.stroke();
}

function line(context, from, to) {
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(...to);
  context.stroke();
}
