// The conversations by day, with a search.
import { useEffect, useRef } from "preact/hooks";
import { renamed } from "../../state/conversation_actions.ts";
import { type ConversationEntry, entries, loadConversations, nextToken, problem, searchText } from "../../state/conversations.ts";
import { pathOf, route } from "../../state/route.ts";
import { type DayGroup, groupOfDay } from "../../text/format.ts";
import { t } from "../../texts.ts";
import { Link } from "../link.tsx";
import { conversationMenu } from "./conversation_menu.ts";
import { Menu } from "./menu.tsx";
import { TitleEditor } from "./title_editor.tsx";

const PAUSE = 200; // milliseconds after a key, before the search
const REFRESH = 30_000; // milliseconds between two looks for what other tabs and people began

export function ConversationList() {
  const timer = useRef(0);
  useEffect(() => {
    void loadConversations();
    const refresh = setInterval(() => {
      if (document.visibilityState === "visible" && nextToken.value === null) void loadConversations();
    }, REFRESH);
    return () => clearInterval(refresh);
  }, []);
  const search = (text: string) => {
    searchText.value = text;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void loadConversations(), PAUSE);
  };
  return (
    <div class="conversations">
      <input
        type="search"
        aria-label={t.searchConversations}
        placeholder={t.searchConversations}
        value={searchText.value}
        onInput={event => search(event.currentTarget.value)}
      />
      <div class="conversation-groups">
        {groupByDay(entries.value).map(([group, members]) => (
          <section key={group} aria-label={t[group]}>
            <h2>{t[group]}</h2>
            <ul>
              {members.map(entry => (
                <ConversationItem key={entry.context_id} entry={entry} />
              ))}
            </ul>
          </section>
        ))}
        {problem.value !== null && <p class="hint list-note">{problem.value}</p>}
        {problem.value === null && entries.value.length === 0 && (
          <p class="hint list-note">{searchText.value ? t.noMatches : t.noConversations}</p>
        )}
        {nextToken.value !== null && (
          <button type="button" class="quiet" onClick={() => void loadConversations(true)}>
            {t.loadMore}
          </button>
        )}
      </div>
    </div>
  );
}

function ConversationItem({ entry }: { entry: ConversationEntry }) {
  const isCurrent = route.value.view === "chat" && route.value.id === entry.context_id;
  if (renamed.value === entry.context_id) {
    return (
      <li>
        <TitleEditor contextId={entry.context_id} title={entry.title} />
      </li>
    );
  }
  return (
    <li class="conversation">
      <Link to={pathOf("chat", entry.context_id)} class="entry" current={isCurrent}>
        <span class="entry-title" dir="auto">
          {entry.title}
        </span>
        <StateDot entry={entry} />
      </Link>
      <Menu label={t.actionsOf(entry.title)} items={conversationMenu(entry)} />
    </li>
  );
}

/** Only what needs attention is marked. */
function StateDot({ entry }: { entry: ConversationEntry }) {
  if (entry.state === "completed" || entry.state === "canceled") return null;
  return (
    <span class={`state-dot state-${entry.state}`} title={t.state[entry.state]}>
      <span class="visually-hidden">{t.state[entry.state]}</span>
    </span>
  );
}

function groupByDay(list: ConversationEntry[]): [DayGroup, ConversationEntry[]][] {
  const now = new Date();
  const groups = new Map<DayGroup, ConversationEntry[]>();
  for (const entry of list) {
    const group = groupOfDay(entry.updated, now);
    groups.set(group, [...(groups.get(group) ?? []), entry]);
  }
  return [...groups];
}
