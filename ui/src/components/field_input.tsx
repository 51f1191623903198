// One field of a form, with its label, hint and error.
import { useId } from "preact/hooks";
import type { InputField } from "../generated/events.ts";
import type { FieldValue } from "../forms/fields.ts";
import { t } from "../texts.ts";
import { MultiSelect } from "./multi_select.tsx";

interface FieldProps {
  field: InputField;
  value: FieldValue;
  problem: string | null;
  onChange(value: FieldValue): void;
  onBlur(): void;
}

export function FieldInput({ field, value, problem, onChange, onBlur }: FieldProps) {
  const id = useId();
  const label = field.field_label || field.field_name;
  const described = [field.field_description && `${id}-hint`, problem && `${id}-error`].filter(Boolean).join(" ");
  const common = {
    id,
    name: field.field_name,
    required: field.required,
    "aria-invalid": problem !== null,
    "aria-describedby": described || undefined,
    onBlur,
  };
  const isGroup = field.field_type === "multiselect";
  const Label = isGroup ? "span" : "label";
  return (
    <div class={`field field-${field.field_type}`}>
      <Label class="field-label" id={`${id}-label`} {...(isGroup ? {} : { for: id })}>
        {label}
        {!field.required && field.field_type !== "boolean" && <span class="optional">{t.optional}</span>}
      </Label>
      <Control field={field} value={value} common={common} id={id} onChange={onChange} />
      {problem !== null ? (
        <p class="field-error" id={`${id}-error`} role="alert">
          {problem}
        </p>
      ) : null}
      {field.field_description && problem !== field.field_description && (
        <p class="hint" id={`${id}-hint`}>
          {field.field_description}
        </p>
      )}
    </div>
  );
}

interface ControlProps {
  field: InputField;
  value: FieldValue;
  common: object;
  id: string;
  onChange(value: FieldValue): void;
}

function Control({ field, value, common, id, onChange }: ControlProps) {
  switch (field.field_type) {
    case "boolean":
      return (
        <input
          {...common}
          type="checkbox"
          checked={value === true}
          onChange={event => onChange(event.currentTarget.checked)}
        />
      );
    case "textarea":
      return (
        <textarea
          {...common}
          rows={4}
          value={String(value)}
          placeholder={field.placeholder ?? ""}
          onInput={event => onChange(event.currentTarget.value)}
        />
      );
    case "select":
      return (
        <select {...common} value={String(value)} onChange={event => onChange(event.currentTarget.value)}>
          <option value="">{t.choose}</option>
          {(field.field_values ?? []).map(option => (
            <option key={option} value={option}>
              {option}
            </option>
          ))}
        </select>
      );
    case "multiselect":
      return (
        <MultiSelect
          name={field.field_name}
          labelledBy={`${id}-label`}
          options={field.field_values ?? []}
          chosen={Array.isArray(value) ? value : []}
          onChange={onChange}
        />
      );
    case "date":
      return (
        <input {...common} type="date" value={String(value)} onInput={event => onChange(event.currentTarget.value)} />
      );
    case "text":
    case "integer":
    case "number":
    case "url":
    case "email":
      return (
        <input
          {...common}
          type="text"
          inputMode={INPUT_MODES[field.field_type]}
          value={String(value)}
          placeholder={field.placeholder ?? ""}
          onInput={event => onChange(event.currentTarget.value)}
        />
      );
  }
}

const INPUT_MODES = { text: "text", integer: "numeric", number: "decimal", url: "url", email: "email" } as const;
