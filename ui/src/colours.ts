// Colours for things that have none of their own: as far from each other as can be, and the same ones every time.

/** A colour for a number; neighbours differ most, and none is the red of what is bad. */
export function colourOf(n: number): string {
  const hue = 28 + ((n * 114.59) % 300);
  const light = 46 + ((n * 7) % 3) * 6;
  return `hsl(${hue.toFixed(0)} 52% ${light}%)`;
}

/** A colour for a place in a short list. */
export function colourOfPlace(place: number): string {
  const first = ["#3f74d6", "#d9992b", "#3c9b67", "#a45bb5", "#4aa3b5", "#8a8f3a", "#8791a1"];
  return first[place] ?? colourOf(place);
}
