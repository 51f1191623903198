// The sidebar: a new conversation, the search, the list, and the other views.
import { useEffect } from "preact/hooks";
import { entries, loadConversations, nextToken, searchText } from "../state/conversations.ts";
import { waiting } from "../state/inbox.ts";
import { pathOf, route } from "../state/route.ts";
import { t } from "../texts.ts";
import { formatDay } from "../text/format.ts";
import { PlusIcon } from "./icons.tsx";
import { Link } from "./link.tsx";

const VIEWS = ["inbox", "agents", "workflows", "skills", "knowledge", "runs", "settings"] as const;

export function Sidebar({ onNavigate }: { onNavigate(): void }) {
  const { view, id } = route.value;
  useEffect(() => void loadConversations(), []);
  const search = (text: string) => {
    searchText.value = text;
    void loadConversations();
  };
  return (
    <nav class="sidebar" aria-label={t.nav.chat} onClick={onNavigate}>
      <Link to={pathOf("chat")} class="button new">
        <PlusIcon /> {t.newConversation}
      </Link>
      <input
        type="search"
        aria-label={t.searchConversations}
        placeholder={t.searchConversations}
        value={searchText.value}
        onClick={event => event.stopPropagation()}
        onInput={event => search(event.currentTarget.value)}
      />
      <ul class="conversations">
        {entries.value.map(entry => (
          <li key={entry.context_id}>
            <Link
              to={pathOf("chat", entry.context_id)}
              class="entry"
              current={view === "chat" && id === entry.context_id}
            >
              <span class="entry-title" dir="auto">
                {entry.title}
              </span>
              <span class="hint">{formatDay(entry.updated)}</span>
            </Link>
          </li>
        ))}
        {entries.value.length === 0 && <li class="hint">{searchText.value ? t.noMatches : t.noConversations}</li>}
        {nextToken.value !== null && (
          <li>
            <button type="button" class="quiet" onClick={() => void loadConversations(true)}>
              {t.loadMore}
            </button>
          </li>
        )}
      </ul>
      <ul class="views">
        {VIEWS.map(name => (
          <li key={name}>
            <Link to={pathOf(name)} class="entry" current={view === name}>
              {t.nav[name]}
              {name === "inbox" && waiting.value.length > 0 && <span class="count">{waiting.value.length}</span>}
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}
