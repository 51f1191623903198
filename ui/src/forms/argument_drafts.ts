// Arguments of a call as text that people edit, and back.
import type { JsonValue } from "../generated/events.ts";

export type Arguments = { [name: string]: JsonValue };
export type ArgumentDrafts = { [name: string]: string };

/** A text stays a text; anything else is JSON. */
export function showArgument(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

export function startDrafts(values: Arguments): ArgumentDrafts {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, showArgument(value)]));
}

/** The value of a draft; undefined when it is not JSON, where it has to be. */
export function readArgument(original: JsonValue, draft: string): JsonValue | undefined {
  if (typeof original === "string") return draft;
  try {
    return JSON.parse(draft) as JsonValue;
  } catch {
    return undefined;
  }
}

/** The edited arguments; null when a draft cannot be read. */
export function readArguments(originals: Arguments, drafts: ArgumentDrafts): Arguments | null {
  const values: Arguments = {};
  for (const [name, original] of Object.entries(originals)) {
    const value = readArgument(original, drafts[name] ?? "");
    if (value === undefined) return null;
    values[name] = value;
  }
  return values;
}

/** The names of the arguments that were changed. */
export function listChanged(originals: Arguments, drafts: ArgumentDrafts): string[] {
  return Object.entries(originals)
    .filter(([name, original]) => {
      const value = readArgument(original, drafts[name] ?? "");
      return value === undefined || JSON.stringify(value) !== JSON.stringify(original);
    })
    .map(([name]) => name);
}
