// A tool call or a delegation, nested: what was called, how long it took, arguments and result on demand.
import { useState } from "preact/hooks";
import type { Span, ToolCall, Transcript } from "../../events/transcript.ts";
import { useNow } from "../../state/clock.ts";
import { keyOfCall, type TimeSpan, type Times } from "../../state/times.ts";
import { formatDuration, formatJson, formatResult, summarizeArguments } from "../../text/format.ts";
import { t } from "../../texts.ts";
import { CheckIcon, CrossIcon, SpinnerIcon } from "../icons.tsx";
import { MarkdownView } from "../markdown_view.tsx";
import { idOfCall } from "./reveal_call.ts";

interface CallProps {
  call: ToolCall;
  transcript: Transcript;
  times: Times;
  id: string;
}

export function CallView({ call, transcript, times, id }: CallProps) {
  const inner = transcript.calls.filter(other => other.parent_call === call.call_id);
  const texts = transcript.spans.filter(span => span.parent_call === call.call_id && span.text.trim() !== "");
  const state = call.outcome === null ? t.running : t.outcome[call.outcome];
  const kind = call.delegates ? "agent" : "tool";
  return (
    <li id={idOfCall(id, call.call_id)} class={`call call-${kind} call-${call.outcome ?? "running"}`}>
      <details>
        <summary>
          <CallIcon call={call} />
          <span class="call-name">{call.tool}</span>
          <span class="call-hint" dir="auto">
            {call.progress || describeCall(call)}
          </span>
          <span class="visually-hidden">({state})</span>
          <Duration time={times.get(keyOfCall(call.call_id))} />
        </summary>
        <CallDetails call={call} />
      </details>
      {call.error !== null && <p class="call-problem">{call.error}</p>}
      {(inner.length > 0 || texts.length > 0) && (
        <ul class="calls">
          {inner.map(other => (
            <CallView key={other.call_id} call={other} transcript={transcript} times={times} id={id} />
          ))}
          {texts.map(span => (
            <DelegatedText key={span.message_id} span={span} />
          ))}
        </ul>
      )}
    </li>
  );
}

/** What was asked of an agent; the arguments of a tool. */
function describeCall(call: ToolCall): string {
  const description = call.arguments["description"];
  if (call.delegates && typeof description === "string") return description.slice(0, 160);
  return summarizeArguments(call.arguments);
}

function CallIcon({ call }: { call: ToolCall }) {
  if (call.outcome === null) return <SpinnerIcon />;
  return call.outcome === "ok" ? <CheckIcon /> : <CrossIcon />;
}

function Duration({ time }: { time: TimeSpan | undefined }) {
  const isRunning = time !== undefined && time.end === null;
  const now = useNow(isRunning);
  if (time === undefined) return null;
  return <span class="duration">{formatDuration((time.end ?? now) - time.start, isRunning)}</span>;
}

function CallDetails({ call }: { call: ToolCall }) {
  return (
    <div class="call-details">
      <h4>{t.arguments}</h4>
      <pre tabIndex={0}>{formatJson(call.arguments)}</pre>
      {call.result !== null && (
        <>
          <h4>{t.result}</h4>
          <pre tabIndex={0}>{formatResult(call.result)}</pre>
        </>
      )}
    </div>
  );
}

const SHORT = 320; // characters that are always shown

/** What an agent wrote to the supervisor; a long text is cut until it is wanted. */
function DelegatedText({ span }: { span: Span }) {
  const [isWhole, setWhole] = useState(false);
  const isLong = span.text.length > SHORT;
  return (
    <li class={`delegated ${isLong && !isWhole ? "clamped" : ""}`}>
      <MarkdownView text={span.text} isFinal={span.role !== null} />
      {isLong && (
        <button type="button" class="quiet" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
          {isWhole ? t.showLess : t.showAll}
        </button>
      )}
    </li>
  );
}
