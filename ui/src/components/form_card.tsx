// A form by the types of its fields, checked as one types; the server checks again.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Form, JsonValue } from "../generated/events.ts";
import { checkField, initialValue, readValue, type FieldValue } from "../forms/fields.ts";
import { t } from "../texts.ts";
import { FieldInput } from "./field_input.tsx";

interface FormProps {
  form: Form;
  wrong: { [field: string]: string };
  onAnswer(values: { [name: string]: JsonValue }): Promise<void>;
}

export function FormCard({ form, wrong, onAnswer }: FormProps) {
  const [values, setValues] = useState<{ [name: string]: FieldValue }>(() => initialValues(form));
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  const [isSending, setSending] = useState(false);
  const card = useRef<HTMLFormElement>(null);
  useEffect(() => card.current?.querySelector<HTMLElement>("input, textarea, select")?.focus(), []);
  useEffect(() => setSending(false), [wrong]);
  const problems = new Map<string, string>();
  for (const field of form.fields) {
    const problem = checkField(field, values[field.field_name] ?? "");
    if (problem !== null) problems.set(field.field_name, problem);
  }
  const submit = (event: Event) => {
    event.preventDefault();
    setTouched(new Set(form.fields.map(field => field.field_name)));
    if (problems.size > 0) {
      const first = form.fields.find(field => problems.has(field.field_name))!;
      card.current?.querySelector<HTMLElement>(`[name="${CSS.escape(first.field_name)}"]`)?.focus();
      return;
    }
    setSending(true);
    void onAnswer(readValues(form, values));
  };
  const title = form.title || form.response || t.nav.inbox;
  return (
    <form class="card request" ref={card} onSubmit={submit} noValidate aria-label={title}>
      <h3>{title}</h3>
      {form.response && form.response !== title && <p>{form.response}</p>}
      {form.description && <p class="hint">{form.description}</p>}
      {wrong[""] && (
        <p class="field-error" role="alert">
          {wrong[""]}
        </p>
      )}
      {form.fields.map(field => (
        <FieldInput
          key={field.field_name}
          field={field}
          value={values[field.field_name] ?? ""}
          problem={wrong[field.field_name] ?? (touched.has(field.field_name) ? (problems.get(field.field_name) ?? null) : null)}
          onChange={value => setValues({ ...values, [field.field_name]: value })}
          onBlur={() => setTouched(new Set([...touched, field.field_name]))}
        />
      ))}
      <div class="buttons">
        <button type="submit" class="primary" disabled={isSending}>
          {t.submit}
        </button>
        <button
          type="button"
          disabled={isSending}
          onClick={() => {
            setSending(true);
            void onAnswer({ type: "reject" });
          }}
        >
          {t.cancel}
        </button>
      </div>
    </form>
  );
}

function initialValues(form: Form): { [name: string]: FieldValue } {
  return Object.fromEntries(form.fields.map(field => [field.field_name, initialValue(field)]));
}

function readValues(form: Form, values: { [name: string]: FieldValue }): { [name: string]: JsonValue } {
  const answers: { [name: string]: JsonValue } = {};
  for (const field of form.fields) {
    const value = readValue(field, values[field.field_name] ?? "");
    if (value !== null) answers[field.field_name] = value;
  }
  return answers;
}

