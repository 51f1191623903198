// A turn of a shared conversation: what was asked, done and answered, and nothing to click but what opens.
import type { Turn } from "../../state/turn.ts";
import { t } from "../../texts.ts";
import { MarkdownView } from "../markdown_view.tsx";
import { PlanView } from "../plan_view.tsx";
import { Sources } from "../sources.tsx";

export function SharedTurn({ turn }: { turn: Turn }) {
  const transcript = turn.transcript.value;
  const question = transcript.question.map(part => (part.type === "text" ? part.text : "")).join("\n").trim();
  const spans = transcript.spans.filter(span => span.parent_call === null && span.text !== "");
  const isStreamed = spans.some(span => span.role === "answer" || span.text === transcript.answer);
  const rest = isStreamed ? null : (transcript.answer ?? transcript.partial);
  return (
    <article class="turn">
      {question && (
        <div class="question">
          <span class="visually-hidden">{t.views.shared.asked}: </span>
          <p dir="auto">{question}</p>
        </div>
      )}
      <PlanView transcript={transcript} times={turn.times.value} />
      {spans.map(span => (
        <div key={span.message_id} class={span.role === "narration" ? "narration" : "answer"}>
          <MarkdownView text={span.text} isFinal />
        </div>
      ))}
      {rest !== null && (
        <div class="answer">
          <MarkdownView text={rest} isFinal />
        </div>
      )}
      {transcript.error !== null && <p class="problem">{transcript.error}</p>}
      {transcript.state === "canceled" && <p class="stopped">{t.stopped}</p>}
      {transcript.citations.length > 0 && <Sources citations={transcript.citations} />}
    </article>
  );
}
