// Runs as GET /v1/runs gives them: the address of a page of them, and a refreshed first page over older ones.
import type { TranscriptState } from "../../events/transcript.ts";
import type { Tone } from "../parts/status_badge.tsx";

export interface Run {
  task_id: string;
  context_id: string;
  question: string;
  state: TranscriptState;
  agents: string[];
  started: string;
  updated: string;
  tokens: { [name: string]: number } | null;
}

export interface RunPage {
  runs: Run[];
  next_page_token?: string | null;
}

export interface RunFilter {
  state: TranscriptState | "";
  agent: string;
  query: string;
}

export const STATES: TranscriptState[] = ["working", "input-required", "completed", "failed", "canceled", "submitted"];
export const PAGE = 50;

export const TONES: { [state in TranscriptState]: Tone } = {
  submitted: "neutral",
  working: "busy",
  "input-required": "warn",
  completed: "good",
  failed: "bad",
  canceled: "neutral",
};

export function runsPath(filter: RunFilter, pageToken = ""): string {
  const query = new URLSearchParams({ page_size: String(PAGE) });
  if (filter.state) query.set("state", filter.state);
  if (filter.agent) query.set("agent", filter.agent);
  if (filter.query.trim()) query.set("query", filter.query.trim());
  if (pageToken) query.set("page_token", pageToken);
  return `/v1/runs?${query}`;
}

/** The newest page, then the older runs that were loaded before and are not in it. */
export function mergeRuns(newest: Run[], older: Run[]): Run[] {
  const ids = new Set(newest.map(run => run.task_id));
  return [...newest, ...older.filter(run => !ids.has(run.task_id))];
}

export function countTokens(run: Run): number | null {
  if (run.tokens === null) return null;
  const counts = ["input_tokens", "output_tokens"].map(name => run.tokens?.[name] ?? 0);
  return counts.reduce((sum, count) => sum + count, 0);
}

export function isOpen(run: Run): boolean {
  return run.state === "working" || run.state === "submitted" || run.state === "input-required";
}
