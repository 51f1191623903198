// One turn of a conversation: a run, its transcript, and when things happened.
import { batch, computed, signal } from "@preact/signals";
import { cancelTask, getTask, type OutgoingMessage, send } from "../a2a/client.ts";
import { decodeTask, type NumberedEvent } from "../a2a/decode.ts";
import { type Connection, followRun, type Frames, Refusal, type RunReader } from "../a2a/follow.ts";
import { apply, EMPTY, hasEnded, type Transcript } from "../events/transcript.ts";
import type { JsonValue } from "../generated/events.ts";
import { onNextFrame } from "./frames.ts";
import { randomId } from "./ids.ts";
import { forgetUnsent, keepUnsent } from "./outbox.ts";
import { recordTime, type Times } from "./times.ts";

export type { TimeSpan } from "./times.ts";

const NO_TIMES: Times = new Map();
let turnCount = 0;

export class Turn implements RunReader {
  /** What is drawn: it follows what was read at most once per frame. */
  readonly transcript = signal<Transcript>(EMPTY);
  readonly times = signal<Times>(NO_TIMES);
  readonly connection = signal<Connection>("closed");
  readonly retryAt = signal<number | null>(null);
  /** Why the message was not taken. */
  readonly failure = signal<string | null>(null);
  /** What the server said to an answer that came too late. */
  readonly note = signal<string | null>(null);
  readonly isStopping = signal(false);
  /** Whether the transcript is here; a turn far away is read again when it comes near. */
  readonly isLoaded = signal(true);
  readonly isOpen = computed(() => !hasEnded(this.transcript.value) && this.failure.value === null);
  readonly isWorking = computed(() => this.isOpen.value && this.transcript.value.state !== "input-required");
  /** Names the turn in the list before its task has an id. */
  readonly key = `turn-${++turnCount}`;
  /** How high it was drawn, for its place while it is not. */
  height = 0;
  /** Told the task that took the message; it may be one that waits for an answer. */
  onTask: (taskId: string) => void = () => undefined;
  /** Its place among the turns; a question that was not taken yet is the last one. */
  startedAt = Number.POSITIVE_INFINITY;
  taskId: string | null = null;
  cursor = 0;
  #read: Transcript = EMPTY;
  #readTimes: Times = NO_TIMES;
  #cancelDrawing: (() => void) | null = null;
  #abort = new AbortController();

  constructor(
    readonly contextId: string,
    readonly question: string = "",
    readonly messageId: string = randomId(),
  ) {}

  get isAtRest(): boolean {
    return hasEnded(this.#read) || this.#read.state === "input-required";
  }

  /** Reads the events of a task that was stored; the caller follows it if it has not ended. */
  static fromEvents(contextId: string, taskId: string, events: NumberedEvent[]): Turn {
    const started = events.find(item => item.event.kind === "run_started")?.event;
    const turn = new Turn(contextId, "", started?.kind === "run_started" ? started.message_id : undefined);
    turn.taskId = taskId;
    turn.take(events, true);
    turn.#draw();
    return turn;
  }

  take(events: NumberedEvent[], snapshot: boolean): void {
    if (events.length === 0) return;
    let transcript = snapshot ? EMPTY : this.#read;
    let times = snapshot ? NO_TIMES : this.#readTimes;
    for (const item of events) {
      transcript = apply(transcript, item.event);
      times = recordTime(times, item);
    }
    this.cursor = events.at(-1)!.seq;
    this.#read = transcript;
    this.#readTimes = times;
    this.#cancelDrawing ??= onNextFrame(() => this.#draw());
  }

  setConnection(connection: Connection, retryInSeconds?: number): void {
    this.connection.value = connection;
    this.retryAt.value = retryInSeconds === undefined ? null : Date.now() + retryInSeconds * 1000;
  }

  /** Sends the question, as often as it takes, always with the same message id. */
  async ask(text = this.question): Promise<void> {
    const unsent = { messageId: this.messageId, contextId: this.contextId, text };
    keepUnsent(unsent);
    await this.#send(unsent);
    if (this.taskId !== null || this.failure.value !== null) forgetUnsent(this.messageId);
  }

  /** Answers requests of the run, by their ids. */
  answer(values: { [requestId: string]: JsonValue }): Promise<void> {
    const message: OutgoingMessage = {
      messageId: randomId(),
      contextId: this.contextId,
      data: { resume: values },
    };
    if (this.taskId !== null) message.taskId = this.taskId;
    return this.#send(message);
  }

  follow(): Promise<void> {
    return this.#follow(null);
  }

  async stop(): Promise<void> {
    if (this.taskId === null) return this.close();
    this.isStopping.value = true;
    try {
      await cancelTask(this.taskId);
    } finally {
      this.isStopping.value = false;
    }
  }

  close(): void {
    this.#abort.abort();
  }

  /** Lets go of the transcript of a run that has ended; what is left is its place. */
  release(): void {
    if (this.taskId === null || !hasEnded(this.#read)) return;
    this.#read = EMPTY;
    this.#readTimes = NO_TIMES;
    batch(() => {
      this.isLoaded.value = false;
      this.transcript.value = EMPTY;
      this.times.value = NO_TIMES;
    });
  }

  async reload(): Promise<void> {
    if (this.isLoaded.value || this.taskId === null) return;
    const events = decodeTask(await getTask(this.taskId));
    if (this.isLoaded.value) return;
    this.take(events, true);
    this.#draw();
    this.isLoaded.value = true;
  }

  #draw(): void {
    this.#cancelDrawing?.();
    this.#cancelDrawing = null;
    batch(() => {
      this.transcript.value = this.#read;
      this.times.value = this.#readTimes;
    });
  }

  #send(message: OutgoingMessage): Promise<void> {
    return this.#follow(signal => this.#withTaskId(send(message, signal)));
  }

  /** The first frame of a new run names its task. */
  async *#withTaskId(frames: Frames): Frames {
    for await (const frame of frames) {
      const isFirst = this.taskId === null;
      this.taskId = frame.task?.id ?? this.taskId ?? (frame.statusUpdate ?? frame.artifactUpdate)?.taskId ?? null;
      forgetUnsent(this.messageId);
      if (isFirst && this.taskId !== null) this.onTask(this.taskId);
      yield frame;
    }
  }

  /** Ends what was followed before, so that each event is taken once. */
  async #follow(open: ((signal: AbortSignal) => Frames) | null): Promise<void> {
    this.failure.value = null;
    if (open !== null) this.note.value = null;
    this.#abort.abort();
    this.#abort = new AbortController();
    const signal = this.#abort.signal;
    try {
      await followRun(this, open && (() => open(signal)), signal);
    } catch (error) {
      if (signal.aborted) return;
      this.setConnection("closed");
      this.#refuse(error instanceof Error ? error.message : String(error), error instanceof Refusal);
    }
  }

  /** A question that was refused has failed; after an answer that was refused the run goes on without it. */
  #refuse(message: string, isRefusal: boolean): void {
    if (this.taskId === null) {
      this.failure.value = message;
      return;
    }
    if (isRefusal) void this.follow();
    this.note.value = message;
  }
}
