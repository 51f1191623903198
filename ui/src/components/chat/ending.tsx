// How a turn stands when there is no answer: it works, it failed, it was stopped.
import type { ComponentChildren } from "preact";
import type { Transcript } from "../../events/transcript.ts";
import type { Turn } from "../../state/turn.ts";
import { t } from "../../texts.ts";
import { Icon } from "../icons.tsx";
import { MarkdownView } from "../markdown_view.tsx";

export function Ending({ turn, onRetry }: { turn: Turn; onRetry: (() => void) | undefined }) {
  const transcript = turn.transcript.value;
  if (turn.failure.value !== null) {
    return <Problem title={t.sendFailed} message={turn.failure.value} hint="" onRetry={onRetry} />;
  }
  switch (transcript.state) {
    case "failed":
      return (
        <>
          <Partial text={transcript.partial} />
          <Problem
            title={t.failedTitle}
            message={transcript.error ?? ""}
            hint={transcript.retryable ? "" : t.failedFinal}
            onRetry={onRetry}
          />
        </>
      );
    case "canceled":
      return (
        <>
          <Partial text={transcript.partial} />
          <p class="stopped">
            <Icon name="skip" /> {t.stopped}
          </p>
        </>
      );
    case "working":
    case "submitted":
      return <Waiting transcript={transcript} />;
    case "completed":
    case "input-required":
      return null;
  }
}

interface ProblemProps {
  title: string;
  message: string;
  hint: string;
  onRetry: (() => void) | undefined;
  children?: ComponentChildren;
}

function Problem({ title, message, hint, onRetry }: ProblemProps) {
  return (
    <div class="problem turn-problem" role="alert">
      <Icon name="alert" />
      <div>
        <strong>{title}</strong>
        <p dir="auto">{message}</p>
        {hint && <p class="hint">{hint}</p>}
      </div>
      {onRetry !== undefined && (
        <button type="button" onClick={onRetry}>
          <Icon name="retry" /> {t.retry}
        </button>
      )}
    </div>
  );
}

function Partial({ text }: { text: string | null }) {
  if (text === null || text.trim() === "") return null;
  return (
    <div class="answer partial">
      <p class="hint">{t.partial}</p>
      <MarkdownView text={text} isFinal />
    </div>
  );
}

/** Until the first sign of work there are three dots. */
function Waiting({ transcript }: { transcript: Transcript }) {
  if (transcript.calls.length > 0 || transcript.plan !== null) return null;
  if (transcript.spans.some(span => span.text !== "")) return null;
  return (
    <p class="dots" aria-label={t.thinking} role="img">
      <span />
      <span />
      <span />
    </p>
  );
}
