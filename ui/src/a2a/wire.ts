// What the page reads of A2A 1.0, as JSON. Fields without a value are left out on the wire.
import type { JsonValue } from "../generated/events.ts";

export interface Part {
  text?: string;
  data?: JsonValue;
}

export interface Artifact {
  artifactId: string;
  parts?: Part[];
  metadata?: { [key: string]: unknown };
}

export interface Message {
  messageId: string;
  parts?: Part[];
}

export interface Task {
  id: string;
  contextId: string;
  status?: { state?: string; timestamp?: string };
  artifacts?: Artifact[];
  history?: Message[];
  metadata?: { [key: string]: unknown };
}

/** One frame of a stream: exactly one of the three. */
export interface StreamResponse {
  task?: Task;
  statusUpdate?: { taskId: string; metadata?: { [key: string]: unknown } };
  artifactUpdate?: { taskId: string; artifact?: Artifact };
}

export interface TaskPage {
  tasks?: Task[];
  nextPageToken?: string;
}

export function joinText(parts: Part[] | undefined): string {
  return (parts ?? []).map(part => part.text ?? "").join("");
}
