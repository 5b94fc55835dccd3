// The form for the parameters of a template.

import { useState } from "preact/hooks";
import { send } from "../api";
import { Dialog, FormButtons, useAction } from "../parts/dialog";
import { Check, Choice, NumberField, TextField } from "../parts/field";
import type { Parameter, Template } from "../types";

type Value = string | number | boolean | null;

function initialValue(parameter: Parameter): Value {
  if (parameter.default !== undefined && parameter.default !== null) return parameter.default;
  if (parameter.type === "flag") return false;
  return parameter.type === "choice" ? (parameter.choices?.[0] ?? "") : parameter.type === "number" ? null : "";
}

export function TemplateDialog({ template, use, onClose }: { template: Template; use: (text: string) => void; onClose: () => void }) {
  const [values, setValues] = useState<Record<string, Value>>(() => Object.fromEntries(template.parameters.map((p) => [p.name, initialValue(p)])));
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      const rendered = await send<{ text: string }>("POST", `/templates/${encodeURIComponent(template.name)}/render`, { values });
      use(rendered.text);
      onClose();
    });
  };
  return (
    <Dialog title={template.title || template.name} onClose={onClose}>
      <form onSubmit={submit}>
        {template.description && <p class="muted">{template.description}</p>}
        {template.parameters.map((parameter) => (
          <ParameterField
            key={parameter.name}
            parameter={parameter}
            value={values[parameter.name] ?? null}
            onValue={(value) => setValues({ ...values, [parameter.name]: value })}
          />
        ))}
        <FormButtons submit="Use template" onCancel={onClose} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}

function ParameterField({ parameter, value, onValue }: { parameter: Parameter; value: Value; onValue: (value: Value) => void }) {
  const label = parameter.name.replaceAll("_", " ");
  const hint = parameter.help || undefined;
  switch (parameter.type) {
    case "flag":
      return <Check label={label} hint={hint} value={value === true} onValue={onValue} />;
    case "choice":
      return <Choice label={label} hint={hint} value={String(value ?? "")} onValue={onValue} of={(parameter.choices ?? []).map((c) => [c, c])} />;
    case "number":
      return (
        <NumberField
          label={label}
          hint={hint}
          value={typeof value === "number" ? value : null}
          onValue={onValue}
          min={parameter.min ?? undefined}
          max={parameter.max ?? undefined}
          step="any"
          required
        />
      );
    default:
      return <TextField label={label} hint={hint} value={String(value ?? "")} onValue={onValue} />;
  }
}
