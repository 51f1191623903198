// Tool calls and delegations, nested: what was called, by whom, how long it took, arguments and result on demand.
import type { JsonValue } from "../generated/events.ts";
import type { ToolCall, Transcript } from "../events/transcript.ts";
import type { TimeSpan } from "../state/turn.ts";
import { t } from "../texts.ts";
import { formatDuration, formatJson } from "../text/format.ts";
import { CheckIcon, CrossIcon, SpinnerIcon } from "./icons.tsx";
import { MarkdownView } from "./markdown_view.tsx";

type Times = ReadonlyMap<string, TimeSpan>;

export function CallList({ calls, transcript, times }: { calls: ToolCall[]; transcript: Transcript; times: Times }) {
  return (
    <ul class="calls">
      {calls.map(call => (
        <CallView key={call.call_id} call={call} transcript={transcript} times={times} />
      ))}
    </ul>
  );
}

function CallView({ call, transcript, times }: { call: ToolCall; transcript: Transcript; times: Times }) {
  const inner = transcript.calls.filter(other => other.parent_call === call.call_id);
  const texts = transcript.spans.filter(span => span.parent_call === call.call_id && span.text !== "");
  const state = call.outcome === null ? t.running : t.outcome[call.outcome];
  return (
    <li class={`call call-${call.outcome ?? "running"}`}>
      <details>
        <summary>
          <CallIcon call={call} />
          <span class="call-name">{call.tool}</span>
          <span class="call-hint" dir="auto">
            {call.progress || summarize(call.arguments)}
          </span>
          <span class="visually-hidden">({state})</span>
          <Duration time={times.get(`call-${call.call_id}`)} />
        </summary>
        <CallDetails call={call} />
      </details>
      {call.error !== null && <p class="call-error">{call.error}</p>}
      {inner.length > 0 && <CallList calls={inner} transcript={transcript} times={times} />}
      {texts.map(span => (
        <div class="delegated" key={span.message_id}>
          <MarkdownView text={span.text} isFinal={span.role !== null} />
        </div>
      ))}
    </li>
  );
}

function CallIcon({ call }: { call: ToolCall }) {
  if (call.outcome === null) return <SpinnerIcon />;
  return call.outcome === "ok" ? <CheckIcon /> : <CrossIcon />;
}

function Duration({ time }: { time: TimeSpan | undefined }) {
  if (time === undefined || time.end === null) return null;
  return <span class="duration">{formatDuration(time.end - time.start)}</span>;
}

function CallDetails({ call }: { call: ToolCall }) {
  return (
    <div class="call-details">
      <h4>{t.arguments}</h4>
      <pre tabIndex={0}>{formatJson(call.arguments)}</pre>
      {call.result !== null && (
        <>
          <h4>{t.result}</h4>
          <pre tabIndex={0}>{call.result}</pre>
        </>
      )}
    </div>
  );
}

/** The arguments that say most, on one line. */
function summarize(values: { [key: string]: JsonValue }): string {
  const texts = Object.values(values).filter(value => typeof value === "string" || typeof value === "number");
  return texts.join(" · ").replace(/\s+/g, " ").slice(0, 160);
}
