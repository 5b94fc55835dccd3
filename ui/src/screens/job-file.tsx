// The request of a job, as a job file.

import { stringify } from "yaml";
import { Button, ButtonLink, Empty, Panel } from "../parts/basics";
import { showToast, showError } from "../parts/toast";
import { nativeFile } from "../job-file";
import type { Job } from "../types";

/** Returns the job file as submitted, or one that is written from the request. */
export function textOf(job: Job): string | null {
  if (job.text) return job.text;
  return job.request ? stringify(nativeFile(job.request), { lineWidth: 0 }) : null;
}

export function JobFile({ job }: { job: Job }) {
  const text = textOf(job);
  if (text === null) return <Empty title="Only the owner and administrators can see the job file" />;
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => showToast("Copied."),
      (error) => showError(error),
    );
  return (
    <Panel
      title="Job file"
      side={
        <>
          <Button onClick={() => void copy()}>Copy</Button> <ButtonLink href={`/submit?clone=${job.id}`}>Resubmit</ButtonLink>
        </>
      }
    >
      <pre class="code" tabIndex={0} aria-label="Job file">
        {text}
      </pre>
    </Panel>
  );
}
