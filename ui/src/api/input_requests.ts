// Requests as the REST API gives them (a2a/request_data.py), as the forms and approvals of the events.
import type { Approval, Form, InputField } from "../generated/events.ts";

export interface InputRequestData {
  approval?: boolean;
  tool?: string;
  arguments?: Approval["arguments"];
  reason?: string;
  allowed?: Approval["allowed"];
  digest?: string;
  input_title?: string;
  input_description?: string;
  response?: string;
  input_fields?: (Partial<InputField> & { field_name: string })[];
}

const FIELD_DEFAULTS: Omit<InputField, "field_name"> = {
  field_label: "",
  field_description: "",
  field_type: "text",
  field_values: null,
  default_value: null,
  required: true,
  value: null,
  placeholder: null,
  pattern: null,
  minimum: null,
  maximum: null,
  min_length: null,
  max_length: null,
};

export function readInputRequest(data: InputRequestData, expiresAt: string | null): Form | Approval {
  if (data.approval) {
    return {
      type: "approval",
      tool: data.tool ?? "",
      arguments: data.arguments ?? {},
      arguments_schema: null,
      reason: data.reason ?? "",
      allowed: data.allowed ?? [],
      digest: data.digest ?? "",
      expires_at: expiresAt,
    };
  }
  return {
    type: "form",
    title: data.input_title ?? null,
    description: data.input_description ?? null,
    response: data.response ?? "",
    fields: readFields(data.input_fields ?? []),
    expires_at: expiresAt,
  };
}

/** The fields with what the wire leaves out. */
export function readFields(fields: (Partial<InputField> & { field_name: string })[]): InputField[] {
  return fields.map(field => ({ ...FIELD_DEFAULTS, ...field }));
}
