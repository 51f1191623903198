// What a screen reader is told: finished blocks and changes of state, one after the other, never single words.
import { signal } from "@preact/signals";

const MAX_CHARACTERS = 600;

export const announcement = signal("");

export function announce(text: string): void {
  const words = text.replace(/\s+/g, " ").trim();
  if (words !== "") announcement.value = words.slice(0, MAX_CHARACTERS);
}
