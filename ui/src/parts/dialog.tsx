// Dialogs, built on the <dialog> element, which handles focus and Escape; and confirmation of destructive actions.

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

/** The buttons at the end of a form in a dialog. */
export function FormButtons({
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

/** Runs an action, and keeps its error message. */
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

interface Confirmation {
  title: string;
  text: string;
  yes: string;
  act: () => Promise<void>;
}

const pending = signal<Confirmation | null>(null);

/** Asks for confirmation of an action that cannot be undone. */
export function confirm(confirmation: Confirmation): void {
  pending.value = confirmation;
}

export function ConfirmDialogHost() {
  const confirmation = pending.value;
  return confirmation ? <ConfirmDialog key={confirmation.title} confirmation={confirmation} /> : null;
}

function ConfirmDialog({ confirmation }: { confirmation: Confirmation }) {
  const { busy, error, run } = useAction();
  const close = () => {
    pending.value = null;
  };
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await confirmation.act();
      close();
    });
  };
  return (
    <Dialog title={confirmation.title} onClose={close}>
      <form onSubmit={submit}>
        <p>{confirmation.text}</p>
        <FormButtons submit={confirmation.yes} kind="danger" onCancel={close} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}
