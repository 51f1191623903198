// What a run did, under its steps and along its time.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NumberedEvent } from "../src/a2a/decode.ts";
import { listAgents, readActivity } from "../src/events/activity.ts";
import { listTicks, readTimeline } from "../src/events/timeline.ts";
import { fold } from "../src/events/transcript.ts";
import { DEFAULTS, type RunEvent } from "../src/generated/events.ts";
import { recordTime, type Times } from "../src/state/times.ts";

const START = Date.parse("2026-11-18T09:00:00Z");

/** Events at seconds after the start. */
function run(...events: [number, { kind: string; [name: string]: unknown }][]) {
  const items: NumberedEvent[] = events.map(([seconds, fields], index) => ({
    seq: index + 1,
    at: new Date(START + seconds * 1000).toISOString(),
    event: { ...DEFAULTS[fields.kind], ...fields } as unknown as RunEvent,
  }));
  const times = items.reduce<Times>(recordTime, new Map());
  return { transcript: fold(items.map(item => item.event)), times };
}

const STEPS = [
  { step_id: "s1", title: "Look", agent: "argocd", status: "in_progress" },
  { step_id: "s2", title: "Tell", agent: "supervisor", status: "pending" },
];

const { transcript, times } = run(
  [0, { kind: "run_started", message_id: "m", parts: [{ type: "text", text: "Why?" }] }],
  [1, { kind: "text_delta", message_id: "t1", offset: 0, text: "I look." }],
  [1, { kind: "text_ended", message_id: "t1", role: "narration" }],
  [2, { kind: "plan_updated", title: "Plan", steps: STEPS }],
  [2, { kind: "tool_started", call_id: "a", tool: "argocd", delegates: true, step_id: "s1", arguments: {} }],
  [3, { kind: "tool_started", call_id: "b", tool: "get", agent: "argocd", parent_call: "a", arguments: {} }],
  [5, { kind: "tool_finished", call_id: "b", tool: "get", agent: "argocd", parent_call: "a" }],
  [6, { kind: "tool_finished", call_id: "a", tool: "argocd", delegates: true }],
  [7, { kind: "input_requested", request_id: "r", asked: { type: "approval", tool: "x", arguments: {}, allowed: [] } }],
  [9, { kind: "input_resolved", request_id: "r", resolution: "approved", by: "ann" }],
  [10, { kind: "answered", text: "Because.", trace_id: "t" }],
);

test("narration and calls stand where they belong", () => {
  const activity = readActivity(transcript, times);
  assert.deepEqual(activity.before.map(item => item.kind), ["text"]);
  assert.deepEqual(activity.steps.map(({ items }) => items.length), [1, 0]);
  assert.deepEqual(activity.after, []);
  assert.deepEqual(listAgents(transcript), ["argocd"]);
});

test("the supervisor works while nothing else does", () => {
  const timeline = readTimeline(transcript, times, 0)!;
  assert.equal(timeline.length, 10_000);
  assert.deepEqual(timeline.lanes.map(lane => [lane.label, lane.depth]), [["supervisor", 0], ["argocd", 0], ["get", 1], ["ann", 0]]);
  const bars = timeline.lanes[0]!.bars.map(bar => [(bar.start - START) / 1000, (bar.end - START) / 1000]);
  assert.deepEqual(bars, [[0, 2], [6, 7], [9, 10]]);
});

test("an axis has a few round marks", () => {
  assert.deepEqual(listTicks(10_000), [0, 2_000, 4_000, 6_000, 8_000, 10_000]);
  assert.ok(listTicks(86_400_000).length < 20);
  assert.ok(listTicks(1).length >= 1);
});
