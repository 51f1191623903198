// Numbers, times and JSON for people.
import type { JsonValue } from "../generated/events.ts";

/** A duration; one that still runs is given in whole seconds. */
export function formatDuration(milliseconds: number, isRunning = false): string {
  const elapsed = Math.max(0, milliseconds);
  if (isRunning && elapsed < 60_000) return `${Math.floor(elapsed / 1000)} s`;
  if (elapsed < 1000) return `${Math.round(elapsed)} ms`;
  if (elapsed < 9_950) return `${(elapsed / 1000).toFixed(1)} s`;
  const seconds = Math.round(elapsed / 1000);
  if (seconds < 60) return `${seconds} s`;
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

const MAX_SHOWN = 20_000; // characters

export function formatJson(value: unknown): string {
  return cut(JSON.stringify(value, null, 2) ?? "");
}

/** What a tool returned: JSON in lines, anything else as it is. */
export function formatResult(text: string): string {
  if (text.length > MAX_SHOWN || !/^\s*[[{]/.test(text)) return cut(text);
  try {
    return formatJson(JSON.parse(text));
  } catch {
    return text;
  }
}

function cut(text: string): string {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}\n…` : text;
}

/** The arguments that say most, on one line. */
export function summarizeArguments(values: { [key: string]: JsonValue }): string {
  const texts = Object.values(values).filter(value => typeof value === "string" || typeof value === "number");
  return texts.join(" · ").slice(0, 400).replace(/\s+/g, " ").slice(0, 160);
}

export function formatCount(count: number): string {
  if (count < 1_000) return String(count);
  if (count < 999_500) return `${trimZero((count / 1_000).toFixed(count < 9_950 ? 1 : 0))} k`;
  return `${trimZero((count / 1_000_000).toFixed(1))} M`;
}

const trimZero = (text: string) => text.replace(/\.0$/, "");

export function formatMoment(iso: string): string {
  return new Date(iso).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** A moment as people say it: today its time, else its day. */
export function formatDay(iso: string): string {
  const moment = new Date(iso);
  const isToday = moment.toDateString() === new Date().toDateString();
  return isToday
    ? moment.toLocaleTimeString(undefined, { timeStyle: "short" })
    : moment.toLocaleDateString(undefined, { day: "numeric", month: "short" });
}

export type DayGroup = "today" | "yesterday" | "thisWeek" | "older";

/** Which part of a list by time a moment belongs to. */
export function groupOfDay(iso: string, now: Date): DayGroup {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const moment = Date.parse(iso);
  const day = 24 * 3600 * 1000;
  if (moment >= midnight) return "today";
  if (moment >= midnight - day) return "yesterday";
  return moment >= midnight - 7 * day ? "thisWeek" : "older";
}
