// JSON-RPC over HTTP, with server-sent events for streams: what A2A needs of both.
import { fetchWithSession } from "../api/session.ts";
import { EventReader } from "./event_reader.ts";

/** The server answered and said no. */
export class Refusal extends Error {}

const TRY_LATER: readonly number[] = [408, 425, 429, 500, 502, 503, 504];

interface RpcAnswer<T> {
  result?: T;
  error?: { code: number; message: string };
}

export async function call<T>(method: string, params: object, headers: HeadersInit): Promise<T> {
  const response = await post(method, params, headers, "application/json", null);
  return readResult((await response.json()) as RpcAnswer<T>);
}

export async function* stream<T>(
  method: string,
  params: object,
  headers: HeadersInit,
  signal: AbortSignal,
): AsyncGenerator<T> {
  const response = await post(method, params, headers, "text/event-stream", signal);
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    readResult((await response.json()) as RpcAnswer<T>);
    throw new Error("The server answered with no stream.");
  }
  const bytes = response.body!.getReader();
  const decoder = new TextDecoder();
  const events = new EventReader();
  try {
    for (let chunk = await bytes.read(); !chunk.done; chunk = await bytes.read()) {
      const text = decoder.decode(chunk.value, { stream: true });
      for (const data of events.read(text)) yield readResult(JSON.parse(data) as RpcAnswer<T>);
    }
  } finally {
    await bytes.cancel().catch(() => undefined); // also when the reader leaves early
  }
}

async function post(
  method: string,
  params: object,
  headers: HeadersInit,
  accept: string,
  signal: AbortSignal | null,
): Promise<Response> {
  const response = await fetchWithSession("/", {
    method: "POST",
    headers: { ...headers, Accept: accept, "Content-Type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    signal,
  });
  if (response.ok) return response;
  throw await readFailure(response);
}

function readResult<T>(answer: RpcAnswer<T>): T {
  if (answer.error !== undefined) throw new Refusal(answer.error.message);
  if (answer.result === undefined) throw new Error("The server's answer has neither a result nor an error.");
  return answer.result;
}

/** A status that may pass is a lost connection; any other one is the server's word. */
async function readFailure(response: Response): Promise<Error> {
  const content = (await response.json().catch(() => null)) as { error?: unknown; detail?: unknown } | null;
  const error = content?.error as { message?: unknown } | undefined;
  const words = error?.message ?? content?.detail;
  if (typeof error?.message === "string") return new Refusal(error.message);
  const message = typeof words === "string" ? words : `${response.status} ${response.statusText}`;
  return TRY_LATER.includes(response.status) ? new Error(message) : new Refusal(message);
}
