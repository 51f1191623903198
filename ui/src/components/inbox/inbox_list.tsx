// The list of the inbox: who asks what, since when and until when.
import type { WaitingRequest } from "../../state/inbox.ts";
import { pathOf } from "../../state/route.ts";
import { t } from "../../texts.ts";
import { CheckIcon } from "../icons.tsx";
import { Link } from "../link.tsx";
import { Moment } from "../parts/moment.tsx";
import { ListIcon, ShieldIcon } from "../parts/view_icons.tsx";

interface InboxListProps {
  rows: WaitingRequest[];
  answered: WaitingRequest[];
  current: string | null;
}

export function InboxList({ rows, answered, current }: InboxListProps) {
  return (
    <ul class="rows split-list" onKeyDown={moveFocus} aria-label={t.nav.inbox}>
      {rows.map(row => {
        const isAnswered = answered.some(other => other.request_id === row.request_id);
        const isCurrent = row.request_id === current;
        return (
          <li key={row.request_id}>
            <Link to={pathOf("inbox", row.request_id)} class="row row-link" current={isCurrent}>
              <span class="row-icon">{iconOf(row, isAnswered)}</span>
              <span class="row-main">
                <span class="row-title" dir="auto">
                  {row.title}
                </span>
                <span class="row-hint">
                  <span>{row.agent}</span>
                  {isAnswered && <span>{t.resolved.answered}</span>}
                  {!isAnswered && row.waiting_since !== null && <Moment at={row.waiting_since} />}
                </span>
              </span>
            </Link>
          </li>
        );
      })}
    </ul>
  );
}

function iconOf(row: WaitingRequest, isAnswered: boolean) {
  if (isAnswered) return <CheckIcon />;
  return row.asked.type === "approval" ? <ShieldIcon /> : <ListIcon />;
}

/** Arrow keys go through the list. */
function moveFocus(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined) return;
  const links = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("a")];
  const next = links[links.indexOf(document.activeElement as HTMLElement) + step];
  if (next === undefined) return;
  event.preventDefault();
  next.focus();
}
