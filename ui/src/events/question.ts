// The question of a run as text.
import type { Transcript } from "./transcript.ts";

export function questionText(transcript: Transcript): string {
  return transcript.question
    .map(part => (part.type === "text" ? part.text : ""))
    .join("\n")
    .trim();
}
