// The plan with its steps in their true states, and what was done under each.
import { type ActivityItem, readActivity, type StepActivity } from "../../events/activity.ts";
import type { Transcript } from "../../events/transcript.ts";
import type { PlanStep } from "../../generated/events.ts";
import type { Times } from "../../state/times.ts";
import { t } from "../../texts.ts";
import { CheckIcon, CrossIcon, DotIcon, SkipIcon, SpinnerIcon } from "../icons.tsx";
import { MarkdownView } from "../markdown_view.tsx";
import { CallView } from "./call_view.tsx";

interface PlanProps {
  transcript: Transcript;
  times: Times;
  id: string;
}

export function PlanView({ transcript, times, id }: PlanProps) {
  const activity = readActivity(transcript, times);
  const list = (items: ActivityItem[]) => <Items items={items} transcript={transcript} times={times} id={id} />;
  return (
    <>
      {list(activity.before)}
      {activity.steps.length > 0 && (
        <ol class="plan" aria-label={transcript.plan?.title || t.plan}>
          {activity.steps.map(({ step, items }: StepActivity) => (
            <li key={step.step_id} class={`step step-${step.status}`}>
              <div class="step-line">
                <StatusIcon status={step.status} />
                <span class="step-title" dir="auto">
                  {step.title}
                </span>
                <span class="tag">{step.agent}</span>
                <span class="visually-hidden">({t.step[step.status]})</span>
              </div>
              {list(items)}
            </li>
          ))}
        </ol>
      )}
      {list(activity.after)}
    </>
  );
}

function Items({ items, transcript, times, id }: PlanProps & { items: ActivityItem[] }) {
  if (items.length === 0) return null;
  return (
    <ul class="calls">
      {items.map(item =>
        item.kind === "call" ? (
          <CallView key={item.call.call_id} call={item.call} transcript={transcript} times={times} id={id} />
        ) : (
          <li key={item.span.message_id} class="narration">
            <MarkdownView text={item.span.text} isFinal={item.span.role !== null} />
          </li>
        ),
      )}
    </ul>
  );
}

function StatusIcon({ status }: { status: PlanStep["status"] }) {
  switch (status) {
    case "completed":
      return <CheckIcon />;
    case "failed":
      return <CrossIcon />;
    case "in_progress":
      return <SpinnerIcon />;
    case "skipped":
      return <SkipIcon />;
    case "pending":
      return <DotIcon />;
  }
}
