// What was asked for, as a file.

import { stringify } from "yaml";
import { Button, ButtonLink, Empty, Panel } from "../parts/basics";
import { say, sayError } from "../parts/toast";
import { nativeFile } from "../job-file";
import type { Job } from "../types";

/** The file as it was sent, or written anew from the request. */
export function textOf(job: Job): string | null {
  if (job.text) return job.text;
  return job.request ? stringify(nativeFile(job.request), { lineWidth: 0 }) : null;
}

export function JobFile({ job }: { job: Job }) {
  const text = textOf(job);
  if (text === null) return <Empty title="Only its owner and administrators see what was asked for." />;
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => say("Copied."),
      (error) => sayError(error),
    );
  return (
    <Panel
      title="Job file"
      side={
        <>
          <Button onClick={() => void copy()}>Copy</Button> <ButtonLink href={`/submit?clone=${job.id}`}>Clone</ButtonLink>
        </>
      }
    >
      <pre class="code" tabIndex={0} aria-label="Job file">
        {text}
      </pre>
    </Panel>
  );
}
