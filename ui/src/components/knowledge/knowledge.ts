// The knowledge base as its REST API gives it: datasources, jobs, passages and documents.
import { request } from "../../api/rest.ts";
import type { Tone } from "../parts/status_badge.tsx";

export interface Datasource {
  name: string;
  title: string;
  kind: string;
  location: string;
  documents: number;
  document_kinds: { [kind: string]: number };
  chunks: number;
  embedded: number;
  refreshed: string | null;
  restricted: boolean;
  refresh_every: number | null;
  next_refresh: string | null;
  refresh_failures: number;
}

export interface Job {
  id: string;
  datasource: string;
  state: "waiting" | "running" | "done" | "failed" | "stopped" | string;
  total: number | null;
  done: number;
  skipped: number;
  removed: number;
  failed: { address: string; reason: string }[];
  cut: { address: string; missing: string }[];
  problem: string;
  created: string | null;
  ended: string | null;
}

/** Why a passage was found; a store tells what it knows. */
export interface Why {
  words?: string[];
  word_score?: number | null;
  meaning_score?: number | null;
  exact?: string[];
}

export interface Passage {
  document_id: string;
  title: string;
  link: string | null;
  datasource: string;
  score: number;
  snippet: string;
  headings: string[];
  offset: number;
  kind: string;
  why?: Why | null;
}

export interface DocumentPage {
  document_id: string;
  title: string;
  link: string | null;
  datasource: string;
  offset: number;
  text: string;
  total_chars: number;
  missing: string;
  next_offset: number | null;
}

export type DatasourceState = "reading" | "indexing" | "problem" | "empty" | "ready";

export const TONES: { [state in DatasourceState]: Tone } = {
  reading: "busy",
  indexing: "busy",
  problem: "bad",
  empty: "neutral",
  ready: "good",
};

export const isOpenJob = (job: Job) => job.state === "waiting" || job.state === "running";

/** The newest job of each datasource. */
export function latestJobs(jobs: Job[]): Map<string, Job> {
  const latest = new Map<string, Job>();
  for (const job of jobs) {
    const other = latest.get(job.datasource);
    if (other === undefined || (job.created ?? "") > (other.created ?? "")) latest.set(job.datasource, job);
  }
  return latest;
}

export function stateOf(source: Datasource, job: Job | undefined): DatasourceState {
  if (job !== undefined && isOpenJob(job)) return "reading";
  if (job?.problem || source.refresh_failures > 0) return "problem";
  if (source.embedded > 0 && source.embedded < source.chunks) return "indexing";
  return source.documents === 0 ? "empty" : "ready";
}

const pathOf = (source: Datasource) => `/v1/datasources/${encodeURIComponent(source.name)}`;

export interface NewDatasource {
  location: string;
  name?: string;
  every?: string;
  options?: { [name: string]: string };
}

export const addDatasource = (source: NewDatasource) => request("POST", "/v1/datasources", source);
export const removeDatasource = (source: Datasource) => request("DELETE", pathOf(source));
export const refreshDatasource = (source: Datasource) => request("POST", "/v1/ingest", { datasource: source.name });
export const stopJob = (job: Job) => request("POST", `/v1/jobs/${encodeURIComponent(job.id)}/stop`);
export const upload = (file: File, signal: AbortSignal) =>
  request("POST", `/v1/uploads?${new URLSearchParams({ name: file.name })}`, file, { signal });

export const UPLOADS = "uploads"; // the datasource of uploaded files
export const deleteDocument = (id: string) => request("DELETE", `/v1/documents/${encodeURIComponent(id)}`);

export async function findPassages(query: string, datasource: string): Promise<Passage[]> {
  const body = datasource === "" ? { query } : { query, datasource };
  return (await request<{ results: Passage[] }>("POST", "/v1/query", body)).results;
}

/** The snippet without its title, which stands above it, and without empty lines. */
export function textOf(passage: Passage): string {
  const lines = passage.snippet.split("\n").filter(line => line.trim() !== "");
  const isTitle = lines[0]?.replace(/^#+\s*/, "") === passage.title && lines[0]?.startsWith("#");
  return (isTitle && lines.length > 1 ? lines.slice(1) : lines).join("\n");
}

export interface TextPiece {
  text: string;
  isMatch: boolean;
}

/** The text in pieces: those that a search matched, and what is between. */
export function splitMatches(text: string, words: string[]): TextPiece[] {
  const escaped = words.filter(Boolean).map(word => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (escaped.length === 0) return [{ text, isMatch: false }];
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${escaped.join("|")})`, "giu");
  const pieces: TextPiece[] = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) pieces.push({ text: text.slice(end, match.index), isMatch: false });
    pieces.push({ text: match[0], isMatch: true });
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push({ text: text.slice(end), isMatch: false });
  return pieces;
}
