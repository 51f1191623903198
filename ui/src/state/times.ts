// When the parts of a run happened: the run itself, its calls, texts and requests.
import type { NumberedEvent } from "../a2a/decode.ts";

/** When something began and ended, in milliseconds since 1970. */
export interface TimeSpan {
  start: number;
  end: number | null;
}

export type Times = ReadonlyMap<string, TimeSpan>;

export const RUN = "run";
export const keyOfText = (messageId: string) => `text-${messageId}`;
export const keyOfCall = (callId: string) => `call-${callId}`;
export const keyOfRequest = (requestId: string) => `request-${requestId}`;

/** The times after one more event; the same map when it changes none. */
export function recordTime(times: Times, { at, event }: NumberedEvent): Times {
  const moment = at === null ? Date.now() : Date.parse(at);
  switch (event.kind) {
    case "run_started":
      return begin(times, RUN, moment);
    case "text_delta":
      return begin(times, keyOfText(event.message_id), moment);
    case "text_ended":
      return finish(times, keyOfText(event.message_id), moment);
    case "tool_started":
      return begin(times, keyOfCall(event.call_id), moment);
    case "tool_finished":
      return finish(times, keyOfCall(event.call_id), moment);
    case "input_requested":
      return begin(times, keyOfRequest(event.request_id), moment);
    case "input_resolved":
      return finish(times, keyOfRequest(event.request_id), moment);
    case "answered":
    case "failed":
    case "cancelled":
      return finish(times, RUN, moment);
    default:
      return times;
  }
}

function begin(times: Times, key: string, moment: number): Times {
  return times.has(key) ? times : new Map(times).set(key, { start: moment, end: null });
}

function finish(times: Times, key: string, moment: number): Times {
  return new Map(times).set(key, { start: times.get(key)?.start ?? moment, end: moment });
}
