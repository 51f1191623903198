// The menu of a conversation, the same in the list and above its turns.
import { exportAs, renamed, toDelete, toShare } from "../../state/conversation_actions.ts";
import type { ConversationEntry } from "../../state/conversations.ts";
import { t } from "../../texts.ts";
import type { MenuItem } from "./menu.tsx";

export function conversationMenu(entry: ConversationEntry): MenuItem[] {
  return [
    { label: t.rename, icon: "edit", onChoose: () => (renamed.value = entry.context_id) },
    { label: t.share, icon: "share", onChoose: () => (toShare.value = entry) },
    { label: t.exportMarkdown, icon: "download", onChoose: () => void exportAs("markdown", entry.context_id) },
    { label: t.exportJson, icon: "download", onChoose: () => void exportAs("json", entry.context_id) },
    { label: t.remove, icon: "trash", isDangerous: true, onChoose: () => (toDelete.value = entry) },
  ];
}
