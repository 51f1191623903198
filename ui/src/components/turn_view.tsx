// One turn: the question, what happened, and the answer.
import { isNarration } from "../events/activity.ts";
import { questionText } from "../events/question.ts";
import { hasEnded, type Span, type Transcript } from "../events/transcript.ts";
import { announce } from "../state/announcements.ts";
import type { Turn } from "../state/turn.ts";
import { t } from "../texts.ts";
import { ActivityView } from "./chat/activity_view.tsx";
import { ConnectionLine } from "./chat/connection_line.tsx";
import { Ending } from "./chat/ending.tsx";
import { Feedback } from "./chat/feedback.tsx";
import { Notices } from "./chat/notices.tsx";
import { Question } from "./chat/question.tsx";
import { Sources } from "./chat/sources.tsx";
import { CopyButton } from "./copy_button.tsx";
import { MarkdownView } from "./markdown_view.tsx";
import { Requests, ResolvedRequests } from "./requests_view.tsx";

export { questionText } from "../events/question.ts";

interface TurnProps {
  turn: Turn;
  /** Missing where the conversation can only be read. */
  onAsk?: (text: string) => void;
  onRetry?: () => void;
  onDrop?: () => void;
}

export function TurnView({ turn, onAsk, onRetry, onDrop }: TurnProps) {
  const transcript = turn.transcript.value;
  const question = questionText(transcript) || turn.question;
  return (
    <>
      <Question text={question} onAsk={onAsk} />
      <Notices transcript={transcript} />
      <ActivityView transcript={transcript} times={turn.times.value} id={turn.key} />
      <ResolvedRequests transcript={transcript} />
      <Answer transcript={transcript} />
      <Requests turn={turn} isReadOnly={onAsk === undefined} onDrop={onDrop} />
      <Ending turn={turn} onRetry={onRetry} />
      <ConnectionLine turn={turn} />
      {transcript.citations.length > 0 && <Sources citations={transcript.citations} />}
      {hasEnded(transcript) && <TurnFooter turn={turn} transcript={transcript} canRate={onAsk !== undefined} />}
    </>
  );
}

/** The answer: as it is written, and in its place the whole of it when it is there. */
function Answer({ transcript }: { transcript: Transcript }) {
  const span = transcript.spans.findLast(isAnswer);
  const text = transcript.answer ?? span?.text ?? "";
  const isFinal = transcript.answer !== null || hasEnded(transcript);
  if (text.trim() === "" || (transcript.answer === null && isFinal && transcript.partial !== null)) return null;
  return (
    <div class="answer">
      <span class="visually-hidden">{t.product}: </span>
      <MarkdownView text={text} isFinal={isFinal} citations={transcript.citations} onBlock={announce} />
    </div>
  );
}

function isAnswer(span: Span): boolean {
  return span.parent_call === null && span.text.trim() !== "" && !isNarration(span);
}

function TurnFooter({ turn, transcript, canRate }: { turn: Turn; transcript: Transcript; canRate: boolean }) {
  const text = transcript.answer ?? transcript.partial;
  return (
    <footer class="turn-footer">
      {text !== null && <CopyButton text={text} label={t.copyAnswer} />}
      {canRate && turn.taskId !== null && <Feedback taskId={turn.taskId} />}
    </footer>
  );
}
