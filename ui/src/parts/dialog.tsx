// Dialogs: the browser's own, so that focus, Escape and the background are looked after. And asking once before harm.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { messageOf } from "../api";
import { Button, ErrorNote } from "./basics";

export function Dialog({
  title,
  onClose,
  children,
  wide = false,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      ref={box}
      class={wide ? "wide-dialog" : ""}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === box.current) onClose();
      }}
    >
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id={id}>{title}</h2>
          <Button kind="quiet" aria-label="Close" onClick={onClose}>
            ✕
          </Button>
        </div>
        {children}
      </div>
    </dialog>
  );
}

/** The row of buttons at the end of a dialog's form. */
export function FormEnd({
  submit,
  kind = "main",
  onCancel,
  busy,
  error,
}: {
  submit: string;
  kind?: "main" | "danger";
  onCancel: () => void;
  busy?: boolean;
  error?: string;
}) {
  return (
    <>
      {error && <ErrorNote>{error}</ErrorNote>}
      <div class="form-end">
        <Button onClick={onCancel}>Cancel</Button>
        <Button kind={kind} type="submit" disabled={busy}>
          {submit}
        </Button>
      </div>
    </>
  );
}

/** Runs something and keeps what went wrong. */
export function useAction(): { busy: boolean; error: string | undefined; run: (work: () => Promise<void>) => void } {
  const [state, set] = useState<{ busy: boolean; error?: string }>({ busy: false });
  const run = (work: () => Promise<void>) => {
    set({ busy: true });
    work().then(
      () => set({ busy: false }),
      (error) => set({ busy: false, error: messageOf(error) }),
    );
  };
  return { busy: state.busy, error: state.error, run };
}

interface Question {
  title: string;
  text: string;
  yes: string;
  act: () => Promise<void>;
}

const question = signal<Question | null>(null);

/** Asks once before something that cannot be undone. */
export function confirmFirst(asked: Question): void {
  question.value = asked;
}

export function Confirmer() {
  const asked = question.value;
  return asked ? <Confirm key={asked.title} asked={asked} /> : null;
}

function Confirm({ asked }: { asked: Question }) {
  const { busy, error, run } = useAction();
  const close = () => {
    question.value = null;
  };
  const yes = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await asked.act();
      close();
    });
  };
  return (
    <Dialog title={asked.title} onClose={close}>
      <form onSubmit={yes}>
        <p>{asked.text}</p>
        <FormEnd submit={asked.yes} kind="danger" onCancel={close} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}
