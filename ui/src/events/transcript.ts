// The transcript of a run, folded from its events. The same function as core/transcript.py, proved by the same
// golden files. A new kind of event fails the type check until it is handled.
import type {
  Answered,
  Approval,
  Cancelled,
  Citation,
  DataPart,
  Failed,
  FilePart,
  Form,
  InputResolved,
  JsonValue,
  Notice,
  RunEvent,
  TextDelta,
  TextEnded,
  TextPart,
  ToolFinished,
  ToolProgress,
  ToolStarted,
  Usage,
} from "../generated/events.ts";
import { currentStep, openSteps, type Plan } from "./plan.ts";

export const SUPERVISOR = "supervisor";

export type TranscriptState = "submitted" | "working" | "input-required" | "completed" | "failed" | "canceled";

/** The text of one message. Its role is known at its end; an echo repeats a sub-agent. */
export interface Span {
  message_id: string;
  text: string;
  agent: string;
  parent_call: string | null;
  step_id: string | null;
  slot: string | null;
  role: TextEnded["role"] | null;
  echo: boolean;
  thinking_of: string | null;
}

/** A tool call or a delegation; no outcome means that it runs. */
export interface ToolCall {
  call_id: string;
  tool: string;
  agent: string;
  parent_call: string | null;
  delegates: boolean;
  knowledge: boolean;
  arguments: { [key: string]: JsonValue };
  step_id: string | null;
  outcome: ToolFinished["outcome"] | null;
  error: string | null;
  result: string | null;
  progress: string;
}

/** A request that waits for a person. */
export interface PendingInput {
  request_id: string;
  asked: Form | Approval;
  agent: string;
}

/** What a reader of one run sees. */
export interface Transcript {
  state: TranscriptState;
  question: (TextPart | DataPart | FilePart)[];
  spans: Span[];
  discarded: string[];
  plan: Plan | null;
  calls: ToolCall[];
  requests: PendingInput[];
  resolved: InputResolved[];
  notices: Notice[];
  waiting_for: string;
  wrong: { [request: string]: { [field: string]: string } };
  held: string | null;
  answer: string | null;
  data: JsonValue;
  citations: Citation[];
  partial: string | null;
  error: string | null;
  retryable: boolean;
  trace_id: string | null;
  usage: Usage | null;
  answering: boolean;
  last_finished: ToolCall | null;
}

export const EMPTY: Transcript = {
  state: "submitted",
  question: [],
  spans: [],
  discarded: [],
  plan: null,
  calls: [],
  requests: [],
  resolved: [],
  notices: [],
  waiting_for: "",
  wrong: {},
  held: null,
  answer: null,
  data: null,
  citations: [],
  partial: null,
  error: null,
  retryable: false,
  trace_id: null,
  usage: null,
  answering: false,
  last_finished: null,
};

/** The transcript after one more event. */
export function apply(transcript: Transcript, event: RunEvent): Transcript {
  switch (event.kind) {
    case "text_delta":
      return write(transcript, event);
    case "text_ended":
      return {
        ...transcript,
        spans: transcript.spans.map(span =>
          span.message_id === event.message_id ? { ...span, role: event.role } : span,
        ),
      };
    case "text_discarded":
      return {
        ...transcript,
        spans: transcript.spans.filter(span => span.message_id !== event.message_id),
        discarded: [...transcript.discarded.filter(id => id !== event.message_id), event.message_id],
      };
    case "tool_started":
    case "tool_progress":
    case "tool_finished":
      return applyTool(transcript, event);
    case "plan_updated":
      return { ...transcript, plan: { title: event.title, steps: event.steps } };
    case "input_requested": {
      const request = { request_id: event.request_id, asked: event.asked, agent: event.agent };
      return { ...transcript, requests: [...without(transcript.requests, event.request_id), request] };
    }
    case "input_resolved":
      return {
        ...transcript,
        requests: without(transcript.requests, event.request_id),
        resolved: [...transcript.resolved, event],
        state: "working",
        waiting_for: "",
        wrong: {},
        held: null,
      };
    case "notice":
      return {
        ...transcript,
        notices: [...transcript.notices, event],
        state: stateAfterNotice(transcript.state, event),
      };
    case "run_started":
      return { ...transcript, question: event.parts, state: event.queued ? "submitted" : "working" };
    case "message_received":
      return transcript;
    case "paused":
      return {
        ...transcript,
        state: "input-required",
        waiting_for: event.text,
        wrong: event.wrong,
        held: event.held,
      };
    case "answered":
    case "failed":
    case "cancelled":
      return end(transcript, event);
    default:
      return unreachable(event);
  }
}

export function fold(events: Iterable<RunEvent>, start: Transcript = EMPTY): Transcript {
  let transcript = start;
  for (const event of events) transcript = apply(transcript, event);
  return transcript;
}

export function hasEnded(transcript: Transcript): boolean {
  return transcript.state === "completed" || transcript.state === "failed" || transcript.state === "canceled";
}

function unreachable(event: never): never {
  throw new Error(`an event of an unknown kind: ${JSON.stringify(event)}`);
}

/** A run that waits in a queue has not begun; the notice without a position says that it begins. */
function stateAfterNotice(state: TranscriptState, notice: Notice): TranscriptState {
  if (notice.code !== "queue" || (state !== "submitted" && state !== "working")) return state;
  return notice.position === null ? "working" : "submitted";
}

function without(requests: PendingInput[], requestId: string): PendingInput[] {
  return requests.filter(request => request.request_id !== requestId);
}

function write(transcript: Transcript, event: TextDelta): Transcript {
  // The message that grows is nearly always the last one.
  const index = transcript.spans.findLastIndex(span => span.message_id === event.message_id);
  if (index >= 0) {
    const span = transcript.spans[index]!;
    const spans = transcript.spans.slice();
    spans[index] = append(span, event);
    return { ...transcript, spans };
  }
  const span: Span = {
    message_id: event.message_id,
    text: event.text,
    agent: event.agent,
    parent_call: event.parent_call,
    step_id: event.step_id,
    slot: event.slot,
    role: null,
    echo: false,
    thinking_of: null,
  };
  if (event.parent_call !== null) return { ...transcript, spans: [...transcript.spans, span] };
  return addSupervisorSpan(transcript, span);
}

// The code points of the texts that grow, so that a delta at the end costs no walk through all of the text.
const lengths = new WeakMap<Span, number>();

function append(span: Span, event: TextDelta): Span {
  const isAtEnd = lengths.get(span) === event.offset;
  const kept = isAtEnd ? span.text : takeCharacters(span.text, event.offset);
  const longer = { ...span, text: kept + event.text };
  const keptLength = isAtEnd ? event.offset : countCharacters(kept);
  lengths.set(longer, keptLength + countCharacters(event.text));
  return longer;
}

function countCharacters(text: string): number {
  return /[\ud800-\udbff]/.test(text) ? Array.from(text).length : text.length;
}

/** The first characters of a text; an offset counts code points, as Python does. */
export function takeCharacters(text: string, count: number): string {
  // No text has more code points than UTF-16 units: without pairs, and at its end, both are the same.
  if (count >= text.length) return text;
  if (!/[\ud800-\udbff]/.test(text)) return text.slice(0, count);
  return Array.from(text).slice(0, count).join("");
}

/** Decides when a supervisor's message begins whether it is an echo, thinking or the answer. */
function addSupervisorSpan(transcript: Transcript, span: Span): Transcript {
  if (transcript.answering) return { ...transcript, spans: [...transcript.spans, span] };
  const plan = transcript.plan;
  if (plan !== null && plan.steps.length > 0) {
    const open = openSteps(plan);
    if (open.length <= 1) return { ...transcript, spans: [...transcript.spans, span], answering: true };
    const thinking_of = span.step_id || currentStep(plan) || open[0]!.step_id;
    return { ...transcript, spans: [...transcript.spans, { ...span, thinking_of }] };
  }
  const echo = transcript.last_finished?.delegates ?? false;
  return { ...transcript, spans: [...transcript.spans, { ...span, echo }] };
}

function applyTool(transcript: Transcript, event: ToolStarted | ToolProgress | ToolFinished): Transcript {
  const index = transcript.calls.findIndex(call => call.call_id === event.call_id);
  const call = updateCall(index >= 0 ? transcript.calls[index]! : newCall(event), event);
  const calls = transcript.calls.slice();
  calls[index >= 0 ? index : calls.length] = call;
  const isLastFinished = event.kind === "tool_finished" && event.parent_call === null;
  return { ...transcript, calls, last_finished: isLastFinished ? call : transcript.last_finished };
}

function newCall(event: ToolStarted | ToolProgress | ToolFinished): ToolCall {
  return {
    call_id: event.call_id,
    tool: event.tool,
    agent: event.agent,
    parent_call: event.parent_call,
    delegates: false,
    knowledge: false,
    arguments: {},
    step_id: null,
    outcome: null,
    error: null,
    result: null,
    progress: "",
  };
}

function updateCall(call: ToolCall, event: ToolStarted | ToolProgress | ToolFinished): ToolCall {
  switch (event.kind) {
    case "tool_started":
      return {
        ...call,
        delegates: event.delegates,
        knowledge: event.knowledge,
        arguments: event.arguments,
        step_id: event.step_id,
      };
    case "tool_progress":
      return { ...call, progress: event.text };
    case "tool_finished":
      return {
        ...call,
        delegates: event.delegates,
        knowledge: event.knowledge,
        step_id: event.step_id || call.step_id,
        outcome: event.outcome,
        error: event.error,
        result: event.result,
      };
  }
}

function end(transcript: Transcript, event: Answered | Failed | Cancelled): Transcript {
  const ended: Transcript = {
    ...transcript,
    trace_id: event.trace_id,
    usage: event.usage,
    requests: [],
    waiting_for: "",
    wrong: {},
    held: null,
  };
  switch (event.kind) {
    case "answered":
      return { ...ended, state: "completed", answer: event.text, data: event.data, citations: event.citations };
    case "failed":
      return {
        ...ended,
        state: "failed",
        error: event.message,
        retryable: event.retryable,
        partial: event.partial,
      };
    case "cancelled":
      return { ...ended, state: "canceled", partial: event.partial };
  }
}
