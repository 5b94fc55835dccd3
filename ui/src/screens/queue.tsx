// The line: who waits, in the order they will be looked at, and what stands in the way of each.

import { count, plainly, plural } from "../format";
import { anyEvent, useData } from "../live";
import { ButtonLink, Empty, ErrorNote, Head, Loading, When, Words } from "../parts/basics";
import { Table } from "../parts/table";
import type { JobPage, Queued } from "../types";
import { JobLink } from "./home";

/** The line as the server gives it, or where it does not, waiting jobs in the order they came. */
function useQueue() {
  const line = useData<Queued[]>("/queue", anyEvent);
  const waiting = useData<JobPage>(line.missing ? "/jobs?state=queued,preempted,held&limit=200" : null, anyEvent);
  const instead = waiting.data?.jobs.toReversed().map(
    (job, i): Queued => ({ id: job.id, name: job.name, user: job.user, tenant: job.tenant, gpus: job.gpus, priority: job.priority, since: job.submitted, ahead: i, reason: job.detail }),
  );
  const from = line.missing ? waiting : line;
  return { data: line.missing ? instead : line.data, error: from.error, reload: from.reload };
}

export function Queue() {
  const { data, error, reload } = useQueue();
  return (
    <>
      <Head title="Queue" lead={data && data.length > 0 ? `${plural(data.length, "job")} in line, in the order they are looked at` : undefined} />
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data?.length === 0 && (
        <Empty title="Nobody waits.">
          <ButtonLink href="/submit" kind="main">
            Submit a job
          </ButtonLink>
        </Empty>
      )}
      {data && data.length > 0 && (
        <Table<Queued>
          label="Jobs in line"
          rows={data}
          rowKey={(job) => job.id}
          columns={[
            { title: "Place", number: true, cell: (job) => count(job.ahead + 1) },
            {
              title: "Job",
              cell: (job) => (
                <>
                  <JobLink job={job} />
                  <div class="narrow-only muted small">{plainly(job.reason)}</div>
                </>
              ),
            },
            { title: "GPUs", number: true, cell: (job) => count(job.gpus) },
            { title: "Priority", number: true, wide: true, cell: (job) => job.priority },
            { title: "User", wide: true, cell: (job) => job.user },
            { title: "Virtual cluster", wide: true, cell: (job) => job.tenant },
            { title: "Since", wide: true, cell: (job) => <When at={job.since} /> },
            { title: "What it waits for", wide: true, class: "words", cell: (job) => (job.reason ? <Words text={job.reason} /> : <span class="muted">–</span>) },
          ]}
        />
      )}
    </>
  );
}
