// The list of conversations, kept on the server: search, rename, delete.
import { signal } from "@preact/signals";
import { get, request } from "../api/rest.ts";
import type { TranscriptState } from "../events/transcript.ts";

export interface ConversationEntry {
  context_id: string;
  title: string;
  updated: string;
  state: TranscriptState;
}

interface ConversationPage {
  conversations: ConversationEntry[];
  next_page_token?: string;
}

export const entries = signal<ConversationEntry[]>([]);
export const searchText = signal("");
export const nextToken = signal<string | null>(null);
export const problem = signal<string | null>(null);

let newest = 0; // of two searches at once, the later one counts

export async function loadConversations(more = false): Promise<void> {
  const number = ++newest;
  const query = new URLSearchParams();
  if (searchText.value) query.set("query", searchText.value);
  if (more && nextToken.value !== null) query.set("page_token", nextToken.value);
  try {
    const page = await get<ConversationPage>(`/v1/conversations?${query}`);
    if (number !== newest) return;
    entries.value = more ? [...entries.value, ...page.conversations] : page.conversations;
    nextToken.value = page.next_page_token ?? null;
    problem.value = null;
  } catch (error) {
    problem.value = error instanceof Error ? error.message : String(error);
  }
}

export async function renameConversation(contextId: string, title: string): Promise<void> {
  await request("PATCH", pathOfConversation(contextId), { title });
  await loadConversations();
}

export async function deleteConversation(contextId: string): Promise<void> {
  await request("DELETE", pathOfConversation(contextId));
  await loadConversations();
}

function pathOfConversation(contextId: string): string {
  return `/v1/conversations/${encodeURIComponent(contextId)}`;
}
