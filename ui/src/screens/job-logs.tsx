// The log of a job: its end is shown at once and followed, however long it is; the whole log can be searched.

import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, get, messageOf, query } from "../api";
import { bytes, plural } from "../format";
import { type Line, Lines, MAX_MATCHES, WINDOW, readPieces, searchLog, shown } from "../log";
import { Button, Empty, ErrorNote, Panel } from "../parts/basics";
import { Choice } from "../parts/field";
import { Rows } from "../parts/rows";
import { showToast, showError } from "../parts/toast";
import { params } from "../router";
import type { LogMatch, Job } from "../types";

const LINE_HEIGHT = 18;

/** The part of the log that is shown. */
type Position = { at: "end" } | { at: "start" } | { at: "around"; node: string; offset: number };

export function JobLogs({ job }: { job: Job }) {
  const attempts = job.attempts ?? [];
  const [attemptId, setAttemptId] = useState<number | null>(null);
  const [node, setNode] = useState(params.value.get("node") ?? "");
  const [position, setPosition] = useState<Position>({ at: "end" });
  const [find, setFind] = useState("");
  const attempt = attempts.find((a) => a.attempt === attemptId) ?? attempts.at(-1);
  const nodes = attempt?.placement.map((s) => s.node) ?? [];
  if (!attempt) {
    return <Empty title="No log yet">The log appears here when the job runs.</Empty>;
  }
  const go = (next: Position) => {
    if (next.at === "around") setNode(next.node);
    setPosition(next);
  };
  return (
    <Panel class="log-panel">
      <div class="log-tools">
        {attempts.length > 1 && (
          <Choice
            label="Attempt"
            value={String(attemptId ?? "")}
            onValue={(value) => (setAttemptId(value ? Number(value) : null), setPosition({ at: "end" }))}
            of={[["", "latest"], ...attempts.map((a) => [String(a.attempt), String(a.attempt)] as [string, string]).reverse()]}
          />
        )}
        {nodes.length > 1 && (
          <Choice
            label="Node"
            value={node}
            onValue={(value) => (setNode(value), setPosition({ at: "end" }))}
            of={[["", `all ${nodes.length}`], ...nodes.map((n) => [n, n] as [string, string])]}
          />
        )}
        <Find job={job} attemptId={attemptId} node={node} find={find} setFind={setFind} go={go} />
        <div class="filter-buttons">
          <Button aria-pressed={position.at === "start"} onClick={() => setPosition({ at: "start" })}>
            Start
          </Button>
          <Button aria-pressed={position.at === "end"} onClick={() => setPosition({ at: "end" })}>
            End
          </Button>
        </div>
      </div>
      <LogView key={JSON.stringify([attemptId, node, position])} job={job} attemptId={attemptId} node={node} position={position} many={nodes.length > 1 && !node} find={find} />
    </Panel>
  );
}

/** Search of the whole log. */
function Find({
  job,
  attemptId,
  node,
  find,
  setFind,
  go,
}: {
  job: Job;
  attemptId: number | null;
  node: string;
  find: string;
  setFind: (text: string) => void;
  go: (position: Position) => void;
}) {
  const [result, setResult] = useState<{ found: LogMatch[]; bytes?: number }>();
  const [error, setError] = useState<string>();
  const [work, setWork] = useState<AbortController>();
  const search = async (signal: AbortSignal) => {
    setResult({ found: await get<LogMatch[]>(`/jobs/${job.id}/logs/search${query({ q: find, attempt: attemptId, node, limit: MAX_MATCHES })}`, signal) });
  };
  const start = async (event: Event) => {
    event.preventDefault();
    work?.abort();
    if (!find) return;
    const abort = new AbortController();
    setWork(abort);
    setError(undefined);
    setResult({ found: [] });
    try {
      await search(abort.signal).catch((problem) => {
        // The server cannot search: the log is read and searched here.
        if (!(problem instanceof Problem && problem.isMissing)) throw problem;
        return searchLog(`/jobs/${job.id}/logs${query({ attempt: attemptId, node, offset: 0 })}`, find, abort.signal, (found, bytes) => setResult({ found, bytes }));
      });
    } catch (problem) {
      if (!abort.signal.aborted) setError(messageOf(problem));
    }
    setWork((current) => (current === abort ? undefined : current));
  };
  useEffect(() => () => work?.abort(), [work]);
  return (
    <form class="log-find" role="search" onSubmit={(event) => void start(event)}>
      <div class="field">
        <label for="log-find">Search the log</label>
        <span class="joined">
          <input
            id="log-find"
            type="search"
            value={find}
            onInput={(e) => {
              setFind(e.currentTarget.value);
              if (!e.currentTarget.value) setResult(undefined);
            }}
          />
          {work ? (
            <Button onClick={() => work.abort()}>Stop</Button>
          ) : (
            <Button type="submit">Search</Button>
          )}
        </span>
      </div>
      {error && <ErrorNote>{error}</ErrorNote>}
      {result && (
        <div class="found">
          <div class="panel-head">
            <span class="muted" role="status">
              {matchCount(result.found.length, !!work)} {result.bytes !== undefined && <span class="small">{bytes(result.bytes)} read</span>}
            </span>
            <Button kind="quiet" onClick={() => (work?.abort(), setResult(undefined))}>
              Hide
            </Button>
          </div>
          <ul>
            {result.found.map((hit) => (
              <li key={`${hit.node}${hit.offset}`}>
                <button type="button" onClick={() => go({ at: "around", node: hit.node, offset: hit.offset })}>
                  <span class="muted">{bytes(hit.offset)}</span> {shown(hit.line).slice(0, 300)}
                </button>
              </li>
            ))}
          </ul>
        </div>
      )}
    </form>
  );
}

function matchCount(matches: number, isSearching: boolean): string {
  if (matches >= MAX_MATCHES) return `First ${MAX_MATCHES} matches.`;
  if (isSearching) return matches ? `${plural(matches, "match", "matches")} so far…` : "Searching…";
  return matches ? `${plural(matches, "match", "matches")}.` : "No matches.";
}

function LogView({ job, attemptId, node, position, many, find }: { job: Job; attemptId: number | null; node: string; position: Position; many: boolean; find: string }) {
  const lines = useRef(new Lines(position.at === "end"));
  const [, redraw] = useState(0);
  const [following, setFollowing] = useState(position.at === "end");
  const [state, setState] = useState<"reading" | "follows" | "done">("reading");
  const [error, setError] = useState<string>();
  const [target, setTarget] = useState<number>();
  /** Whether there may be later lines than those shown. */
  const [more, setMore] = useState(position.at !== "end");
  const path = (offset: number, follow: boolean) =>
    `/jobs/${job.id}/logs${query({ attempt: attemptId, node, offset, follow: follow || undefined })}`;

  /** Whether enough was read of a part; the end is followed as long as it grows. */
  const isEnough = () => {
    if (position.at === "end") return false;
    return [...lines.current.end].some(([of, end]) => end - (lines.current.begin.get(of) ?? 0) >= WINDOW);
  };
  const fail = (problem: unknown, signal: AbortSignal) => {
    if (!signal.aborted) setError(messageOf(problem));
  };

  useEffect(() => {
    const abort = new AbortController();
    let drawing = 0;
    const draw = () => {
      drawing ||= requestAnimationFrame(() => {
        drawing = 0;
        redraw((n) => n + 1);
      });
    };
    const live = position.at === "end" && job.ended === null;
    const from = position.at === "end" ? -WINDOW : position.at === "start" ? 0 : Math.max(0, position.offset - WINDOW / 2);
    const work = readPieces(path(from, live), abort.signal, (pieces) => {
      for (const piece of pieces) {
        lines.current.add(piece);
        if (isEnough()) return false;
      }
      setState("follows");
      draw();
      return true;
    });
    if (live) setState("follows");
    work.then(
      () => {
        setState("done");
        draw();
        if (position.at === "around") {
          const at = lines.current.all.findIndex((line) => line.offset > position.offset);
          setTarget(Math.max(0, (at < 0 ? lines.current.all.length : at) - 1));
        }
      },
      (problem) => fail(problem, abort.signal),
    );
    return () => {
      abort.abort();
      cancelAnimationFrame(drawing);
    };
    // Later attempts of the job continue in the same stream.
  }, []);

  const all = lines.current.all;
  const singleNode = node || (all.length && !many ? all[0]!.node : "");
  const begin = singleNode ? (lines.current.begin.get(singleNode) ?? 0) : 0;
  const end = singleNode ? (lines.current.end.get(singleNode) ?? 0) : 0;
  const earlier = async () => {
    const abort = new AbortController();
    const more = new Lines();
    const from = Math.max(0, begin - WINDOW);
    setFollowing(false);
    await readPieces(path(from, false), abort.signal, (pieces) => {
      for (const piece of pieces) {
        if (piece.error) continue;
        more.add(piece);
      }
      return (more.end.get(singleNode) ?? 0) < begin;
    });
    const before = more.all.filter((line) => line.offset < begin);
    // The first line that was shown may be the rest of a longer one.
    lines.current.all = [...before, ...all];
    lines.current.begin.set(singleNode, from);
    setTarget(before.length);
    redraw((n) => n + 1);
  };
  const later = async () => {
    const abort = new AbortController();
    const until = end + WINDOW;
    await readPieces(path(end, false), abort.signal, (pieces) => {
      for (const piece of pieces) {
        lines.current.add(piece);
        if ((lines.current.end.get(singleNode) ?? 0) >= until) return false;
      }
      return true;
    });
    setMore((lines.current.end.get(singleNode) ?? 0) >= until);
    redraw((n) => n + 1);
  };
  const copy = () =>
    navigator.clipboard.writeText(all.map((line) => shown(line.text)).join("\n")).then(
      () => showToast("Copied the lines shown."),
      (problem) => showError(problem),
    );
  return (
    <>
      {error && <ErrorNote>{error}</ErrorNote>}
      {singleNode && begin > 0 && (
        <Button kind="quiet" onClick={() => void earlier().catch(showError)}>
          ↑ Load earlier lines ({bytes(begin)})
        </Button>
      )}
      <Rows
        label="Log"
        class="log"
        height={LINE_HEIGHT}
        count={all.length}
        stick={following}
        show={target}
        onLeaveEnd={() => setFollowing(false)}
        row={(i) => <LogLine key={i + lines.current.dropped} line={all[i]!} many={many} find={find} />}
      />
      {singleNode && more && state === "done" && (
        <Button kind="quiet" onClick={() => void later().catch(showError)}>
          ↓ Load later lines
        </Button>
      )}
      <div class="log-end muted" role="status">
        <span>
          {all.length === 0 && state === "done" ? "No output." : plural(all.length, "line")}
          {state === "follows" && job.ended === null && position.at === "end" ? ", live" : ""}
        </span>
        {position.at === "end" && job.ended === null && (
          <label class="inline-check">
            <input type="checkbox" checked={following} onChange={(e) => setFollowing(e.currentTarget.checked)} /> Follow
          </label>
        )}
        <Button kind="quiet" onClick={() => void copy()}>
          Copy
        </Button>
      </div>
    </>
  );
}

function LogLine({ line, many, find }: { line: Line; many: boolean; find: string }) {
  const text = shown(line.text);
  return (
    <div class="log-line">
      {many && <span class="log-node">{line.node}</span>}
      {find ? <Marked text={text} find={find} /> : text}
    </div>
  );
}

/** Text in which matches are marked. */
function Marked({ text, find }: { text: string; find: string }) {
  const parts = [];
  const lower = text.toLowerCase();
  const needle = find.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    parts.push(text.slice(from, at), <mark>{text.slice(at, at + needle.length)}</mark>);
    from = at + needle.length;
  }
  return (
    <>
      {parts}
      {text.slice(from)}
    </>
  );
}
