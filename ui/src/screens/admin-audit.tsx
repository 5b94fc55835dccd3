// The audit log: who changed what.

import { query } from "../api";
import { valueText } from "../format";
import { useData } from "../live";
import { Button, Empty, ErrorNote, Loading, Panel, RelativeTime } from "../parts/basics";
import { TextField } from "../parts/field";
import { Table } from "../parts/table";
import { params, setParams } from "../router";
import type { AuditPage } from "../types";
import { FIELDS } from "./vc-edit";

type Entry = AuditPage["entries"][number];

export function Audit() {
  const at = params.value;
  const path = `/audit${query({ who: at.get("who"), what: at.get("what"), before: at.get("before"), limit: 50 })}`;
  const { data, error, missing, reload } = useData<AuditPage>(path);
  if (missing) return <Empty title="This server has no audit log" />;
  return (
    <Panel title="Audit log">
      <div class="filters">
        <TextField label="User" value={at.get("who") ?? ""} onValue={(who) => setParams({ who, before: null }, true)} />
        <TextField label="Change" value={at.get("what") ?? ""} onValue={(what) => setParams({ what, before: null }, true)} />
      </div>
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data?.entries.length === 0 && <Empty title="No matching changes" />}
      {data && data.entries.length > 0 && (
        <Table<Entry>
          label="Changes"
          rows={data.entries}
          rowKey={(e) => e.seq}
          columns={[
            { title: "Time", cell: (e) => <RelativeTime at={e.at} /> },
            { title: "User", cell: (e) => e.who },
            { title: "Change", cell: (e) => e.what },
            { title: "Target", class: "names", cell: (e) => e.target },
            { title: "Details", wide: true, cell: (e) => <Change entry={e} /> },
          ]}
        />
      )}
      <div class="paging">
        {at.get("before") && <Button onClick={() => setParams({ before: null })}>Newest</Button>}
        {data?.next && <Button onClick={() => setParams({ before: data.next })}>Older</Button>}
      </div>
    </Panel>
  );
}

const isMap = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

const label = (key: string) => FIELDS[key] ?? key.replaceAll("_", " ");

/** Returns every value that differs, with its path. */
function differences(before: unknown, after: unknown, path: string[] = []): [path: string, before: unknown, after: unknown][] {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  const isEmpty = (value: unknown) => value === null || value === undefined;
  if (isMap(before) && isEmpty(after)) return differences(before, {}, path);
  if (isMap(after) && isEmpty(before)) return differences({}, after, path);
  if (isEmpty(before) && isEmpty(after)) return [];
  if (!isMap(before) || !isMap(after)) return [[path.map(label).join(" › "), before, after]];
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return keys.flatMap((key) => differences(before[key], after[key], [...path, key]));
}

function Change({ entry }: { entry: Entry }) {
  // Of a new object only values that are set are shown.
  const isSet = (value: unknown) => value !== false && value !== 0 && value !== "";
  const found = differences(entry.before ?? undefined, entry.after ?? undefined)
    .filter(([, before, after]) => entry.before || isSet(after) || isSet(before ?? false))
    .map(([path, before, after]) => [path.replace(/^named › /, ""), before, after] as const);
  const exists = (value: unknown) => value !== null && value !== undefined;
  return (
    <span class="diff-words">
      {found.slice(0, 8).map(([path, before, after]) => (
        <span key={path}>
          {path && `${path}: `}
          {exists(before) && <del>{valueText(before)}</del>}
          {exists(before) && exists(after) && " → "}
          {exists(after) && <ins>{valueText(after)}</ins>}
        </span>
      ))}
      {found.length > 8 && <span class="muted">and {found.length - 8} more</span>}
    </span>
  );
}
