// The A2A client of the page: JSON-RPC to the server that served the page, with our extension activated.
import { AgentCard, type ListTasksResponse, type Part, Role, type StreamResponse, type Task, TaskState } from "@a2a-js/sdk";
import { JsonRpcTransportFactory, type Transport } from "@a2a-js/sdk/client";
import { fetchWithSession } from "../api/session.ts";
import type { JsonValue } from "../generated/events.ts";

export const EXTENSION = "urn:caipe:events:1";

type ServiceParameters = { [name: string]: string };

let opened: Promise<Transport> | null = null;

/** The connection to the server of this page, whatever address its card names: the page talks to no other. */
function open(): Promise<Transport> {
  const url = `${location.origin}/`;
  const supported = { url, protocolBinding: "JSONRPC", protocolVersion: "1.0", tenant: "" };
  const card = AgentCard.fromJSON({ supportedInterfaces: [supported] });
  opened ??= new JsonRpcTransportFactory({ fetchImpl: fetchWithSession }).create(url, card);
  return opened;
}

function parameters(more: ServiceParameters = {}): ServiceParameters {
  return { "A2A-Version": "1.0", "A2A-Extensions": EXTENSION, ...more };
}

export interface OutgoingMessage {
  messageId: string;
  contextId: string;
  taskId?: string;
  text?: string;
  data?: JsonValue;
}

/** Sends a message and gives its frames; the same message id finds the same run again. */
export async function* send(message: OutgoingMessage, signal: AbortSignal): AsyncGenerator<StreamResponse> {
  const contents: Part["content"][] = [];
  if (message.text !== undefined) contents.push({ $case: "text", value: message.text });
  if (message.data !== undefined) contents.push({ $case: "data", value: message.data });
  const request = {
    tenant: "",
    message: {
      messageId: message.messageId,
      contextId: message.contextId,
      taskId: message.taskId ?? "",
      role: Role.ROLE_USER,
      parts: contents.map(content => ({ content, metadata: undefined, filename: "", mediaType: "" })),
      metadata: undefined,
      extensions: [EXTENSION],
      referenceTaskIds: [],
    },
    configuration: undefined,
    metadata: undefined,
  };
  const transport = await open();
  yield* transport.sendMessageStream(request, { signal, serviceParameters: parameters() });
}

/** The frames of a task behind a number; without one the first frame is a snapshot. */
export async function* subscribe(
  taskId: string,
  cursor: number,
  signal: AbortSignal,
): AsyncGenerator<StreamResponse> {
  const position: ServiceParameters = cursor > 0 ? { "Last-Event-ID": String(cursor) } : {};
  const transport = await open();
  yield* transport.resubscribeTask(
    { tenant: "", id: taskId },
    { signal, serviceParameters: parameters(position) },
  );
}

export async function getTask(taskId: string): Promise<Task> {
  const transport = await open();
  return transport.getTask({ tenant: "", id: taskId }, { serviceParameters: parameters() });
}

export async function cancelTask(taskId: string): Promise<Task> {
  const transport = await open();
  return transport.cancelTask({ tenant: "", id: taskId, metadata: undefined }, { serviceParameters: parameters() });
}

/** A page of the tasks of a conversation, newest first, each with all its events or as an outline. */
export async function listTasks(
  contextId: string,
  pageToken: string,
  pageSize: number,
  includeArtifacts = true,
): Promise<ListTasksResponse> {
  const transport = await open();
  return transport.listTasks(
    {
      tenant: "",
      contextId,
      status: TaskState.TASK_STATE_UNSPECIFIED,
      pageSize,
      pageToken,
      historyLength: 0,
      statusTimestampAfter: undefined,
      includeArtifacts,
    },
    { serviceParameters: parameters() },
  );
}
