// Generated from ai_platform_engineering/core/events.py by `make ui-types`. Do not edit.

export type JsonValue = null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue };

export interface Answered {
  agent: string;
  parent_call: string | null;
  kind: "answered";
  text: string;
  trace_id: string;
  data: JsonValue;
  citations: (Citation)[];
  usage: Usage | null;
  message_id: string | null;
  slot: string | null;
}

export interface Approval {
  type: "approval";
  tool: string;
  arguments: { [key: string]: JsonValue };
  arguments_schema: { [key: string]: JsonValue } | null;
  reason: string;
  allowed: ("approve" | "edit" | "reject")[];
  digest: string;
  expires_at: string | null;
}

export interface Cancelled {
  agent: string;
  parent_call: string | null;
  kind: "cancelled";
  trace_id: string;
  by: string;
  partial: string | null;
  usage: Usage | null;
}

export interface Citation {
  title: string;
  url: string | null;
  document_id: string | null;
  number: number | null;
}

export interface DataPart {
  type: "data";
  data: JsonValue;
}

export interface Failed {
  agent: string;
  parent_call: string | null;
  kind: "failed";
  message: string;
  trace_id: string;
  code: string;
  retryable: boolean;
  partial: string | null;
  usage: Usage | null;
}

export interface FilePart {
  type: "file";
  name: string;
  media_type: string;
  text: string;
}

export interface Form {
  type: "form";
  title: string | null;
  description: string | null;
  response: string;
  fields: (InputField)[];
  expires_at: string | null;
}

export interface InputField {
  field_name: string;
  field_label: string | null;
  field_description: string | null;
  field_type: "text" | "textarea" | "select" | "multiselect" | "boolean" | "integer" | "number" | "date" | "url" | "email";
  field_values: (string)[] | null;
  default_value: JsonValue;
  required: boolean;
  value: JsonValue;
  placeholder: string | null;
  pattern: string | null;
  minimum: number | null;
  maximum: number | null;
  min_length: number | null;
  max_length: number | null;
}

export interface InputRequested {
  agent: string;
  parent_call: string | null;
  kind: "input_requested";
  request_id: string;
  asked: Form | Approval;
}

export interface InputResolved {
  agent: string;
  parent_call: string | null;
  kind: "input_resolved";
  request_id: string;
  resolution: "answered" | "approved" | "edited" | "rejected" | "expired" | "withdrawn";
  by: string;
  value: JsonValue;
}

export interface MessageReceived {
  agent: string;
  parent_call: string | null;
  kind: "message_received";
  message_id: string;
  parts: (TextPart | DataPart | FilePart)[];
  principal: string;
}

export interface Notice {
  agent: string;
  parent_call: string | null;
  kind: "notice";
  code: "offline_model" | "fallback" | "loop_guard" | "queue" | "recovery" | "retry" | "limit" | "info" | "skill";
  text: string;
  position: number | null;
}

export interface Paused {
  agent: string;
  parent_call: string | null;
  kind: "paused";
  text: string;
  requests: (string)[];
  wrong: { [key: string]: { [key: string]: string } };
  held: string | null;
}

export interface PlanStep {
  step_id: string;
  title: string;
  agent: string;
  status: "pending" | "in_progress" | "completed" | "failed" | "skipped";
}

export interface PlanUpdated {
  agent: string;
  parent_call: string | null;
  kind: "plan_updated";
  title: string;
  steps: (PlanStep)[];
}

export interface RunStarted {
  agent: string;
  parent_call: string | null;
  kind: "run_started";
  message_id: string;
  parts: (TextPart | DataPart | FilePart)[];
  owner: string;
  principal: string;
  queued: boolean;
}

export interface TextDelta {
  agent: string;
  parent_call: string | null;
  kind: "text_delta";
  message_id: string;
  offset: number;
  text: string;
  step_id: string | null;
  slot: string | null;
}

export interface TextDiscarded {
  agent: string;
  parent_call: string | null;
  kind: "text_discarded";
  message_id: string;
  reason: string;
  slot: string | null;
}

export interface TextEnded {
  agent: string;
  parent_call: string | null;
  kind: "text_ended";
  message_id: string;
  role: "narration" | "answer" | "delegated";
  slot: string | null;
}

export interface TextPart {
  type: "text";
  text: string;
}

export interface ToolFinished {
  agent: string;
  parent_call: string | null;
  kind: "tool_finished";
  call_id: string;
  tool: string;
  delegates: boolean;
  knowledge: boolean;
  outcome: "ok" | "error" | "unknown";
  error: string | null;
  result: string | null;
  step_id: string | null;
}

export interface ToolProgress {
  agent: string;
  parent_call: string | null;
  kind: "tool_progress";
  call_id: string;
  tool: string;
  text: string;
  done: number | null;
  total: number | null;
}

export interface ToolStarted {
  agent: string;
  parent_call: string | null;
  kind: "tool_started";
  call_id: string;
  tool: string;
  delegates: boolean;
  knowledge: boolean;
  arguments: { [key: string]: JsonValue };
  step_id: string | null;
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  model_calls: number | null;
  tool_calls: number | null;
  cache_read_tokens: number | null;
  cache_creation_tokens: number | null;
}

export type RunEvent = Answered | Cancelled | Failed | InputRequested | InputResolved | MessageReceived | Notice | Paused | PlanUpdated | RunStarted | TextDelta | TextDiscarded | TextEnded | ToolFinished | ToolProgress | ToolStarted;

export const DEFAULTS: { [kind: string]: object } = {
  "answered": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "answered",
    "data": null,
    "citations": [],
    "usage": null,
    "message_id": null,
    "slot": null
  },
  "cancelled": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "cancelled",
    "by": "",
    "partial": null,
    "usage": null
  },
  "failed": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "failed",
    "code": "internal",
    "retryable": true,
    "partial": null,
    "usage": null
  },
  "input_requested": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "input_requested"
  },
  "input_resolved": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "input_resolved",
    "by": "",
    "value": null
  },
  "message_received": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "message_received",
    "principal": ""
  },
  "notice": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "notice",
    "position": null
  },
  "paused": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "paused",
    "requests": [],
    "held": null,
    "wrong": {}
  },
  "plan_updated": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "plan_updated",
    "title": "",
    "steps": []
  },
  "run_started": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "run_started",
    "owner": "",
    "principal": "",
    "queued": false
  },
  "text_delta": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "text_delta",
    "step_id": null,
    "slot": null
  },
  "text_discarded": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "text_discarded",
    "reason": "",
    "slot": null
  },
  "text_ended": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "text_ended",
    "slot": null
  },
  "tool_finished": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "tool_finished",
    "delegates": false,
    "knowledge": false,
    "outcome": "ok",
    "error": null,
    "result": null,
    "step_id": null
  },
  "tool_progress": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "tool_progress",
    "text": "",
    "done": null,
    "total": null
  },
  "tool_started": {
    "agent": "supervisor",
    "parent_call": null,
    "kind": "tool_started",
    "delegates": false,
    "knowledge": false,
    "step_id": null,
    "arguments": {}
  }
};
