// One turn: the question, what happened, and the answer.
import { useEffect, useState } from "preact/hooks";
import type { Span, Transcript } from "../events/transcript.ts";
import type { Turn } from "../state/turn.ts";
import { t } from "../texts.ts";
import { ConnectionLine } from "./connection_line.tsx";
import { Feedback } from "./feedback.tsx";
import { SpinnerIcon } from "./icons.tsx";
import { MarkdownView } from "./markdown_view.tsx";
import { PlanView } from "./plan_view.tsx";
import { Requests } from "./requests_view.tsx";
import { Sources } from "./sources.tsx";
import { Timeline } from "./timeline.tsx";

interface TurnProps {
  turn: Turn;
  onAsk(text: string): void;
}

export function TurnView({ turn, onAsk }: TurnProps) {
  const transcript = turn.transcript.value;
  const times = turn.times.value;
  const question = questionText(transcript) || turn.question;
  return (
    <article class="turn">
      <Question text={question} onAsk={onAsk} />
      <Notices transcript={transcript} />
      <PlanView transcript={transcript} times={times} />
      <Texts transcript={transcript} />
      <Requests turn={turn} />
      <Ending turn={turn} question={question} onAsk={onAsk} />
      <ConnectionLine turn={turn} />
      {transcript.citations.length > 0 && <Sources citations={transcript.citations} />}
      {transcript.trace_id !== null && (
        <footer class="turn-footer">
          <CopyAnswer transcript={transcript} />
          {turn.taskId !== null && <Feedback taskId={turn.taskId} />}
          <Timeline turn={turn} />
        </footer>
      )}
    </article>
  );
}

export function questionText(transcript: Transcript): string {
  return transcript.question.map(part => (part.type === "text" ? part.text : "")).join("\n").trim();
}

function Question({ text, onAsk }: { text: string; onAsk(text: string): void }) {
  const [draft, setDraft] = useState<string | null>(null);
  if (draft !== null) {
    const submit = () => {
      if (draft.trim()) onAsk(draft.trim());
      setDraft(null);
    };
    return (
      <div class="question editing">
        <textarea
          aria-label={t.editAndAsk}
          value={draft}
          onInput={event => setDraft(event.currentTarget.value)}
          rows={Math.min(8, draft.split("\n").length + 1)}
        />
        <div class="buttons">
          <button type="button" class="primary" onClick={submit}>
            {t.send}
          </button>
          <button type="button" onClick={() => setDraft(null)}>
            {t.cancel}
          </button>
        </div>
      </div>
    );
  }
  return (
    <div class="question">
      <span class="visually-hidden">{t.you}: </span>
      <p dir="auto">{text}</p>
      <button type="button" class="quiet edit" title={t.editAndAsk} onClick={() => setDraft(text)}>
        {t.edit}
      </button>
    </div>
  );
}

function Notices({ transcript }: { transcript: Transcript }) {
  return (
    <>
      {transcript.notices.map((notice, index) => (
        <p class="notice" key={index}>
          {notice.text}
        </p>
      ))}
    </>
  );
}

/** The supervisor's texts: narration quietly, the answer as what it is. */
function Texts({ transcript }: { transcript: Transcript }) {
  const spans = transcript.spans.filter(span => span.parent_call === null && span.text !== "");
  const isStreamed = spans.some(span => span.role === "answer" || span.text === transcript.answer);
  return (
    <div class="texts">
      {spans.map(span => (
        <SpanView key={span.message_id} span={span} />
      ))}
      {transcript.answer !== null && !isStreamed && (
        <div class="answer">
          <MarkdownView text={transcript.answer} isFinal />
        </div>
      )}
    </div>
  );
}

function SpanView({ span }: { span: Span }) {
  const isNarration = span.role === "narration";
  return (
    <div class={isNarration ? "narration" : "answer"}>
      <MarkdownView text={span.text} isFinal={span.role !== null} />
    </div>
  );
}

function Ending({ turn, question, onAsk }: { turn: Turn; question: string; onAsk(text: string): void }) {
  const transcript = turn.transcript.value;
  const error = turn.failure.value ?? transcript.error;
  if (error !== null) {
    return (
      <div class="problem" role="alert">
        <p>{error}</p>
        <Partial text={transcript.partial} />
        <button type="button" onClick={() => onAsk(question)}>
          {t.retry}
        </button>
      </div>
    );
  }
  if (transcript.state === "canceled") {
    return (
      <div class="stopped">
        <p>{t.stopped}</p>
        <Partial text={transcript.partial} />
      </div>
    );
  }
  if (transcript.state === "working" || transcript.state === "submitted") return <Progress turn={turn} />;
  return null;
}

function Partial({ text }: { text: string | null }) {
  if (text === null) return null;
  return (
    <>
      <p class="hint">{t.partial}</p>
      <MarkdownView text={text} isFinal />
    </>
  );
}

function Progress({ turn }: { turn: Turn }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const start = turn.times.value.get("run")?.start ?? now;
  return (
    <p class="progress">
      <SpinnerIcon /> {t.working(Math.max(0, Math.round((now - start) / 1000)))}
    </p>
  );
}

function CopyAnswer({ transcript }: { transcript: Transcript }) {
  const [isCopied, setCopied] = useState(false);
  const text = transcript.answer ?? transcript.partial;
  if (text === null) return null;
  const copy = () => {
    void navigator.clipboard.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <button type="button" class="quiet" onClick={copy}>
      {isCopied ? t.copied : t.copy}
    </button>
  );
}
