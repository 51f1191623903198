// The A2A client of the page: JSON-RPC to the server that served the page, with our extension activated.
import type { JsonValue } from "../generated/events.ts";
import { call, stream } from "./jsonrpc.ts";
import type { StreamResponse, Task, TaskPage } from "./wire.ts";

export const EXTENSION = "urn:caipe:events:1";

const HEADERS = { "A2A-Version": "1.0", "A2A-Extensions": EXTENSION };

export interface OutgoingMessage {
  messageId: string;
  contextId: string;
  taskId?: string;
  text?: string;
  data?: JsonValue;
}

/** Sends a message and gives its frames; the same message id finds the same run again. */
export function send(message: OutgoingMessage, signal: AbortSignal): AsyncGenerator<StreamResponse> {
  const { messageId, contextId, taskId, text, data } = message;
  const parts: { text?: string; data?: JsonValue }[] = [];
  if (text !== undefined) parts.push({ text });
  if (data !== undefined) parts.push({ data });
  const whole = { messageId, contextId, role: "ROLE_USER", parts, extensions: [EXTENSION] };
  return stream("SendStreamingMessage", { message: taskId === undefined ? whole : { ...whole, taskId } }, HEADERS, signal);
}

/** The frames of a task behind a number; without one the first frame is a snapshot. */
export function subscribe(taskId: string, cursor: number, signal: AbortSignal): AsyncGenerator<StreamResponse> {
  const headers = cursor > 0 ? { ...HEADERS, "Last-Event-ID": String(cursor) } : HEADERS;
  return stream("SubscribeToTask", { id: taskId }, headers, signal);
}

export function getTask(taskId: string): Promise<Task> {
  return call("GetTask", { id: taskId }, HEADERS);
}

export function cancelTask(taskId: string): Promise<Task> {
  return call("CancelTask", { id: taskId }, HEADERS);
}

/** A page of the tasks of a conversation, newest first, each with all its events or as an outline. */
export function listTasks(
  contextId: string,
  pageToken: string,
  pageSize: number,
  includeArtifacts = true,
): Promise<TaskPage> {
  return call("ListTasks", { contextId, pageToken, pageSize, historyLength: 0, includeArtifacts }, HEADERS);
}
