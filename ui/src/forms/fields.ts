// Values of form fields: where they begin, what is wrong with them, and what is sent. The rules of core/forms.py.
import type { InputField, JsonValue } from "../generated/events.ts";
import { t } from "../texts.ts";

export type FieldValue = string | boolean | string[];

export function initialValue(field: InputField): FieldValue {
  const value = field.value ?? field.default_value;
  if (field.field_type === "boolean") return value === true || value === "true";
  if (field.field_type === "multiselect") return Array.isArray(value) ? value.map(String) : [];
  return value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
}

export function checkField(field: InputField, value: FieldValue): string | null {
  if (typeof value === "boolean") return null;
  if (value.length === 0) return field.required && field.default_value === null ? t.required : null;
  if (typeof value !== "string") return null;
  return checkNumber(field, value) ?? checkText(field, value);
}

function checkNumber(field: InputField, value: string): string | null {
  if (field.field_type !== "integer" && field.field_type !== "number") return null;
  const number = Number(value);
  if (!Number.isFinite(number)) return t.fields.number;
  if (field.field_type === "integer" && !Number.isInteger(number)) return t.fields.integer;
  if (field.minimum !== null && number < field.minimum) return t.fields.minimum(field.minimum);
  if (field.maximum !== null && number > field.maximum) return t.fields.maximum(field.maximum);
  return null;
}

function checkText(field: InputField, value: string): string | null {
  const length = Array.from(value).length;
  if (field.min_length !== null && length < field.min_length) return t.fields.minLength(field.min_length);
  if (field.max_length !== null && length > field.max_length) return t.fields.maxLength(field.max_length);
  if (field.field_type === "email" && !/^[^@\s]+@[^@\s]+$/.test(value)) return t.fields.email;
  if (field.field_type === "url" && !/^https?:\/\/\S+$/i.test(value)) return t.fields.url;
  if (field.pattern !== null && !matches(field.pattern, value)) return field.field_description || t.fields.pattern;
  return null;
}

/** A pattern of Python that the browser does not know is left to the server. */
function matches(pattern: string, value: string): boolean {
  try {
    return new RegExp(`^(?:${pattern})$`, "u").test(value);
  } catch {
    return true;
  }
}

export function readValue(field: InputField, value: FieldValue): JsonValue {
  if (typeof value !== "string") return value;
  if (value === "") return null;
  if (field.field_type === "integer" || field.field_type === "number") return Number(value);
  return value;
}
