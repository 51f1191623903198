// Follows a run to the end of its turn, whatever happens to the connection.
import type { StreamResponse } from "@a2a-js/sdk";
import { A2AError } from "@a2a-js/sdk/errors";
import { decodeFrame, decodeTask, type NumberedEvent } from "./decode.ts";
import { getTask, subscribe } from "./client.ts";

export type Connection = "connecting" | "live" | "lost" | "closed";

export interface RunReader {
  /** The number of the last event that was read. */
  readonly cursor: number;
  /** Takes events in order; a snapshot replaces what was there. */
  take(events: NumberedEvent[], snapshot: boolean): void;
  /** Whether the stream may close now: the run has ended or waits for people. */
  readonly isAtRest: boolean;
  setConnection(connection: Connection, retryInSeconds?: number): void;
}

const DELAYS = [0.5, 1, 2, 4, 8, 15, 30]; // seconds

/** Reads `first`, then subscribes again from the cursor until the run is at rest. */
export async function followRun(
  taskId: () => string | null,
  reader: RunReader,
  first: AsyncGenerator<StreamResponse> | null,
  signal: AbortSignal,
): Promise<void> {
  let frames = first;
  let failures = 0;
  while (!signal.aborted) {
    try {
      reader.setConnection(failures === 0 ? "connecting" : "lost");
      const id = taskId();
      frames ??= id === null ? null : subscribe(id, reader.cursor, signal);
      if (frames === null) throw new Error("The server did not take the question.");
      for await (const frame of frames) {
        failures = 0;
        reader.setConnection("live");
        takeFrame(reader, frame);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (isRefusal(error)) {
        await readWhole(taskId(), reader, error);
        return;
      }
    }
    frames = null;
    if (reader.isAtRest) break;
    const delay = DELAYS[Math.min(failures, DELAYS.length - 1)]!;
    failures += 1;
    reader.setConnection("lost", delay);
    await sleep(delay, signal);
  }
  reader.setConnection("closed");
}

function takeFrame(reader: RunReader, frame: StreamResponse): void {
  const isSnapshot = frame.payload?.$case === "task" && frame.payload.value.metadata?.["caipe.events"] !== undefined;
  const events = decodeFrame(frame);
  reader.take(isSnapshot ? events : events.filter(event => event.seq > reader.cursor), isSnapshot);
}

/** A task that has ended cannot be subscribed to any more: its snapshot has everything. */
async function readWhole(taskId: string | null, reader: RunReader, refusal: unknown): Promise<void> {
  if (taskId === null) throw refusal;
  reader.take(decodeTask(await getTask(taskId)), true);
  reader.setConnection("closed");
}

/** Whether the server answered and said no; anything else is a lost connection. */
function isRefusal(error: unknown): boolean {
  return error instanceof A2AError;
}

/** Waits; a network that is back, or a tab that is looked at again, ends the wait. */
function sleep(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      document.removeEventListener("visibilitychange", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, seconds * 1000);
    addEventListener("online", done);
    document.addEventListener("visibilitychange", done);
    signal.addEventListener("abort", done);
  });
}
