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
            { title: "Of", cell: (e) => e.target },
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

/** What it was and what it is; of an object only the parts that differ. */
function Change({ entry }: { entry: Entry }) {
  const { before, after } = entry;
  const isMap = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
  if (isMap(before) && isMap(after)) {
    const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((key) => JSON.stringify(before[key]) !== JSON.stringify(after[key]));
    return (
      <span class="diff-words">
        {keys.map((key) => (
          <span key={key}>
            {key.replaceAll("_", " ")}: <del>{valueText(before[key])}</del> → <ins>{valueText(after[key])}</ins>
          </span>
        ))}
      </span>
    );
  }
  return (
    <span class="diff-words">
      <span>
        {before !== null && before !== undefined && <del>{valueText(before)}</del>} {after !== null && after !== undefined && <ins>{valueText(after)}</ins>}
      </span>
    </span>
  );
}
