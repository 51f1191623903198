// Everything that waits for me, in all conversations; each opens the conversation that asks.
import { useEffect } from "preact/hooks";
import { Link } from "../components/link.tsx";
import { Page } from "../components/page.tsx";
import { loadInbox, problem, waiting } from "../state/inbox.ts";
import { pathOf } from "../state/route.ts";
import { t } from "../texts.ts";
import { formatMoment } from "../text/format.ts";

export function InboxView() {
  useEffect(() => void loadInbox(), []);
  return (
    <Page title={t.nav.inbox} problem={problem.value}>
      <ul class="cards">
        {waiting.value.map(entry => (
          <li class="card" key={entry.request_id}>
            <h2>
              <Link to={pathOf("chat", entry.context_id)}>{entry.title}</Link>
            </h2>
            <p class="hint">
              {entry.agent}
              {entry.expires_at !== null && ` · ${t.expires(formatMoment(entry.expires_at))}`}
            </p>
          </li>
        ))}
      </ul>
      {waiting.value.length === 0 && <p class="hint">{t.inboxEmpty}</p>}
    </Page>
  );
}
