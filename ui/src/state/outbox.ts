// Questions that the server has not taken yet, kept in this browser: a reload sends them again with the same id.
import { readStored, writeStored } from "./browser_storage.ts";

export interface UnsentQuestion {
  messageId: string;
  contextId: string;
  text: string;
}

const KEY = "caipe.outbox";
const MAX_QUESTIONS = 20;

export function keepUnsent(question: UnsentQuestion): void {
  const others = listUnsent().filter(other => other.messageId !== question.messageId);
  writeStored(KEY, [...others, question].slice(-MAX_QUESTIONS));
}

export function forgetUnsent(messageId: string): void {
  const unsent = listUnsent();
  const others = unsent.filter(question => question.messageId !== messageId);
  if (others.length < unsent.length) writeStored(KEY, others);
}

export function listUnsent(contextId?: string): UnsentQuestion[] {
  const unsent = readStored<UnsentQuestion[]>(KEY, []);
  return contextId === undefined ? unsent : unsent.filter(question => question.contextId === contextId);
}
