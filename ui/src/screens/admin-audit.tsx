import { query } from "../api";
import { valueText } from "../format";
import { useData } from "../live";
import { Button, Empty, ErrorNote, Loading, Panel, When } from "../parts/basics";
import { TextField } from "../parts/field";
import { Table } from "../parts/table";
import { params, setParams } from "../router";
import type { AuditPage } from "../types";

type Entry = AuditPage["entries"][number];

export function Audit() {
  const at = params.value;
  const path = `/audit${query({ who: at.get("who"), what: at.get("what"), before: at.get("before"), limit: 50 })}`;
  const { data, error, missing, reload } = useData<AuditPage>(path);
  if (missing) return <Empty title="This server keeps no audit log." />;
  return (
    <Panel title="Who changed what">
      <div class="filters">
        <TextField label="Who" value={at.get("who") ?? ""} onValue={(who) => setParams({ who, before: null }, true)} />
        <TextField label="What" value={at.get("what") ?? ""} onValue={(what) => setParams({ what, before: null }, true)} />
      </div>
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data?.entries.length === 0 && <Empty title="Nobody has changed anything like that." />}
      {data && data.entries.length > 0 && (
        <Table<Entry>
          label="Changes"
          rows={data.entries}
          rowKey={(e) => e.seq}
          columns={[
            { title: "When", cell: (e) => <When at={e.at} /> },
            { title: "Who", cell: (e) => e.who },
            { title: "What", cell: (e) => e.what },
            { title: "Of", class: "names", cell: (e) => e.target },
            { title: "Change", wide: true, cell: (e) => <Change entry={e} /> },
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

/** Every value that differs, with the way to it. */
function differences(before: unknown, after: unknown, way: string[] = []): [way: string, before: unknown, after: unknown][] {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  const isNothing = (value: unknown) => value === null || value === undefined;
  if (isMap(before) && isNothing(after)) return differences(before, {}, way);
  if (isMap(after) && isNothing(before)) return differences({}, after, way);
  if (isNothing(before) && isNothing(after)) return [];
  if (!isMap(before) || !isMap(after)) return [[way.join(" › ").replaceAll("_", " "), before, after]];
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return keys.flatMap((key) => differences(before[key], after[key], [...way, key]));
}

function Change({ entry }: { entry: Entry }) {
  // Of something new only what says something, and not that it is in a map.
  const says = (value: unknown) => value !== false && value !== 0 && value !== "";
  const found = differences(entry.before ?? undefined, entry.after ?? undefined)
    .filter(([, before, after]) => entry.before || says(after) || says(before ?? false))
    .map(([way, before, after]) => [way.replace(/^named › /, ""), before, after] as const);
  const isThere = (value: unknown) => value !== null && value !== undefined;
  return (
    <span class="diff-words">
      {found.slice(0, 8).map(([way, before, after]) => (
        <span key={way}>
          {way && `${way}: `}
          {isThere(before) && <del>{valueText(before)}</del>}
          {isThere(before) && isThere(after) && " → "}
          {isThere(after) && <ins>{valueText(after)}</ins>}
        </span>
      ))}
      {found.length > 8 && <span class="muted">and {found.length - 8} more</span>}
    </span>
  );
}
