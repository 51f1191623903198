// The server's REST routes. A failure is an Error whose message is for people.
import { t } from "../texts.ts";
import { fetchWithSession } from "./session.ts";

export interface Problem {
  file?: string;
  field?: string;
  message: string;
  line?: number | null;
}

export class RestError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly problems: Problem[] = [],
  ) {
    super(message);
  }
}

export interface RequestOptions {
  headers?: { [name: string]: string };
  signal?: AbortSignal;
}

export async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  options: RequestOptions = {},
): Promise<T> {
  const headers: { [name: string]: string } = { Accept: "application/json", ...options.headers };
  const init: RequestInit = { method, headers };
  if (options.signal !== undefined) init.signal = options.signal;
  if (body instanceof Blob) {
    headers["Content-Type"] = body.type || "application/octet-stream";
    init.body = body;
  } else if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  const response = await send(path, init);
  if (response.status === 204) return undefined as T;
  const content: unknown = await response.json().catch(() => null);
  if (response.ok) return content as T;
  const detail = readDetail(content) ?? `${response.status} ${response.statusText}`;
  throw new RestError(detail, response.status, readProblems(content));
}

export const get = <T>(path: string, options: RequestOptions = {}) => request<T>("GET", path, undefined, options);

export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function send(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetchWithSession(path, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new RestError(t.unreachable, 0);
  }
}

function readDetail(content: unknown): string | null {
  if (typeof content !== "object" || content === null) return null;
  const { detail, message } = content as { detail?: unknown; message?: unknown };
  if (typeof detail === "string") return detail;
  return typeof message === "string" ? message : null;
}

function readProblems(content: unknown): Problem[] {
  if (typeof content !== "object" || content === null) return [];
  const { problems } = content as { problems?: unknown };
  return Array.isArray(problems) ? (problems as Problem[]) : [];
}
