// What was typed and not sent, for each conversation, in this browser.
import { readStored, writeStored } from "./browser_storage.ts";

const KEY = "caipe.drafts";
const MAX_DRAFTS = 30;
const MAX_CHARACTERS = 20_000;

type Drafts = [conversation: string, text: string][]; // the oldest first

export const NEW_CONVERSATION = "";

export function readDraft(conversation: string): string {
  return readStored<Drafts>(KEY, []).find(([name]) => name === conversation)?.[1] ?? "";
}

export function writeDraft(conversation: string, text: string): void {
  writeStored(KEY, withDraft(readStored<Drafts>(KEY, []), conversation, text));
}

export function withDraft(drafts: Drafts, conversation: string, text: string): Drafts {
  const others = drafts.filter(([name]) => name !== conversation);
  if (text === "") return others;
  return [...others, [conversation, text.slice(0, MAX_CHARACTERS)] as [string, string]].slice(-MAX_DRAFTS);
}
