// The timeline of a run: who worked when, and what waited for whom.
import { keyOfCall, keyOfRequest, RUN, type Times } from "../state/times.ts";
import { SUPERVISOR, type ToolCall, type Transcript } from "./transcript.ts";

export interface Bar {
  kind: "supervisor" | "agent" | "tool" | "person";
  start: number;
  end: number;
  isRunning: boolean;
  hasFailed: boolean;
}

export interface Lane {
  key: string;
  label: string;
  depth: number;
  bars: Bar[];
  callId: string | null;
}

export interface RunTimeline {
  start: number;
  length: number;
  lanes: Lane[];
}

/** `now` is the end of what still runs. */
export function readTimeline(transcript: Transcript, times: Times, now: number): RunTimeline | null {
  const run = times.get(RUN);
  if (run === undefined) return null;
  const end = run.end ?? now;
  const supervisor = supervisorLane(transcript, times, end);
  const lanes = [...callLanes(transcript, times, end), ...personLanes(transcript, times, end)];
  lanes.sort((one, other) => one.order - other.order);
  return { start: run.start, length: Math.max(1, end - run.start), lanes: [supervisor, ...lanes.map(lane => lane.lane)] };
}

interface OrderedLane {
  order: number; // when the outermost call of the lane began
  lane: Lane;
}

/** The supervisor works while it writes, and before it does; it waits while its calls run. */
function supervisorLane(transcript: Transcript, times: Times, end: number): Lane {
  const busy = mergeTimes([
    ...transcript.calls.filter(call => call.parent_call === null).map(call => times.get(keyOfCall(call.call_id))),
    ...requestIds(transcript).map(id => times.get(keyOfRequest(id))),
  ], end);
  const bars: Bar[] = [];
  let from = times.get(RUN)!.start;
  for (const [start, stop] of [...busy, [end, end] as const]) {
    if (start > from) {
      const isRunning = start === end && times.get(RUN)!.end === null;
      bars.push({ kind: "supervisor", start: from, end: start, isRunning, hasFailed: false });
    }
    from = Math.max(from, stop);
  }
  return { key: SUPERVISOR, label: SUPERVISOR, depth: 0, bars, callId: null };
}

function mergeTimes(spans: ({ start: number; end: number | null } | undefined)[], end: number): [number, number][] {
  const merged: [number, number][] = [];
  const known = spans.filter(span => span !== undefined).sort((one, other) => one.start - other.start);
  for (const span of known) {
    const last = merged.at(-1);
    const stop = span.end ?? end;
    if (last !== undefined && span.start <= last[1]) last[1] = Math.max(last[1], stop);
    else merged.push([span.start, stop]);
  }
  return merged;
}

function callLanes(transcript: Transcript, times: Times, end: number): OrderedLane[] {
  const lanes: OrderedLane[] = [];
  const add = (call: ToolCall, depth: number, order: number) => {
    const time = times.get(keyOfCall(call.call_id));
    if (time === undefined) return;
    const bar: Bar = {
      kind: call.delegates ? "agent" : "tool",
      start: time.start,
      end: time.end ?? end,
      isRunning: time.end === null,
      hasFailed: call.outcome === "error",
    };
    const lane = { key: call.call_id, label: call.tool, depth, bars: [bar], callId: call.call_id };
    lanes.push({ order, lane });
    for (const inner of transcript.calls) if (inner.parent_call === call.call_id) add(inner, depth + 1, order);
  };
  for (const call of transcript.calls) {
    const time = times.get(keyOfCall(call.call_id));
    if (call.parent_call === null && time !== undefined) add(call, 0, time.start);
  }
  return lanes;
}

function personLanes(transcript: Transcript, times: Times, end: number): OrderedLane[] {
  const lanes: OrderedLane[] = [];
  for (const id of requestIds(transcript)) {
    const time = times.get(keyOfRequest(id));
    if (time === undefined) continue;
    const by = transcript.resolved.find(resolved => resolved.request_id === id)?.by ?? "";
    const bar: Bar = {
      kind: "person",
      start: time.start,
      end: time.end ?? end,
      isRunning: time.end === null,
      hasFailed: false,
    };
    lanes.push({ order: time.start, lane: { key: id, label: by, depth: 0, bars: [bar], callId: null } });
  }
  return lanes;
}

function requestIds(transcript: Transcript): string[] {
  return [
    ...transcript.resolved.map(resolved => resolved.request_id),
    ...transcript.requests.map(request => request.request_id),
  ];
}

const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600]; // seconds
const MAX_TICKS = 6;

/** Round moments of an axis, in milliseconds from its start. */
export function listTicks(length: number): number[] {
  const step = (STEPS.find(seconds => length / (seconds * 1000) <= MAX_TICKS) ?? 7200) * 1000;
  const ticks: number[] = [];
  for (let tick = 0; tick <= length && ticks.length < 100; tick += step) ticks.push(tick);
  return ticks;
}

