// Colours for things that have none of their own: as far from each other as can be, and the same ones every time.

/** A colour for a number; neighbours differ most. */
export function colourOf(n: number): string {
  const hue = (n * 137.508) % 360;
  const light = 46 + ((n * 7) % 3) * 6;
  return `hsl(${hue.toFixed(0)} 52% ${light}%)`;
}

/** A colour for a name. */
export function colourOfName(name: string): string {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)!) % 9973;
  return colourOf(sum);
}
