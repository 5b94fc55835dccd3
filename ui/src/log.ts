// Reading logs in pieces. A log may have ten gigabytes, so only the part in view is read.

import { request } from "./api";
import type { LogMatch, LogPiece } from "./types";

/** Bytes that are read at the end of the log, and around an offset. */
export const WINDOW = 64 * 1024;
/** The most lines that are kept; the oldest are dropped. */
export const MAX_LINES = 20_000;

export interface Line {
  text: string;
  node: string;
  /** Offset of its start in the log, in bytes. */
  offset: number;
}

/** Reads pieces until the end, until `take` returns false, or until it is aborted. */
export async function readPieces(path: string, signal: AbortSignal, take: (pieces: LogPiece[]) => boolean): Promise<void> {
  const response = await request(path, { signal, headers: { accept: "application/jsonl" } });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const lines = rest.split("\n");
    rest = done ? "" : lines.pop()!;
    const pieces = lines.filter(Boolean).map((line) => JSON.parse(line) as LogPiece);
    if (pieces.length && !take(pieces)) {
      await reader.cancel();
      return;
    }
    if (done) return;
  }
}

const encoder = new TextEncoder();
export const byteLength = (text: string): number => encoder.encode(text).length;

/** The most matches that are shown, and the most bytes that are searched for them. */
export const MAX_MATCHES = 200;
const MAX_SEARCHED = 1 << 30;
/** Longer lines are searched in parts. */
const MAX_LINE = 1 << 16;

/** Reads a log from its start and keeps only the lines that contain a text, ignoring case. */
export async function searchLog(path: string, find: string, signal: AbortSignal, report: (found: LogMatch[], bytes: number) => void): Promise<void> {
  const needle = find.toLowerCase();
  const rest = new Map<string, string>();
  const found: LogMatch[] = [];
  let bytes = 0;
  const scan = (node: string, text: string, begin: number, whole: boolean) => {
    const lower = text.toLowerCase();
    const until = whole ? lower.length : lower.lastIndexOf("\n") + 1;
    for (let at = lower.indexOf(needle); at >= 0 && at < until && found.length < MAX_MATCHES; ) {
      const start = text.lastIndexOf("\n", at) + 1;
      const end = text.indexOf("\n", at);
      const line = text.slice(start, end < 0 ? undefined : end);
      found.push({ node, offset: begin + byteLength(text.slice(0, start)), line });
      at = end < 0 ? -1 : lower.indexOf(needle, end);
    }
    return text.slice(until);
  };
  const ends = new Map<string, number>();
  await readPieces(path, signal, (pieces) => {
    for (const { node, data = "", offset, error } of pieces) {
      if (error) continue;
      const before = rest.get(node) ?? "";
      const size = byteLength(data);
      const left = scan(node, before + data, offset - size - byteLength(before), before.length + data.length > MAX_LINE && !data.includes("\n"));
      rest.set(node, left);
      ends.set(node, offset);
      bytes += size;
    }
    report([...found], bytes);
    return found.length < MAX_MATCHES && bytes < MAX_SEARCHED;
  });
  if (bytes < MAX_SEARCHED) for (const [node, text] of rest) scan(node, text, (ends.get(node) ?? 0) - byteLength(text), true);
  report([...found], bytes);
}

/** Escape sequences for terminals. */
const ESCAPES = /\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g;

/** Returns a line as a terminal would show it, without overwritten text. */
export function shown(text: string): string {
  const plain = text.includes("\x1b") ? text.replace(ESCAPES, "") : text;
  const trimmed = plain.endsWith("\r") ? plain.slice(0, -1) : plain;
  return trimmed.slice(trimmed.lastIndexOf("\r") + 1);
}

/** Lines assembled from pieces; a line may span several pieces. */
export class Lines {
  all: Line[] = [];
  /** The last line of each node, while it is incomplete. */
  private open = new Map<string, Line>();
  /** Offsets of the first and the last byte that are known, by node. */
  begin = new Map<string, number>();
  end = new Map<string, number>();
  /** Number of lines that were dropped at the front. */
  dropped = 0;

  /** With `grows`, only the last lines are kept. */
  constructor(private readonly grows = false) {}

  add(piece: LogPiece): void {
    const { node } = piece;
    if (piece.error) {
      this.all.push({ text: `— ${piece.error} —`, node, offset: piece.offset });
      return;
    }
    const data = piece.data ?? "";
    const size = byteLength(data);
    let at = piece.offset ? piece.offset - size : (this.end.get(node) ?? 0);
    if (!this.begin.has(node)) this.begin.set(node, at);
    this.end.set(node, Math.max(this.end.get(node) ?? 0, at + size));
    const parts = data.split("\n");
    parts.forEach((part, i) => {
      const last = i === parts.length - 1;
      const line = this.open.get(node);
      if (line) line.text += part;
      else if (part || !last) {
        const added = { text: part, node, offset: at };
        this.all.push(added);
        this.open.set(node, added);
      }
      if (!last) this.open.delete(node);
      at += byteLength(part) + 1;
    });
    if (this.grows && this.all.length > MAX_LINES + 2000) {
      const gone = this.all.length - MAX_LINES;
      this.all.splice(0, gone);
      this.dropped += gone;
      for (const node of this.begin.keys()) {
        const first = this.all.find((line) => line.node === node);
        if (first) this.begin.set(node, first.offset);
      }
    }
  }
}
