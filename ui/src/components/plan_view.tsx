// The plan: steps with their true states, and under each the agents and tools that worked on it.
import type { PlanStep } from "../generated/events.ts";
import type { ToolCall, Transcript } from "../events/transcript.ts";
import type { TimeSpan } from "../state/turn.ts";
import { t } from "../texts.ts";
import { CheckIcon, CrossIcon, DotIcon, SkipIcon, SpinnerIcon } from "./icons.tsx";
import { CallList } from "./call_view.tsx";

type Times = ReadonlyMap<string, TimeSpan>;

export function PlanView({ transcript, times }: { transcript: Transcript; times: Times }) {
  const { plan, calls } = transcript;
  const topCalls = calls.filter(call => call.parent_call === null);
  if (plan === null || plan.steps.length === 0) {
    if (topCalls.length === 0) return null;
    return (
      <section class="activity" aria-label={t.activity}>
        <CallList calls={topCalls} transcript={transcript} times={times} />
      </section>
    );
  }
  const stepIds = new Set(plan.steps.map(step => step.step_id));
  const others = topCalls.filter(call => call.step_id === null || !stepIds.has(call.step_id));
  return (
    <section class="activity" aria-label={t.plan}>
      <h3 class="plan-title">{plan.title || t.plan}</h3>
      <ol class="plan">
        {plan.steps.map(step => (
          <Step
            key={step.step_id}
            step={step}
            calls={topCalls.filter(call => call.step_id === step.step_id)}
            transcript={transcript}
            times={times}
          />
        ))}
      </ol>
      {others.length > 0 && <CallList calls={others} transcript={transcript} times={times} />}
    </section>
  );
}

interface StepProps {
  step: PlanStep;
  calls: ToolCall[];
  transcript: Transcript;
  times: Times;
}

function Step({ step, calls, transcript, times }: StepProps) {
  return (
    <li class={`step step-${step.status}`}>
      <div class="step-line">
        <StatusIcon status={step.status} />
        <span class="tag">{step.agent}</span>
        <span dir="auto">{step.title}</span>
        <span class="visually-hidden">({t.step[step.status]})</span>
      </div>
      {calls.length > 0 && <CallList calls={calls} transcript={transcript} times={times} />}
    </li>
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
