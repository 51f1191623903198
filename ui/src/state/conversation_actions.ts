// What one does with a conversation as a whole; the dialogs for it read their conversation here.
import { signal } from "@preact/signals";
import { exportJson, exportMarkdown } from "../text/export.ts";
import { t } from "../texts.ts";
import { type ConversationEntry, deleteConversation, entries, renameConversation } from "./conversations.ts";
import { navigate, pathOf, route } from "./route.ts";
import { showProblem, showToast } from "./toasts.ts";

export const renamed = signal<string | null>(null);
export const toDelete = signal<ConversationEntry | null>(null);
export const toShare = signal<ConversationEntry | null>(null);

/** The entry of a conversation, also of one that is not in the list. */
export function findEntry(contextId: string): ConversationEntry {
  const entry = entries.value.find(each => each.context_id === contextId);
  return entry ?? { context_id: contextId, title: t.untitled, updated: "", state: "completed" };
}

export async function rename(contextId: string, title: string): Promise<void> {
  renamed.value = null;
  const name = title.trim();
  if (name === "" || name === findEntry(contextId).title) return;
  await renameConversation(contextId, name).catch(showProblem);
}

export async function confirmDelete(): Promise<void> {
  const entry = toDelete.value;
  toDelete.value = null;
  if (entry === null) return;
  try {
    await deleteConversation(entry.context_id);
    if (route.value.view === "chat" && route.value.id === entry.context_id) navigate(pathOf("chat"));
  } catch (error) {
    showProblem(error);
  }
}

export async function exportAs(kind: "markdown" | "json", contextId: string): Promise<void> {
  const { title } = findEntry(contextId);
  try {
    await (kind === "markdown" ? exportMarkdown(contextId, title) : exportJson(contextId, title));
    showToast(t.exported);
  } catch (error) {
    showProblem(error);
  }
}
