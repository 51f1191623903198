// A question that another view asks: it opens a new conversation.
import { signal } from "@preact/signals";
import { navigate, pathOf } from "./route.ts";

export const pendingQuestion = signal<string | null>(null);

export function startConversation(text: string): void {
  pendingQuestion.value = text;
  navigate(pathOf("chat"));
}
