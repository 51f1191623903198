// Frames of a stream, and tasks, as numbered events. The counterpart of a2a/codec.py: `decode`.
import { DEFAULTS, type RunEvent } from "../generated/events.ts";
import { type Artifact, joinText, type StreamResponse, type Task } from "./wire.ts";

/** An event of a run's log: its number, and when it was stored (only in a task). */
export interface NumberedEvent {
  seq: number;
  at: string | null;
  event: RunEvent;
}

const EVENT = "caipe.event";
const EVENTS = "caipe.events";
const SEQ = "caipe.seq";
// The field that travels in the text part of the frame.
const TEXT_FIELD: { [kind: string]: string } = {
  text_delta: "text",
  answered: "text",
  failed: "partial",
  cancelled: "partial",
};

type Fields = { kind: string; [name: string]: unknown };

export function decodeFrame(frame: StreamResponse): NumberedEvent[] {
  if (frame.task !== undefined) return decodeTask(frame.task);
  if (frame.statusUpdate !== undefined) return decodeMetadata(frame.statusUpdate.metadata, null);
  const artifact = frame.artifactUpdate?.artifact;
  return artifact === undefined ? [] : decodeMetadata(artifact.metadata, artifact);
}

export function decodeTask(task: Task): NumberedEvent[] {
  const rows = readJson(task.metadata?.[EVENTS]) as [number, Fields, string][] | null;
  if (rows === null) return decodeMetadata(task.metadata, null);
  const texts = new Map((task.artifacts ?? []).map(artifact => [artifact.artifactId, joinText(artifact.parts)]));
  return rows.map(([seq, fields, at]) => {
    const isText = fields.kind === "text_delta" || fields.kind === "answered";
    if (isText && !("text" in fields)) fields["text"] = texts.get(artifactOf(fields, task.id)) ?? "";
    return { seq, at, event: toEvent(fields) };
  });
}

/** The artifact that holds the text of an event: an answer that was streamed is in the one of its pieces. */
function artifactOf(fields: Fields, taskId: string): string {
  const message = fields["slot"] || fields["message_id"];
  return message ? `text-${String(message)}` : `final_result-${taskId}`;
}

function decodeMetadata(metadata: { [key: string]: unknown } | undefined, artifact: Artifact | null): NumberedEvent[] {
  const fields = readJson(metadata?.[EVENT]) as Fields | null;
  if (fields === null) return [];
  const textField = TEXT_FIELD[fields.kind];
  if (artifact !== null && textField !== undefined) fields[textField] = joinText(artifact.parts);
  return [{ seq: Number(metadata?.[SEQ]), at: null, event: toEvent(fields) }];
}

/** The event with the defaults that the wire leaves out. */
function toEvent(fields: Fields): RunEvent {
  return { ...DEFAULTS[fields.kind], ...fields } as unknown as RunEvent;
}

function readJson(text: unknown): unknown {
  return typeof text === "string" ? JSON.parse(text) : null;
}
