// Starts a workflow with values that a person has already given.
import type { JsonValue } from "../generated/events.ts";
import { randomId } from "../state/ids.ts";
import { send } from "./client.ts";
import { decodeFrame } from "./decode.ts";

/** The conversation in which it runs. A value that the form refuses leaves the form open there. */
export async function runWorkflow(
  workflow: { name: string; title: string },
  values: { [name: string]: JsonValue },
  hasForm: boolean,
): Promise<string> {
  const contextId = randomId();
  const data = { workflow: workflow.name, values };
  const asked = await sendUntil({ messageId: randomId(), contextId, text: workflow.title, data }, hasForm);
  if (asked !== null) {
    const answer = { resume: { [asked.requestId]: values } };
    await sendUntil({ messageId: randomId(), contextId, taskId: asked.taskId, data: answer }, false);
  }
  return contextId;
}

interface AskedForm {
  taskId: string;
  requestId: string;
}

/** Reads until the server has taken the message, or until it has asked with a form and waits for the answer. */
async function sendUntil(message: Parameters<typeof send>[0], isFormExpected: boolean): Promise<AskedForm | null> {
  const abort = new AbortController();
  let taskId = message.taskId ?? "";
  let asked: AskedForm | null = null;
  try {
    for await (const frame of send(message, abort.signal)) {
      if (frame.task !== undefined) taskId = frame.task.id;
      if (!isFormExpected) return null;
      for (const { event } of decodeFrame(frame)) {
        if (event.kind === "input_requested" && event.asked.type === "form") {
          asked = { taskId, requestId: event.request_id };
        }
        if (event.kind === "paused") return asked;
      }
    }
    return asked;
  } finally {
    abort.abort(); // the run goes on without a reader
  }
}
