// One field of a form, with its label, hint and error.
import { useId } from "preact/hooks";
import type { InputField } from "../generated/events.ts";
import type { FieldValue } from "../forms/fields.ts";
import { t } from "../texts.ts";

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
  return (
    <div class={`field field-${field.field_type}`}>
      <label for={id}>
        {label}
        {field.required && (
          <span class="required" title={t.required}>
            {" *"}
          </span>
        )}
      </label>
      <Control field={field} value={value} common={common} onChange={onChange} />
      {field.field_description && (
        <p class="hint" id={`${id}-hint`}>
          {field.field_description}
        </p>
      )}
      {problem !== null && (
        <p class="field-error" id={`${id}-error`} role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

interface ControlProps {
  field: InputField;
  value: FieldValue;
  common: object;
  onChange(value: FieldValue): void;
}

function Control({ field, value, common, onChange }: ControlProps) {
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
        <select
          {...common}
          multiple
          onChange={event => onChange(Array.from(event.currentTarget.selectedOptions, option => option.value))}
        >
          {(field.field_values ?? []).map(option => (
            <option key={option} value={option} selected={Array.isArray(value) && value.includes(option)}>
              {option}
            </option>
          ))}
        </select>
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
