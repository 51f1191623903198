// What a run did: open while it works, one quiet line when the answer is there. Steps and timeline show the same run.
import { useEffect, useState } from "preact/hooks";
import { currentWork, listAgents } from "../../events/activity.ts";
import { hasEnded, type Transcript } from "../../events/transcript.ts";
import { useNow } from "../../state/clock.ts";
import { RUN, type Times } from "../../state/times.ts";
import { formatDuration } from "../../text/format.ts";
import { t } from "../../texts.ts";
import { Icon, SpinnerIcon } from "../icons.tsx";
import { PlanView } from "./plan_view.tsx";
import { revealCall } from "./reveal_call.ts";
import { Timeline } from "./timeline.tsx";

type Tab = "steps" | "timeline";

interface ActivityProps {
  transcript: Transcript;
  times: Times;
  id: string;
}

export function ActivityView({ transcript, times, id }: ActivityProps) {
  const isEnded = hasEnded(transcript);
  const [isOpen, setOpen] = useState<boolean | null>(null);
  const [tab, setTab] = useState<Tab>("steps");
  const [wanted, setWanted] = useState<string | null>(null);
  useEffect(() => {
    if (wanted === null || tab !== "steps") return;
    revealCall(id, wanted);
    setWanted(null);
  }, [wanted, tab]);
  if (transcript.calls.length === 0 && transcript.plan === null) return null;
  const showsBody = isOpen ?? !isEnded;
  return (
    <section class={`activity ${isEnded ? "activity-ended" : ""}`} aria-label={t.activity}>
      <div class="activity-head">
        <button type="button" class="activity-summary" aria-expanded={showsBody} onClick={() => setOpen(!showsBody)}>
          {isEnded ? <Icon name="chevron" /> : <ActivityIcon transcript={transcript} />}
          <Headline transcript={transcript} times={times} />
        </button>
        {showsBody && <Tabs tab={tab} onTab={setTab} />}
      </div>
      {showsBody && (
        <div class="activity-body">
          {tab === "steps" ? (
            <PlanView transcript={transcript} times={times} id={id} />
          ) : (
            <Timeline
              transcript={transcript}
              times={times}
              onCall={callId => {
                setTab("steps");
                setWanted(callId);
              }}
            />
          )}
        </div>
      )}
    </section>
  );
}

function ActivityIcon({ transcript }: { transcript: Transcript }) {
  return transcript.state === "input-required" ? <Icon name="person" /> : <SpinnerIcon />;
}

function Headline({ transcript, times }: { transcript: Transcript; times: Times }) {
  const run = times.get(RUN);
  const isRunning = run !== undefined && run.end === null;
  const now = useNow(isRunning);
  const duration = run === undefined ? "" : formatDuration((run.end ?? now) - run.start, isRunning);
  if (hasEnded(transcript)) {
    return <span class="activity-words">{[...summarize(transcript), duration].filter(Boolean).join(" · ")}</span>;
  }
  const work = transcript.state === "input-required" ? t.waitsForYou : (currentWork(transcript) ?? t.thinking);
  return (
    <>
      <span class="activity-words shimmer" dir="auto">
        {work}
      </span>
      <span class="duration">{duration}</span>
    </>
  );
}

function summarize(transcript: Transcript): string[] {
  const agents = listAgents(transcript).length;
  const parts: string[] = [];
  if (transcript.plan !== null) parts.push(t.summary.steps(transcript.plan.steps.length));
  if (agents > 0) parts.push(t.summary.agents(agents));
  if (parts.length === 0) parts.push(t.summary.calls(transcript.calls.length));
  return parts;
}

function Tabs({ tab, onTab }: { tab: Tab; onTab(tab: Tab): void }) {
  return (
    <div class="segments" role="group" aria-label={t.activity}>
      {(["steps", "timeline"] as const).map(name => (
        <button type="button" key={name} aria-pressed={tab === name} onClick={() => onTab(name)}>
          {t[name]}
        </button>
      ))}
    </div>
  );
}
