// One turn of a conversation: a run, its transcript, and when things happened.
import { computed, signal } from "@preact/signals";
import { cancelTask, type OutgoingMessage, send } from "../a2a/client.ts";
import type { NumberedEvent } from "../a2a/decode.ts";
import { type Connection, followRun, type RunReader } from "../a2a/follow.ts";
import { apply, EMPTY, hasEnded, type Transcript } from "../events/transcript.ts";
import type { JsonValue } from "../generated/events.ts";

/** When a call, a text or the run itself began and ended, in milliseconds since 1970. */
export interface TimeSpan {
  start: number;
  end: number | null;
}

export class Turn implements RunReader {
  readonly transcript = signal<Transcript>(EMPTY);
  readonly connection = signal<Connection>("closed");
  readonly retryAt = signal<number | null>(null);
  readonly failure = signal<string | null>(null);
  readonly times = signal<ReadonlyMap<string, TimeSpan>>(new Map());
  readonly isOpen = computed(() => !hasEnded(this.transcript.value) && this.failure.value === null);
  taskId: string | null = null;
  cursor = 0;
  #abort = new AbortController();

  constructor(
    readonly contextId: string,
    readonly question: string = "",
  ) {}

  get isAtRest(): boolean {
    const transcript = this.transcript.value;
    return hasEnded(transcript) || transcript.state === "input-required";
  }

  /** Reads the events of a task that was stored; the caller follows it if it has not ended. */
  static fromEvents(contextId: string, taskId: string, events: NumberedEvent[]): Turn {
    const turn = new Turn(contextId);
    turn.taskId = taskId;
    turn.take(events, true);
    return turn;
  }

  take(events: NumberedEvent[], snapshot: boolean): void {
    if (events.length === 0) return;
    let transcript = snapshot ? EMPTY : this.transcript.value;
    const times = new Map(snapshot ? [] : this.times.value);
    for (const item of events) {
      transcript = apply(transcript, item.event);
      recordTime(times, item);
    }
    this.cursor = events.at(-1)!.seq;
    this.transcript.value = transcript;
    this.times.value = times;
  }

  setConnection(connection: Connection, retryInSeconds?: number): void {
    this.connection.value = connection;
    this.retryAt.value = retryInSeconds === undefined ? null : Date.now() + retryInSeconds * 1000;
  }

  ask(text: string): Promise<void> {
    return this.#send({ messageId: crypto.randomUUID(), contextId: this.contextId, text });
  }

  /** Answers requests of the run, by their ids. */
  answer(values: { [requestId: string]: JsonValue }): Promise<void> {
    const message: OutgoingMessage = {
      messageId: crypto.randomUUID(),
      contextId: this.contextId,
      data: { resume: values },
    };
    if (this.taskId !== null) message.taskId = this.taskId;
    return this.#send(message);
  }

  follow(): Promise<void> {
    return this.#follow(() => null);
  }

  async stop(): Promise<void> {
    if (this.taskId !== null) await cancelTask(this.taskId);
  }

  close(): void {
    this.#abort.abort();
  }

  #send(message: OutgoingMessage): Promise<void> {
    return this.#follow(signal => this.#withTaskId(send(message, signal)));
  }

  /** The first frame of a new run names its task. */
  async *#withTaskId(frames: ReturnType<typeof send>): ReturnType<typeof send> {
    for await (const frame of frames) {
      const payload = frame.payload;
      if (payload?.$case === "task") this.taskId = payload.value.id;
      else if (payload?.$case === "statusUpdate" || payload?.$case === "artifactUpdate") {
        this.taskId ??= payload.value.taskId;
      }
      yield frame;
    }
  }

  /** Ends what was followed before, so that each event is taken once. */
  async #follow(open: (signal: AbortSignal) => ReturnType<typeof send> | null): Promise<void> {
    this.failure.value = null;
    this.#abort.abort();
    this.#abort = new AbortController();
    const signal = this.#abort.signal;
    try {
      await followRun(() => this.taskId, this, open(signal), signal);
    } catch (error) {
      if (signal.aborted) return;
      this.failure.value = error instanceof Error ? error.message : String(error);
      this.connection.value = "closed";
    }
  }
}

function recordTime(times: Map<string, TimeSpan>, { at, event }: NumberedEvent): void {
  const moment = at === null ? Date.now() : Date.parse(at);
  const begin = (key: string) => {
    if (!times.has(key)) times.set(key, { start: moment, end: null });
  };
  const finish = (key: string) => times.set(key, { start: times.get(key)?.start ?? moment, end: moment });
  switch (event.kind) {
    case "run_started":
      return begin("run");
    case "text_delta":
      return begin(`text-${event.message_id}`);
    case "text_ended":
      return void finish(`text-${event.message_id}`);
    case "tool_started":
      return begin(`call-${event.call_id}`);
    case "tool_finished":
      return void finish(`call-${event.call_id}`);
    case "input_requested":
      return begin(`request-${event.request_id}`);
    case "input_resolved":
      return void finish(`request-${event.request_id}`);
    case "answered":
    case "failed":
    case "cancelled":
      return void finish("run");
    default:
      return;
  }
}
