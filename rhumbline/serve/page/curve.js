// The best cost over time, or the gap to the best known cost where there is one.

import { formatCost, prepare, theme } from "./canvas.js";

export function drawCurve(canvas, steps, seconds, bestKnown) {
  const { context, width, height } = prepare(canvas);
  if (!steps.length) return;
  const colours = theme();
  const value = (cost) => (bestKnown ? ((cost - bestKnown) / Math.abs(bestKnown)) * 100 : cost);
  const values = steps.map((step) => value(step.cost));
  const low = Math.min(...values, bestKnown ? 0 : Infinity);
  const high = Math.max(...values);
  const left = 70;
  const end = Math.max(seconds, steps.at(-1).seconds);
  const x = (at) => left + (at / (end || 1)) * (width - left - 12);
  const y = (v) => height - 24 - ((v - low) / (high - low || 1)) * (height - 40);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colours.quiet;
  context.strokeStyle = colours.line;
  const label = (v) => (bestKnown ? `${v.toFixed(2)} %` : formatCost(Number.isInteger(v) ? v : +v.toFixed(3)));
  for (const v of new Set([low, high])) {
    context.fillText(label(v), 6, y(v) + 4);
    context.beginPath();
    context.moveTo(left, y(v));
    context.lineTo(width - 12, y(v));
    context.stroke();
  }
  context.fillText("0 s", left, height - 6);
  context.fillText(`${end.toFixed(0)} s`, width - 36, height - 6);
  context.strokeStyle = colours.route;
  context.lineWidth = 2;
  context.beginPath();
  steps.forEach((step, i) => {
    if (i) context.lineTo(x(step.seconds), y(values[i - 1]));
    else context.moveTo(x(step.seconds), y(values[i]));
    context.lineTo(x(step.seconds), y(values[i]));
  });
  context.lineTo(x(end), y(values.at(-1)));
  context.stroke();
}
