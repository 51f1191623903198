// Follows a run to the end of its turn, whatever happens to the connection.
import { decodeFrame, decodeTask, type NumberedEvent } from "./decode.ts";
import { getTask, subscribe } from "./client.ts";
import { Refusal } from "./jsonrpc.ts";
import type { StreamResponse } from "./wire.ts";

export { Refusal } from "./jsonrpc.ts";

export type Connection = "connecting" | "live" | "lost" | "closed";

export type Frames = AsyncGenerator<StreamResponse>;

export interface RunReader {
  /** Known once the server has taken the question. */
  readonly taskId: string | null;
  /** The number of the last event that was read. */
  readonly cursor: number;
  /** Takes events in order; a snapshot replaces what was there. */
  take(events: NumberedEvent[], snapshot: boolean): void;
  /** Whether the stream may close now: the run has ended or waits for people. */
  readonly isAtRest: boolean;
  setConnection(connection: Connection, retryInSeconds?: number): void;
}

const DELAYS = [0.5, 1, 2, 4, 8, 15, 30]; // seconds

/** Sends until the server has taken the message (the same id each time), then reads from the cursor until the run
 * is at rest. Raises a Refusal when the message is not taken. */
export async function followRun(
  reader: RunReader,
  send: (() => Frames) | null,
  signal: AbortSignal,
): Promise<void> {
  let unsent = send;
  let failures = 0;
  while (!signal.aborted) {
    if (failures === 0) reader.setConnection("connecting");
    try {
      const frames = unsent === null ? subscribe(reader.taskId ?? "", reader.cursor, signal) : unsent();
      for await (const frame of frames) {
        unsent = null;
        failures = 0;
        reader.setConnection("live");
        takeFrame(reader, frame);
      }
    } catch (error) {
      if (signal.aborted) return;
      // Anything but the server's word is a lost connection.
      if (error instanceof Refusal) {
        if (unsent !== null || reader.taskId === null) throw error;
        await readWhole(reader.taskId, reader);
        return;
      }
    }
    if (unsent === null && reader.isAtRest) break;
    const delay = DELAYS[Math.min(failures, DELAYS.length - 1)]!;
    failures += 1;
    reader.setConnection("lost", delay);
    await sleep(delay, signal);
  }
  reader.setConnection("closed");
}

function takeFrame(reader: RunReader, frame: StreamResponse): void {
  const isSnapshot = frame.task?.metadata?.["caipe.events"] !== undefined;
  const events = decodeFrame(frame);
  reader.take(isSnapshot ? events : events.filter(event => event.seq > reader.cursor), isSnapshot);
}

/** A task that has ended cannot be subscribed to any more: its snapshot has everything. */
async function readWhole(taskId: string, reader: RunReader): Promise<void> {
  reader.take(decodeTask(await getTask(taskId)), true);
  reader.setConnection("closed");
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
