// Reading logs piece by piece. A log may have ten gigabytes: it is read from where somebody looks, and never whole.

import { ask } from "./api";
import type { Found, LogPiece } from "./types";

/** So much is read at the end, and around a place. */
export const WINDOW = 64 * 1024;
/** More lines than this are not kept; the oldest go. */
export const MOST_LINES = 20_000;

export interface Line {
  text: string;
  node: string;
  /** Where in the log it begins, in bytes. */
  offset: number;
}

/** Reads pieces until the end, until `take` says that it is enough, or until it is broken off. */
export async function readPieces(path: string, signal: AbortSignal, take: (pieces: LogPiece[]) => boolean): Promise<void> {
  const response = await ask(path, { signal, headers: { accept: "application/jsonl" } });
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

/** So many places are shown, and so much is read for them. */
export const MOST_FOUND = 200;
const MOST_SEARCHED = 1 << 30;
/** A line without an end is looked at in parts. */
const LONGEST_LINE = 1 << 16;

/** Reads a log from its start and keeps nothing but the lines that have a text in them, in capital letters or small ones. */
export async function searchLog(path: string, find: string, signal: AbortSignal, tell: (found: Found[], bytes: number) => void): Promise<void> {
  const wanted = find.toLowerCase();
  const rest = new Map<string, string>();
  const found: Found[] = [];
  let bytes = 0;
  const look = (node: string, text: string, begin: number, whole: boolean) => {
    const low = text.toLowerCase();
    const until = whole ? low.length : low.lastIndexOf("\n") + 1;
    for (let at = low.indexOf(wanted); at >= 0 && at < until && found.length < MOST_FOUND; ) {
      const start = text.lastIndexOf("\n", at) + 1;
      const end = text.indexOf("\n", at);
      const line = text.slice(start, end < 0 ? undefined : end);
      found.push({ node, offset: begin + byteLength(text.slice(0, start)), line });
      at = end < 0 ? -1 : low.indexOf(wanted, end);
    }
    return text.slice(until);
  };
  const ends = new Map<string, number>();
  await readPieces(path, signal, (pieces) => {
    for (const { node, data = "", offset, error } of pieces) {
      if (error) continue;
      const before = rest.get(node) ?? "";
      const size = byteLength(data);
      const left = look(node, before + data, offset - size - byteLength(before), before.length + data.length > LONGEST_LINE && !data.includes("\n"));
      rest.set(node, left);
      ends.set(node, offset);
      bytes += size;
    }
    tell([...found], bytes);
    return found.length < MOST_FOUND && bytes < MOST_SEARCHED;
  });
  if (bytes < MOST_SEARCHED) for (const [node, text] of rest) look(node, text, (ends.get(node) ?? 0) - byteLength(text), true);
  tell([...found], bytes);
}

/** Colours and other commands for terminals say nothing here. */
const ESCAPES = /\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g;

/** A line as a terminal would show it: what was overwritten is gone. */
export function shown(text: string): string {
  const plain = text.includes("\x1b") ? text.replace(ESCAPES, "") : text;
  const trimmed = plain.endsWith("\r") ? plain.slice(0, -1) : plain;
  return trimmed.slice(trimmed.lastIndexOf("\r") + 1);
}

/** Lines put together from pieces; a line may come in several of them. */
export class Lines {
  all: Line[] = [];
  /** Of each node, whether its last line is still open, and where in `all` it is. */
  private open = new Map<string, Line>();
  /** Of each node, where what is known begins and ends. */
  begin = new Map<string, number>();
  end = new Map<string, number>();
  /** Lines at the front that were let go. */
  dropped = 0;

  /** All lines of a part that is read once are kept; of one that grows without end only the last. */
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
        const made = { text: part, node, offset: at };
        this.all.push(made);
        this.open.set(node, made);
      }
      if (!last) this.open.delete(node);
      at += byteLength(part) + 1;
    });
    if (this.grows && this.all.length > MOST_LINES + 2000) {
      const gone = this.all.length - MOST_LINES;
      this.all.splice(0, gone);
      this.dropped += gone;
      for (const node of this.begin.keys()) {
        const first = this.all.find((line) => line.node === node);
        if (first) this.begin.set(node, first.offset);
      }
    }
  }
}
