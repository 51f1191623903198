// Above the turns: the title of the conversation, which can be changed in its place, and what can be done with it.
import { findEntry, renamed } from "../../state/conversation_actions.ts";
import { toShare } from "../../state/conversation_actions.ts";
import { t } from "../../texts.ts";
import { IconButton } from "../icon_button.tsx";
import { Icon } from "../icons.tsx";
import { conversationMenu } from "../shell/conversation_menu.ts";
import { Menu } from "../shell/menu.tsx";
import { TitleEditor } from "../shell/title_editor.tsx";

/** Names the conversation that is renamed here rather than in the list. */
const here = (contextId: string) => `header:${contextId}`;

export function ChatHeader({ contextId }: { contextId: string }) {
  const entry = findEntry(contextId);
  const items = conversationMenu(entry).map(item =>
    item.label === t.rename ? { ...item, onChoose: () => (renamed.value = here(contextId)) } : item,
  );
  return (
    <header class="chat-header">
      {renamed.value === here(contextId) ? (
        <TitleEditor contextId={contextId} title={entry.title} />
      ) : (
        <h1 dir="auto">
          <button type="button" class="title" title={t.rename} onClick={() => (renamed.value = here(contextId))}>
            {entry.title}
          </button>
        </h1>
      )}
      <IconButton label={t.share} onClick={() => (toShare.value = entry)}>
        <Icon name="share" />
      </IconButton>
      <Menu label={t.more} items={items} />
    </header>
  );
}
