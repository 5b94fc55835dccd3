// Colours for jobs and virtual clusters: stable, and as distinct as possible.

/** Returns a colour for a number. Neighbouring numbers differ most, and no colour is the red of errors. */
export function colourOf(n: number): string {
  const hue = 28 + ((n * 114.59) % 300);
  const light = 46 + ((n * 7) % 3) * 6;
  return `hsl(${hue.toFixed(0)} 52% ${light}%)`;
}

/** Returns a colour for an index in a short list. */
export function colourOfIndex(index: number): string {
  const first = ["#3f74d6", "#d9992b", "#3c9b67", "#a45bb5", "#4aa3b5", "#8a8f3a", "#8791a1"];
  return first[index] ?? colourOf(index);
}
