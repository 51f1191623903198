// The timeline of a run: who worked when, what waited for whom, tokens. A bar leads to its call.
import { type Lane, listTicks, readTimeline, type RunTimeline } from "../../events/timeline.ts";
import { SUPERVISOR, type Transcript } from "../../events/transcript.ts";
import type { Usage } from "../../generated/events.ts";
import { useNow } from "../../state/clock.ts";
import { RUN, type Times } from "../../state/times.ts";
import { formatCount, formatDuration } from "../../text/format.ts";
import { t } from "../../texts.ts";

interface TimelineProps {
  transcript: Transcript;
  times: Times;
  onCall(callId: string): void;
}

export function Timeline({ transcript, times, onCall }: TimelineProps) {
  const isRunning = times.get(RUN)?.end === null;
  const now = useNow(isRunning);
  const timeline = readTimeline(transcript, times, now);
  if (timeline === null) return null;
  return (
    <div class="timeline">
      <Axis length={timeline.length} />
      <ul class="lanes">
        {timeline.lanes.map(lane => (
          <LaneView key={lane.key} lane={lane} timeline={timeline} onCall={onCall} />
        ))}
      </ul>
      <UsageLine usage={transcript.usage} isRunning={isRunning} />
    </div>
  );
}

function Axis({ length }: { length: number }) {
  return (
    <div class="axis" aria-hidden="true">
      {listTicks(length).map(tick => (
        <span key={tick} class="tick" style={{ left: `${(100 * tick) / length}%` }}>
          {tick === 0 ? "0" : formatDuration(tick)}
        </span>
      ))}
    </div>
  );
}

function LaneView({ lane, timeline, onCall }: { lane: Lane; timeline: RunTimeline; onCall(callId: string): void }) {
  const total = lane.bars.reduce((sum, bar) => sum + bar.end - bar.start, 0);
  const first = lane.bars[0]?.start ?? timeline.start;
  const name = labelOf(lane);
  const bars = lane.bars.map((bar, index) => (
    <span
      key={index}
      class={`bar bar-${bar.kind} ${bar.isRunning ? "bar-running" : ""} ${bar.hasFailed ? "bar-failed" : ""}`}
      style={{
        left: `${(100 * (bar.start - timeline.start)) / timeline.length}%`,
        width: `${(100 * (bar.end - bar.start)) / timeline.length}%`,
      }}
    />
  ));
  const content = (
    <>
      <span class={`lane-label depth-${Math.min(3, lane.depth)}`}>{name}</span>
      <span class="lane-track">{bars}</span>
      <span class="duration">{formatDuration(total)}</span>
    </>
  );
  const { callId } = lane;
  const label = t.timelineLabel(name, formatDuration(total), formatDuration(first - timeline.start));
  if (callId === null) {
    return (
      <li class="lane" aria-label={label}>
        {content}
      </li>
    );
  }
  return (
    <li>
      <button type="button" class="lane" aria-label={label} title={label} onClick={() => onCall(callId)}>
        {content}
      </button>
    </li>
  );
}

function labelOf(lane: Lane): string {
  if (lane.key === SUPERVISOR) return t.supervisor;
  if (lane.callId === null) return t.waitedFor(lane.label || t.you.toLowerCase());
  return lane.label;
}

function UsageLine({ usage, isRunning }: { usage: Usage | null; isRunning: boolean }) {
  if (isRunning) return null;
  if (usage === null) return <p class="usage">{t.noTokens}</p>;
  const cached = usage.cache_read_tokens ? formatCount(usage.cache_read_tokens) : null;
  const parts = [t.tokensUsed(formatCount(usage.input_tokens), cached, formatCount(usage.output_tokens))];
  if (usage.model_calls !== null) parts.push(t.modelCalls(usage.model_calls));
  if (usage.tool_calls !== null) parts.push(t.summary.calls(usage.tool_calls));
  return <p class="usage">{parts.join(" · ")}</p>;
}
