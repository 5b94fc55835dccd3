// The queue: waiting jobs in scheduling order, each with the reason why it waits.

import { count, plural } from "../format";
import { anyEvent, useData } from "../live";
import { ButtonLink, Empty, ErrorNote, PageHeader, Loading, RelativeTime, ServerText } from "../parts/basics";
import { Table } from "../parts/table";
import type { JobPage, QueueEntry } from "../types";
import { JobLink } from "./home";

/** The queue of the server; without one, waiting jobs in the order of submission. */
function useQueue() {
  const queue = useData<QueueEntry[]>("/queue", anyEvent);
  const waiting = useData<JobPage>(queue.missing ? "/jobs?state=queued,held&limit=200" : null, anyEvent);
  const bySubmission = waiting.data?.jobs.toReversed().map(
    (job, i): QueueEntry => ({ id: job.id, name: job.name, user: job.user, tenant: job.tenant, gpus: job.gpus, priority: job.priority, since: job.submitted, ahead: i, reason: job.detail }),
  );
  const source = queue.missing ? waiting : queue;
  return { data: queue.missing ? bySubmission : queue.data, error: source.error, reload: source.reload };
}

export function Queue() {
  const { data, error, reload } = useQueue();
  return (
    <>
      <PageHeader title="Queue" lead={data && data.length > 0 ? `${plural(data.length, "job")}, in scheduling order` : undefined} />
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data?.length === 0 && (
        <Empty title="The queue is empty">
          <ButtonLink href="/submit" kind="main">
            Submit a job
          </ButtonLink>
        </Empty>
      )}
      {data && data.length > 0 && (
        <Table<QueueEntry>
          label="Queued jobs"
          rows={data}
          rowKey={(job) => job.id}
          columns={[
            { title: "Position", number: true, cell: (job) => count(job.ahead + 1) },
            {
              title: "Job",
              cell: (job) => (
                <>
                  <JobLink job={job} />
                  <div class="narrow-only muted small">{job.reason}</div>
                </>
              ),
            },
            { title: "GPUs", number: true, cell: (job) => count(job.gpus) },
            { title: "Priority", number: true, wide: true, cell: (job) => job.priority },
            { title: "User", wide: true, cell: (job) => job.user },
            { title: "Virtual cluster", wide: true, cell: (job) => job.tenant },
            { title: "Queued", wide: true, cell: (job) => <RelativeTime at={job.since} /> },
            { title: "Reason", wide: true, class: "words", cell: (job) => (job.reason ? <ServerText text={job.reason} /> : <span class="muted">–</span>) },
          ]}
        />
      )}
    </>
  );
}
