// One request of the inbox: the card of the conversation, and what became of it.
import { useEffect, useState } from "preact/hooks";
import type { JsonValue } from "../../generated/events.ts";
import { loadInbox, type WaitingRequest } from "../../state/inbox.ts";
import { pathOf } from "../../state/route.ts";
import { Turn } from "../../state/turn.ts";
import { t } from "../../texts.ts";
import { ApprovalCard } from "../approval_card.tsx";
import { FormCard } from "../form_card.tsx";
import { Link } from "../link.tsx";
import { Moment } from "../parts/moment.tsx";
import { ProblemNote } from "../parts/states.tsx";
import { StatusBadge } from "../parts/status_badge.tsx";
import { BackIcon, ClockIcon, LinkIcon } from "../parts/view_icons.tsx";

interface PanelProps {
  row: WaitingRequest;
  isChosen: boolean; // by the reader, not as the first of the list
  onAnswered(): void;
}

export function RequestPanel({ row, isChosen, onAnswered }: PanelProps) {
  const [turn] = useState(() => openTurn(row));
  useEffect(() => () => turn.close(), [turn]);
  const transcript = turn.transcript.value;
  const resolved = transcript.resolved.find(other => other.request_id === row.request_id);
  useEffect(() => {
    if (resolved === undefined) return;
    onAnswered();
    void loadInbox();
  }, [resolved?.request_id]);
  const answer = (values: { [name: string]: JsonValue }) => turn.answer({ [row.request_id]: values });
  const failure = turn.failure.value ?? turn.note.value;
  const wrong = transcript.wrong[row.request_id] ?? {};
  return (
    <section class="split-detail" aria-label={row.title}>
      <div class="panel-head">
        <Link to={pathOf("inbox")} class="button small split-back">
          <BackIcon /> {t.nav.inbox}
        </Link>
        <p class="facts">
          <span class="tag">{row.agent}</span>
          {row.waiting_since !== null && (
            <span>
              {t.views.inbox.asked} <Moment at={row.waiting_since} />
            </span>
          )}
          {row.expires_at !== null && (
            <span class="fact-warn">
              <ClockIcon /> {t.views.inbox.expires} <Moment at={row.expires_at} />
            </span>
          )}
        </p>
        <Link to={pathOf("chat", row.context_id)} class="button small">
          <LinkIcon /> {t.views.openConversation}
        </Link>
      </div>
      {failure !== null && <ProblemNote text={failure} />}
      {resolved !== undefined ? (
        <div class="card" role="status">
          <StatusBadge tone={resolved.resolution === "rejected" ? "neutral" : "good"}>
            {t.resolved[resolved.resolution]}
          </StatusBadge>
          <p>{t.views.inbox.goesOn}</p>
          <Link to={pathOf("chat", row.context_id)}>{t.views.inbox.follow}</Link>
        </div>
      ) : row.asked.type === "form" ? (
        <FormCard key={failure ?? ""} form={row.asked} wrong={wrong} takesFocus={isChosen} onAnswer={answer} />
      ) : (
        <ApprovalCard key={failure ?? ""} agent={row.agent} approval={row.asked} wrong={wrong} onAnswer={answer} />
      )}
    </section>
  );
}

function openTurn(row: WaitingRequest): Turn {
  const turn = new Turn(row.context_id);
  turn.taskId = row.task_id;
  return turn;
}
