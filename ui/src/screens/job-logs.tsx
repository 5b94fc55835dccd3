// What a job prints: the end at once however long it is, followed as it grows, searched from its start.

import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, get, messageOf, query } from "../api";
import { bytes, plural } from "../format";
import { type Line, Lines, MOST_FOUND, WINDOW, readPieces, searchLog, shown } from "../log";
import { Button, Empty, ErrorNote, Panel } from "../parts/basics";
import { Choice } from "../parts/field";
import { Rows } from "../parts/rows";
import { say, sayError } from "../parts/toast";
import { params } from "../router";
import type { Found, Job } from "../types";

const LINE_HEIGHT = 18;

/** Which part of the log is shown. */
type Place = { at: "end" } | { at: "start" } | { at: "around"; node: string; offset: number };

export function JobLogs({ job }: { job: Job }) {
  const attempts = job.attempts ?? [];
  const [launch, setLaunch] = useState<number | null>(null);
  const [node, setNode] = useState(params.value.get("node") ?? "");
  const [place, setPlace] = useState<Place>({ at: "end" });
  const [find, setFind] = useState("");
  const attempt = attempts.find((a) => a.launch === launch) ?? attempts.at(-1);
  const nodes = attempt?.seats.map((s) => s.node) ?? [];
  if (!attempt) {
    return <Empty title="It has not printed anything: it has not been launched yet.">The log appears here as soon as it runs.</Empty>;
  }
  const go = (next: Place) => {
    if (next.at === "around") setNode(next.node);
    setPlace(next);
  };
  return (
    <Panel class="log-panel">
      <div class="log-tools">
        {attempts.length > 1 && (
          <Choice
            label="Launch"
            value={String(launch ?? "")}
            onValue={(value) => (setLaunch(value ? Number(value) : null), setPlace({ at: "end" }))}
            of={[["", "the last"], ...attempts.map((a) => [String(a.launch), String(a.launch)] as [string, string]).reverse()]}
          />
        )}
        {nodes.length > 1 && (
          <Choice
            label="Node"
            value={node}
            onValue={(value) => (setNode(value), setPlace({ at: "end" }))}
            of={[["", `all ${nodes.length}`], ...nodes.map((n) => [n, n] as [string, string])]}
          />
        )}
        <Find job={job} launch={launch} node={node} find={find} setFind={setFind} go={go} />
        <div class="filter-buttons">
          <Button aria-pressed={place.at === "start"} onClick={() => setPlace({ at: "start" })}>
            Start
          </Button>
          <Button aria-pressed={place.at === "end"} onClick={() => setPlace({ at: "end" })}>
            End
          </Button>
        </div>
      </div>
      <LogView key={JSON.stringify([launch, node, place])} job={job} launch={launch} node={node} place={place} many={nodes.length > 1 && !node} find={find} />
    </Panel>
  );
}

/** The search of the whole log. */
function Find({
  job,
  launch,
  node,
  find,
  setFind,
  go,
}: {
  job: Job;
  launch: number | null;
  node: string;
  find: string;
  setFind: (text: string) => void;
  go: (place: Place) => void;
}) {
  const [result, setResult] = useState<{ found: Found[]; bytes?: number }>();
  const [error, setError] = useState<string>();
  const [work, setWork] = useState<AbortController>();
  const search = async (signal: AbortSignal) => {
    setResult({ found: await get<Found[]>(`/jobs/${job.id}/logs/search${query({ q: find, launch, node, limit: MOST_FOUND })}`, signal) });
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
        // A server that cannot search hands the log out to be read.
        if (!(problem instanceof Problem && problem.isMissing)) throw problem;
        return searchLog(`/jobs/${job.id}/logs${query({ launch, node, offset: 0 })}`, find, abort.signal, (found, bytes) => setResult({ found, bytes }));
      });
    } catch (problem) {
      if (!abort.signal.aborted) setError(messageOf(problem));
    }
    setWork((now) => (now === abort ? undefined : now));
  };
  useEffect(() => () => work?.abort(), [work]);
  return (
    <form class="log-find" role="search" onSubmit={(event) => void start(event)}>
      <div class="field">
        <label for="log-find">Find in the log</label>
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
            <Button type="submit">Find</Button>
          )}
        </span>
      </div>
      {error && <ErrorNote>{error}</ErrorNote>}
      {result && (
        <div class="found">
          <div class="panel-head">
            <span class="muted" role="status">
              {foundWords(result.found.length, !!work)} {result.bytes !== undefined && <span class="small">{bytes(result.bytes)} read</span>}
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

function foundWords(places: number, goesOn: boolean): string {
  if (places >= MOST_FOUND) return `The first ${MOST_FOUND} places.`;
  if (goesOn) return places ? `${plural(places, "place")} so far …` : "Looking …";
  return places ? `${plural(places, "place")}.` : "Nothing like that.";
}

function LogView({ job, launch, node, place, many, find }: { job: Job; launch: number | null; node: string; place: Place; many: boolean; find: string }) {
  const lines = useRef(new Lines(place.at === "end"));
  const [, redraw] = useState(0);
  const [following, setFollowing] = useState(place.at === "end");
  const [state, setState] = useState<"reading" | "follows" | "done">("reading");
  const [error, setError] = useState<string>();
  const [target, setTarget] = useState<number>();
  /** There may be more behind what is shown. */
  const [more, setMore] = useState(place.at !== "end");
  const path = (offset: number, follow: boolean) =>
    `/jobs/${job.id}/logs${query({ launch, node, offset, follow: follow || undefined })}`;

  /** Of one part enough was read; the end is read as long as it grows. */
  const isEnough = () => {
    if (place.at === "end") return false;
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
    const live = place.at === "end" && !job.over;
    const from = place.at === "end" ? -WINDOW : place.at === "start" ? 0 : Math.max(0, place.offset - WINDOW / 2);
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
        if (place.at === "around") {
          const at = lines.current.all.findIndex((line) => line.offset > place.offset);
          setTarget(Math.max(0, (at < 0 ? lines.current.all.length : at) - 1));
        }
      },
      (problem) => fail(problem, abort.signal),
    );
    return () => {
      abort.abort();
      cancelAnimationFrame(drawing);
    };
    // A job that is launched again goes on in the same stream.
  }, []);

  const all = lines.current.all;
  const only = node || (all.length && !many ? all[0]!.node : "");
  const begin = only ? (lines.current.begin.get(only) ?? 0) : 0;
  const end = only ? (lines.current.end.get(only) ?? 0) : 0;
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
      return (more.end.get(only) ?? 0) < begin;
    });
    const before = more.all.filter((line) => line.offset < begin);
    // The first line that was shown may have begun before it.
    lines.current.all = [...before, ...all];
    lines.current.begin.set(only, from);
    setTarget(before.length);
    redraw((n) => n + 1);
  };
  const later = async () => {
    const abort = new AbortController();
    const until = end + WINDOW;
    await readPieces(path(end, false), abort.signal, (pieces) => {
      for (const piece of pieces) {
        lines.current.add(piece);
        if ((lines.current.end.get(only) ?? 0) >= until) return false;
      }
      return true;
    });
    setMore((lines.current.end.get(only) ?? 0) >= until);
    redraw((n) => n + 1);
  };
  const copy = () =>
    navigator.clipboard.writeText(all.map((line) => shown(line.text)).join("\n")).then(
      () => say("What is shown was copied."),
      (problem) => sayError(problem),
    );
  return (
    <>
      {error && <ErrorNote>{error}</ErrorNote>}
      {only && begin > 0 && (
        <Button kind="quiet" onClick={() => void earlier().catch(sayError)}>
          ↑ Show what is before ({bytes(begin)})
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
      {only && more && state === "done" && (
        <Button kind="quiet" onClick={() => void later().catch(sayError)}>
          ↓ Show what is behind
        </Button>
      )}
      <div class="log-end muted" role="status">
        <span>
          {all.length === 0 && state === "done" ? "It has printed nothing." : plural(all.length, "line")}
          {state === "follows" && !job.over && place.at === "end" ? ", live" : ""}
        </span>
        {place.at === "end" && !job.over && (
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

/** Text with what is looked for marked; always text, whatever it says. */
function Marked({ text, find }: { text: string; find: string }) {
  const parts = [];
  const low = text.toLowerCase();
  const wanted = find.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), <mark>{text.slice(at, at + wanted.length)}</mark>);
    from = at + wanted.length;
  }
  return (
    <>
      {parts}
      {text.slice(from)}
    </>
  );
}
