// What a run did, in the order in which it happened: narration and calls, under the step of the plan they belong to.
import { keyOfCall, keyOfText, type Times } from "../state/times.ts";
import type { PlanStep } from "../generated/events.ts";
import type { Span, ToolCall, Transcript } from "./transcript.ts";

export type ActivityItem = { kind: "call"; at: number; call: ToolCall } | { kind: "text"; at: number; span: Span };

export interface StepActivity {
  step: PlanStep;
  items: ActivityItem[];
}

export interface Activity {
  /** What came before the plan, or all of it without one. */
  before: ActivityItem[];
  steps: StepActivity[];
  /** What belongs to no step and came later. */
  after: ActivityItem[];
}

/** The supervisor's texts that are not the answer. */
export function isNarration(span: Span): boolean {
  return span.parent_call === null && (span.role === "narration" || (span.role === null && span.thinking_of !== null));
}

export function readActivity(transcript: Transcript, times: Times): Activity {
  const stepIds = new Set(transcript.plan?.steps.map(step => step.step_id));
  const bySteps = new Map<string, ActivityItem[]>();
  const others: ActivityItem[] = [];
  for (const item of listItems(transcript, times)) {
    const stepId = item.kind === "call" ? item.call.step_id : (item.span.step_id ?? item.span.thinking_of);
    if (stepId === null || !stepIds.has(stepId)) others.push(item);
    else bySteps.set(stepId, [...(bySteps.get(stepId) ?? []), item]);
  }
  const first = Math.min(...Array.from(bySteps.values(), items => items[0]!.at));
  return {
    before: others.filter(item => item.at <= first),
    steps: (transcript.plan?.steps ?? []).map(step => ({ step, items: bySteps.get(step.step_id) ?? [] })),
    after: others.filter(item => item.at > first),
  };
}

function listItems(transcript: Transcript, times: Times): ActivityItem[] {
  const items: ActivityItem[] = [];
  for (const span of transcript.spans) {
    const at = times.get(keyOfText(span.message_id))?.start ?? 0;
    if (isNarration(span) && span.text.trim() !== "") items.push({ kind: "text", at, span });
  }
  for (const call of transcript.calls) {
    const at = times.get(keyOfCall(call.call_id))?.start ?? 0;
    if (call.parent_call === null) items.push({ kind: "call", at, call });
  }
  return items.sort((one, other) => one.at - other.at);
}

/** The agents that worked. */
export function listAgents(transcript: Transcript): string[] {
  return [...new Set(transcript.calls.filter(call => call.delegates).map(call => call.tool))];
}

/** What goes on now, in a few words: the step in progress, or the innermost call. */
export function currentWork(transcript: Transcript): string | null {
  const step = transcript.plan?.steps.findLast(each => each.status === "in_progress");
  if (step !== undefined) return step.title;
  const call = transcript.calls.findLast(each => each.outcome === null);
  return call === undefined ? null : call.tool;
}
