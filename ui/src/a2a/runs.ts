// Lists of runs over A2A, without their events.
import { TaskState } from "@a2a-js/sdk";
import type { TranscriptState } from "../events/transcript.ts";
import { listOutlines } from "./client.ts";

export const STATES: TranscriptState[] = ["working", "input-required", "completed", "failed", "canceled", "submitted"];

const TASK_STATES: { [state in TranscriptState]: TaskState } = {
  submitted: TaskState.TASK_STATE_SUBMITTED,
  working: TaskState.TASK_STATE_WORKING,
  "input-required": TaskState.TASK_STATE_INPUT_REQUIRED,
  completed: TaskState.TASK_STATE_COMPLETED,
  failed: TaskState.TASK_STATE_FAILED,
  canceled: TaskState.TASK_STATE_CANCELED,
};

export interface ListedTask {
  taskId: string;
  contextId: string;
  state: TranscriptState | null;
  question: string;
  at: string | null;
}

export async function listRuns(
  state: TranscriptState | "",
  pageToken: string,
): Promise<{ runs: ListedTask[]; nextToken: string }> {
  const wanted = state === "" ? TaskState.TASK_STATE_UNSPECIFIED : TASK_STATES[state];
  const page = await listOutlines(wanted, pageToken);
  const runs = page.tasks.map(task => ({
    taskId: task.id,
    contextId: task.contextId,
    state: readState(task.status?.state),
    question: (task.history[0]?.parts ?? [])
      .map(part => (part.content?.$case === "text" ? part.content.value : ""))
      .join(" ")
      .slice(0, 200),
    at: task.status?.timestamp ?? null,
  }));
  return { runs, nextToken: page.nextPageToken };
}

function readState(state: TaskState | undefined): TranscriptState | null {
  return STATES.find(name => TASK_STATES[name] === state) ?? null;
}
