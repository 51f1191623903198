// A state as a word with a shape: its colour alone says nothing.
import type { ComponentChildren } from "preact";

export type Tone = "good" | "bad" | "warn" | "busy" | "neutral";

export function StatusBadge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class={`badge badge-${tone}`}>
      <span class="badge-mark" aria-hidden="true" />
      {children}
    </span>
  );
}
