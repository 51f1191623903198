// One conversation: its turns, oldest first, read page by page from the server.
import { signal } from "@preact/signals";
import { decodeTask } from "../a2a/decode.ts";
import { listTasks } from "../a2a/client.ts";
import { Turn } from "./turn.ts";

const PAGE = 20; // turns

export class Conversation {
  readonly turns = signal<Turn[]>([]);
  readonly isLoading = signal(false);
  readonly problem = signal<string | null>(null);
  readonly olderToken = signal<string | null>(null);

  constructor(readonly contextId: string) {}

  /** Reads the newest turns, or those before the ones that are here. */
  async load(): Promise<void> {
    this.isLoading.value = true;
    this.problem.value = null;
    try {
      const page = await listTasks(this.contextId, this.olderToken.value ?? "", PAGE);
      const loaded = new Set(this.turns.value.map(turn => turn.taskId));
      const turns = page.tasks
        .filter(task => !loaded.has(task.id))
        .map(task => Turn.fromEvents(this.contextId, task.id, decodeTask(task)));
      this.turns.value = [...turns.reverse(), ...this.turns.value];
      this.olderToken.value = page.nextPageToken || null;
      for (const turn of turns) if (turn.isOpen.value && !turn.isAtRest) void turn.follow();
    } catch (error) {
      this.problem.value = error instanceof Error ? error.message : String(error);
    } finally {
      this.isLoading.value = false;
    }
  }

  ask(text: string): Turn {
    const turn = new Turn(this.contextId, text);
    this.turns.value = [...this.turns.value, turn];
    void turn.ask(text);
    return turn;
  }

  close(): void {
    for (const turn of this.turns.value) turn.close();
  }
}
