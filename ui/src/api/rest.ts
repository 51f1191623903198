// The server's REST routes. A failure is an Error whose message is for people.
import { t } from "../texts.ts";

export class RestError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const options: RequestInit = { method, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.headers = { ...options.headers, "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let response: Response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new RestError(t.unreachable, 0);
  }
  if (response.status === 204) return undefined as T;
  const content: unknown = await response.json().catch(() => null);
  if (response.ok) return content as T;
  throw new RestError(readDetail(content) ?? `${response.status} ${response.statusText}`, response.status);
}

export const get = <T>(path: string) => request<T>("GET", path);

function readDetail(content: unknown): string | null {
  if (typeof content !== "object" || content === null) return null;
  const { detail, message } = content as { detail?: unknown; message?: unknown };
  if (typeof detail === "string") return detail;
  return typeof message === "string" ? message : null;
}
