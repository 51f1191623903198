// One conversation: its turns, oldest first, read page by page from the server, and what other tabs do in it.
import { signal } from "@preact/signals";
import { decodeTask } from "../a2a/decode.ts";
import { getTask, listTasks } from "../a2a/client.ts";
import { questionText } from "../events/question.ts";
import { listUnsent } from "./outbox.ts";
import { RUN } from "./times.ts";
import { Turn } from "./turn.ts";
import { listFar } from "./windowing.ts";
import { announceChange, watchConversation } from "./watch.ts";

const PAGE = 10; // turns
const DROP = "drop"; // the word with which the server ends what waits

export class Conversation {
  readonly turns = signal<Turn[]>([]);
  readonly isLoading = signal(false);
  readonly problem = signal<string | null>(null);
  readonly olderToken = signal<string | null>(null);
  #stopWatching: (() => void) | null = null;
  #isClosed = false;

  constructor(readonly contextId: string) {}

  /** Reads the newest turns, or those before the ones that are here. */
  async load(): Promise<void> {
    if (this.isLoading.value) return;
    this.isLoading.value = true;
    this.problem.value = null;
    try {
      const page = await listTasks(this.contextId, this.olderToken.value ?? "", PAGE);
      if (this.#isClosed) return;
      this.#add((page.tasks ?? []).map(task => Turn.fromEvents(this.contextId, task.id, decodeTask(task))));
      this.olderToken.value = page.nextPageToken || null;
      this.#resend();
    } catch (error) {
      this.problem.value = error instanceof Error ? error.message : String(error);
    } finally {
      this.isLoading.value = false;
    }
  }

  /** Follows what other tabs and people do in this conversation, until it is closed. */
  watch(): void {
    this.#stopWatching ??= watchConversation(this.contextId, () => this.refresh());
  }

  ask(text: string): Turn {
    return this.#start(new Turn(this.contextId, text));
  }

  /** Asks the same again: the same message when the server has not taken it. */
  retry(turn: Turn): void {
    if (turn.taskId === null) void turn.ask();
    else this.ask(questionText(turn.transcript.value) || turn.question);
  }

  /** Ends a run that waits, with its requests, and asks what was written meanwhile. */
  drop(turn: Turn): void {
    const fresh = new Turn(this.contextId, turn.transcript.value.held ?? "");
    this.#start(fresh, DROP);
  }

  /** Adds the runs that began elsewhere, and goes on with those that were answered elsewhere. */
  async refresh(): Promise<void> {
    if (this.turns.value.some(turn => turn.taskId === null && turn.isOpen.value)) return;
    const page = await listTasks(this.contextId, "", 5, false);
    const known = new Map(this.turns.value.map(turn => [turn.taskId, turn]));
    const added: Turn[] = [];
    for (const task of page.tasks ?? []) {
      const turn = known.get(task.id);
      if (turn === undefined) added.push(Turn.fromEvents(this.contextId, task.id, decodeTask(await getTask(task.id))));
      else if (turn.isLoaded.value && turn.isOpen.value && turn.connection.value === "closed") void turn.follow();
    }
    if (!this.#isClosed && added.length > 0) this.#add(added);
  }

  /** Keeps the transcripts of the turns around this one; the others are read again when needed. */
  keepAround(index: number): void {
    const turns = this.turns.value;
    for (const far of listFar(turns.length, index)) if (turns[far]?.isLoaded.value) turns[far].release();
  }

  close(): void {
    this.#isClosed = true;
    this.#stopWatching?.();
    this.#stopWatching = null;
    for (const turn of this.turns.value) turn.close();
  }

  #start(turn: Turn, text?: string): Turn {
    this.turns.value = [...this.turns.value, turn];
    turn.onTask = taskId => this.#join(turn, taskId);
    void turn.ask(text);
    setTimeout(() => announceChange(this.contextId), 300); // by then the server lists it
    return turn;
  }

  /** A message that went to a run that waits for an answer belongs to its turn. */
  #join(turn: Turn, taskId: string): void {
    const waiting = this.turns.value.find(other => other !== turn && other.taskId === taskId);
    if (waiting === undefined) return;
    turn.close();
    this.turns.value = this.turns.value.filter(other => other !== turn);
    void waiting.follow();
  }

  #add(turns: Turn[]): void {
    const taskIds = new Set(this.turns.value.map(turn => turn.taskId));
    const added = turns.filter(turn => !taskIds.has(turn.taskId));
    const messageIds = new Set(added.map(turn => turn.messageId));
    // The server's turn stands for one whose sending failed after the server had taken it.
    const kept = this.turns.value.filter(turn => turn.taskId !== null || !messageIds.has(turn.messageId));
    this.turns.value = sortByStart([...kept, ...added]);
    for (const turn of added) if (turn.isOpen.value && !turn.isAtRest) void turn.follow();
  }

  /** Sends what a reload left unsent. */
  #resend(): void {
    const here = new Set(this.turns.value.map(turn => turn.messageId));
    for (const question of listUnsent(this.contextId)) {
      if (!here.has(question.messageId)) this.#start(new Turn(this.contextId, question.text, question.messageId));
    }
  }
}

/** A turn that was not taken yet comes last; a released one keeps its place. */
function sortByStart(turns: Turn[]): Turn[] {
  for (const turn of turns) turn.startedAt = turn.times.value.get(RUN)?.start ?? turn.startedAt;
  return turns.sort((first, second) => first.startedAt - second.startedAt);
}
