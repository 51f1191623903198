// A form by the types of its fields, checked as one types; the server checks again.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Form, JsonValue } from "../generated/events.ts";
import { checkField, initialValue, readValue, type FieldValue } from "../forms/fields.ts";
import { formatMoment } from "../text/format.ts";
import { t } from "../texts.ts";
import { FieldInput } from "./field_input.tsx";

interface FormProps {
  form: Form;
  wrong: { [field: string]: string };
  takesFocus?: boolean;
  onAnswer(values: { [name: string]: JsonValue }): Promise<void>;
}

export function FormCard({ form, wrong, takesFocus = true, onAnswer }: FormProps) {
  const [values, setValues] = useState<{ [name: string]: FieldValue }>(() => initialValues(form));
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  const [isSending, setSending] = useState(false);
  const card = useRef<HTMLFormElement>(null);
  // The server's words about a value count until the value is changed.
  const [refused, setRefused] = useState(wrong);
  useEffect(() => {
    if (takesFocus) card.current?.querySelector<HTMLElement>("input, textarea, select")?.focus();
  }, []);
  useEffect(() => {
    setSending(false);
    setRefused(wrong);
  }, [wrong]);
  const problems = findProblems(form, values);
  const answer = (answers: { [name: string]: JsonValue }) => {
    setSending(true);
    void onAnswer(answers).finally(() => setSending(false));
  };
  const submit = (event: Event) => {
    event.preventDefault();
    setTouched(new Set(form.fields.map(field => field.field_name)));
    const first = form.fields.find(field => problems.has(field.field_name));
    if (first === undefined) answer(readValues(form, values));
    else card.current?.querySelector<HTMLElement>(`[name="${CSS.escape(first.field_name)}"]`)?.focus();
  };
  const change = (name: string, value: FieldValue) => {
    setValues({ ...values, [name]: value });
    setTouched(new Set([...touched, name]));
    const { [name]: _answered, ...others } = refused;
    setRefused(others);
  };
  const problemOf = (name: string) => refused[name] ?? (touched.has(name) ? (problems.get(name) ?? null) : null);
  const title = form.title || form.response || t.nav.inbox;
  return (
    <form class="card request" ref={card} onSubmit={submit} noValidate aria-label={title}>
      <header class="request-head">
        <h3>{title}</h3>
        {form.response && form.response !== title && <p>{form.response}</p>}
        {form.description && <p class="hint">{form.description}</p>}
      </header>
      {refused[""] && (
        <p class="field-error" role="alert">
          {refused[""]}
        </p>
      )}
      {form.fields.map(field => (
        <FieldInput
          key={field.field_name}
          field={field}
          value={values[field.field_name] ?? ""}
          problem={problemOf(field.field_name)}
          onChange={value => change(field.field_name, value)}
          onBlur={() => {
            if (values[field.field_name]?.toString()) setTouched(new Set([...touched, field.field_name]));
          }}
        />
      ))}
      <div class="buttons">
        <button type="submit" class="primary" disabled={isSending}>
          {t.submit}
        </button>
        <button type="button" disabled={isSending} onClick={() => answer({ type: "reject" })}>
          {t.cancel}
        </button>
        {form.expires_at !== null && <span class="hint expires">{t.expires(formatMoment(form.expires_at))}</span>}
      </div>
    </form>
  );
}

function findProblems(form: Form, values: { [name: string]: FieldValue }): Map<string, string> {
  const problems = new Map<string, string>();
  for (const field of form.fields) {
    const problem = checkField(field, values[field.field_name] ?? "");
    if (problem !== null) problems.set(field.field_name, problem);
  }
  return problems;
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
