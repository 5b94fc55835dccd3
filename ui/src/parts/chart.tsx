// Charts as SVG, in the colours of the theme.

import { useEffect, useRef, useState } from "preact/hooks";
import { clock, count, decimal } from "../format";
import type { Time } from "../types";

/** Returns round values for an axis up to a maximum. */
export function ticks(max: number, about = 4): number[] {
  if (!(max > 0)) return [0];
  const rough = max / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough) ?? rough;
  const all = [];
  for (let at = 0; at <= max + step * 0.001; at += step) all.push(at);
  return all;
}

function useWidth(): [preact.RefObject<HTMLDivElement | null>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.max(200, entry.contentRect.width)));
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

const LEFT = 52;
const BOTTOM = 22;
const TOP = 8;
const RIGHT = 10;

/** A value over time. */
export function LineChart({ label, points, max, height = 180 }: { label: string; points: [Time, number][]; max?: number; height?: number }) {
  const [box, width] = useWidth();
  const from = points[0]?.[0] ?? 0;
  const to = Math.max(from + 1, points.at(-1)?.[0] ?? 1);
  const top = Math.max(max ?? 0, ...points.map((p) => p[1]), 1);
  const x = (at: number) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT);
  const y = (value: number) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
  const line = points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const labels = [0, 0.5, 1].map((part) => from + part * (to - from));
  return (
    <div ref={box} class="chart">
      <svg width={width} height={height} role="img" aria-label={label}>
        {ticks(top).map((value) => (
          <g key={value}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
            <text class="axis" x={LEFT - 6} y={y(value) + 4} text-anchor="end">
              {short(value)}
            </text>
          </g>
        ))}
        {labels.map((at, i) => (
          <text key={i} class="axis" x={x(at)} y={height - 5} text-anchor={["start", "middle", "end"][i]}>
            {clock(at)}
          </text>
        ))}
        {points.length > 1 ? <path class="line" d={line} /> : points.map(([at, v]) => <circle key={at} class="dot" cx={x(at)} cy={y(v)} r={3} />)}
      </svg>
    </div>
  );
}

function short(value: number): string {
  if (value >= 1e6) return `${decimal(value / 1e6)}M`;
  if (value >= 1e4) return `${decimal(value / 1e3)}k`;
  return value % 1 ? String(Number(value.toPrecision(2))) : count(value);
}

export interface Stack {
  name: string;
  parts: { series: number; value: number; label: string }[];
}

/** Stacked columns; at most eight series have a colour of their own. */
export function Columns({ label, stacks, height = 220, unit }: { label: string; stacks: Stack[]; height?: number; unit: string }) {
  const [box, width] = useWidth();
  const sums = stacks.map((s) => s.parts.reduce((sum, p) => sum + p.value, 0));
  const top = Math.max(...sums, 0.001);
  const y = (value: number) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
  const slot = (width - LEFT - RIGHT) / Math.max(1, stacks.length);
  const every = Math.max(1, Math.ceil(48 / slot));
  return (
    <div ref={box} class="chart">
      <svg width={width} height={height} role="img" aria-label={label}>
        {ticks(top).map((value) => (
          <g key={value}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
            <text class="axis" x={LEFT - 6} y={y(value) + 4} text-anchor="end">
              {short(value)}
            </text>
          </g>
        ))}
        {stacks.map((stack, i) => {
          let under = 0;
          const wide = Math.min(48, slot * 0.7);
          const left = LEFT + slot * i + (slot - wide) / 2;
          return (
            <g key={stack.name}>
              {stack.parts.map((part) => {
                const bottom = y(under);
                under += part.value;
                return (
                  <rect key={part.label} class={`series-${part.series % 8}`} x={left} width={wide} y={y(under)} height={Math.max(0, bottom - y(under))}>
                    <title>{`${stack.name}, ${part.label}: ${decimal(part.value)} ${unit}`}</title>
                  </rect>
                );
              })}
              {i % every === 0 && (
                <text class="axis" x={left + wide / 2} y={height - 5} text-anchor="middle">
                  {stack.name.slice(5)}
                </text>
              )}
            </g>
          );
        })}
      </svg>
    </div>
  );
}
