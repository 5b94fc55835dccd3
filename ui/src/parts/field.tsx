// Form fields: a label, an input, and a hint.

import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

function Field({
  label,
  hint,
  children,
}: {
  label: string;
  hint?: ComponentChildren;
  children: (ids: { id: string; described?: string }) => ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, described: hint ? `${id}-hint` : undefined })}
      {hint && (
        <div class="hint" id={`${id}-hint`}>
          {hint}
        </div>
      )}
    </div>
  );
}

type Common = { label: string; hint?: ComponentChildren };

/** Further attributes of a one-line field. */
interface Options {
  type?: "text" | "search" | "password" | "email" | "url" | "number" | "date";
  placeholder?: string;
  required?: boolean;
  disabled?: boolean;
  autofocus?: boolean;
  autocomplete?: "username" | "current-password" | "new-password" | "email" | "off";
  min?: number | string;
  max?: number | string;
  step?: number | "any";
  minLength?: number;
  list?: string;
}

export function TextField({
  label,
  hint,
  value,
  onValue,
  ...rest
}: Common & Options & { value: string; onValue: (value: string) => void }) {
  return (
    <Field label={label} hint={hint}>
      {({ id, described }) => (
        <input {...(rest as JSX.IntrinsicElements["input"])} id={id} aria-describedby={described} value={value} onInput={(e) => onValue(e.currentTarget.value)} />
      )}
    </Field>
  );
}

/** A number, or empty. */
export function NumberField({
  label,
  hint,
  value,
  onValue,
  ...rest
}: Common & Options & { value: number | null; onValue: (value: number | null) => void }) {
  return (
    <Field label={label} hint={hint}>
      {({ id, described }) => (
        <input
          {...({ ...rest, type: "number" } as JSX.IntrinsicElements["input"])}
          id={id}
          aria-describedby={described}
          value={value ?? ""}
          onInput={(e) => onValue(e.currentTarget.value === "" ? null : e.currentTarget.valueAsNumber)}
        />
      )}
    </Field>
  );
}

export function Choice({
  label,
  hint,
  value,
  of,
  onValue,
}: Common & { value: string; of: [value: string, text: string][]; onValue: (value: string) => void }) {
  return (
    <Field label={label} hint={hint}>
      {({ id, described }) => (
        <select id={id} aria-describedby={described} value={value} onChange={(e) => onValue(e.currentTarget.value)}>
          {of.map(([key, text]) => (
            <option key={key} value={key}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function Area({
  label,
  hint,
  value,
  onValue,
  ...rest
}: Common & { value: string; onValue: (value: string) => void } & Omit<JSX.IntrinsicElements["textarea"], "label" | "value">) {
  return (
    <Field label={label} hint={hint}>
      {({ id, described }) => (
        <textarea
          spellcheck={false}
          {...rest}
          id={id}
          aria-describedby={described}
          value={value}
          onInput={(e) => onValue(e.currentTarget.value)}
        />
      )}
    </Field>
  );
}

export function Check({ label, hint, value, onValue }: Common & { value: boolean; onValue: (value: boolean) => void }) {
  const id = useId();
  return (
    <div class="check">
      <input
        type="checkbox"
        id={id}
        checked={value}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onChange={(e) => onValue(e.currentTarget.checked)}
      />
      <label for={id}>{label}</label>
      {hint && (
        <div class="hint" id={`${id}-hint`}>
          {hint}
        </div>
      )}
    </div>
  );
}
