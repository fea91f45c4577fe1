// What all drawings share: sharp canvases, colours of the theme, and scales.

// Returns a 2-D context whose units are CSS pixels, cleared, with the size of the canvas.
export function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.globalAlpha = 1;
  context.textAlign = "start";
  context.textBaseline = "alphabetic";
  return { context, width, height };
}

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return Object.fromEntries(
    ["paper", "panel", "ink", "quiet", "line", "route", "accent", "good", "middle", "bad", "focus"].map((name) => [name, colour(name)]),
  );
}

// Returns a function from positions to pixels that keeps proportions; north is up.
export function fit(points, width, height, margin = 14) {
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const [x, y] of points) {
    left = Math.min(left, x);
    right = Math.max(right, x);
    bottom = Math.min(bottom, y);
    top = Math.max(top, y);
  }
  const scale = Math.min(
    (width - 2 * margin) / (right - left || 1),
    (height - 2 * margin) / (top - bottom || 1),
  );
  const [midX, midY] = [(left + right) / 2, (bottom + top) / 2];
  return ([x, y]) => [width / 2 + (x - midX) * scale, height / 2 - (y - midY) * scale];
}

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// Returns 64 colours from good over middle to bad.
export function ramp(colours) {
  const stops = [colours.good, colours.middle, colours.bad].map(channels);
  return Array.from({ length: 64 }, (_, i) => {
    const place = (2 * i) / 63;
    const first = Math.min(1, Math.floor(place));
    const mixed = stops[first].map((value, k) => Math.round(value + (stops[first + 1][k] - value) * (place - first)));
    return `rgb(${mixed.join(",")})`;
  });
}

// Returns distinguishable colours for routes and jobs, legible in both themes.
export function hue(index, isDark) {
  const degrees = (index * 137.508) % 360;
  return `hsl(${degrees.toFixed(1)} 62% ${isDark ? 66 : 40}%)`;
}

export const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

export function formatCost(cost) {
  if (cost === null || cost === undefined) return "–";
  if (Number.isInteger(cost)) return cost.toLocaleString("en");
  return cost.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 4 });
}
