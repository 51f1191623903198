// The timeline of a run: who worked when, what waited for whom, tokens.
import type { ToolCall } from "../events/transcript.ts";
import type { TimeSpan, Turn } from "../state/turn.ts";
import { t } from "../texts.ts";
import { formatDuration } from "../text/format.ts";

interface Bar {
  key: string;
  label: string;
  kind: "agent" | "tool" | "wait";
  depth: number;
  time: TimeSpan;
}

export function Timeline({ turn }: { turn: Turn }) {
  const run = turn.times.value.get("run");
  if (run === undefined || run.end === null) return null;
  const bars = listBars(turn);
  const total = Math.max(1, run.end - run.start);
  const usage = turn.transcript.value.usage;
  return (
    <details class="timeline">
      <summary>
        {t.timeline} · {formatDuration(total)}
      </summary>
      <ul>
        {bars.map(bar => (
          <TimelineBar key={bar.key} bar={bar} start={run.start} total={total} />
        ))}
      </ul>
      {usage !== null && (
        <p class="hint">
          {t.tokens(usage.input_tokens, usage.output_tokens)}
          {usage.model_calls !== null && usage.tool_calls !== null && ` · ${t.calls(usage.model_calls, usage.tool_calls)}`}
        </p>
      )}
    </details>
  );
}

function TimelineBar({ bar, start, total }: { bar: Bar; start: number; total: number }) {
  const end = bar.time.end ?? start + total;
  const x = (100 * (bar.time.start - start)) / total;
  const width = Math.max(0.6, (100 * (end - bar.time.start)) / total);
  return (
    <li>
      <span class={`bar-label depth-${Math.min(3, bar.depth)}`}>{bar.label}</span>
      <svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect class={`bar-${bar.kind}`} x={x} y="1" width={width} height="6" rx="1" />
      </svg>
      <span class="duration">{formatDuration(end - bar.time.start)}</span>
    </li>
  );
}

function listBars(turn: Turn): Bar[] {
  const transcript = turn.transcript.value;
  const times = turn.times.value;
  const bars: Bar[] = [];
  const add = (call: ToolCall, depth: number) => {
    const time = times.get(`call-${call.call_id}`);
    if (time !== undefined) {
      bars.push({ key: call.call_id, label: call.tool, kind: call.delegates ? "agent" : "tool", depth, time });
    }
    for (const inner of transcript.calls) if (inner.parent_call === call.call_id) add(inner, depth + 1);
  };
  for (const call of transcript.calls) if (call.parent_call === null) add(call, 0);
  for (const resolved of transcript.resolved) {
    const time = times.get(`request-${resolved.request_id}`);
    const label = resolved.by ? `${t.you} (${resolved.by})` : t.you;
    if (time !== undefined) bars.push({ key: resolved.request_id, label, kind: "wait", depth: 0, time });
  }
  return bars.sort((first, second) => first.time.start - second.time.start);
}
