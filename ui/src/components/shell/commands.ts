// What the command palette offers.
import { exportAs, findEntry, renamed, toDelete, toShare } from "../../state/conversation_actions.ts";
import type { ConversationEntry } from "../../state/conversations.ts";
import { isEnabled, toggleNotifications } from "../../state/notifications.ts";
import { navigate, pathOf, route, type View } from "../../state/route.ts";
import { isHelpOpen, toggleSidebar } from "../../state/shell.ts";
import { type Theme, theme } from "../../state/theme.ts";
import { t } from "../../texts.ts";
import type { IconName } from "../icons.tsx";
import { VIEW_ICONS, VIEWS } from "./sidebar.tsx";

export interface Command {
  key: string;
  group: keyof typeof t.commands;
  label: string;
  icon: IconName;
  run(): void;
}

export function listCommands(): Command[] {
  const action = (key: string, label: string, icon: IconName, run: () => void): Command => {
    return { key, group: "actions", label, icon, run };
  };
  const themes: [Theme, IconName][] = [["light", "sun"], ["dark", "moon"], ["system", "system"]];
  return [
    action("new", t.newConversation, "plus", () => navigate(pathOf("chat"))),
    ...currentConversationCommands(action),
    ...themes.map(([name, icon]) => action(name, t.themeSwitch(t.theme[name]), icon, () => (theme.value = name))),
    action("bell", isEnabled.value ? t.notifications.off : t.notifications.on, "bell", () => void toggleNotifications()),
    action("sidebar", t.toggleSidebar, "sidebar", toggleSidebar),
    action("help", t.shortcuts, "help", () => (isHelpOpen.value = true)),
    ...VIEWS.map(view => viewCommand(view as View)),
  ];
}

function currentConversationCommands(
  action: (key: string, label: string, icon: IconName, run: () => void) => Command,
): Command[] {
  const { view, id } = route.value;
  if (view !== "chat" || id === null) return [];
  return [
    action("rename", t.rename, "edit", () => (renamed.value = `header:${id}`)),
    action("share", t.share, "share", () => (toShare.value = findEntry(id))),
    action("markdown", t.exportMarkdown, "download", () => void exportAs("markdown", id)),
    action("json", t.exportJson, "download", () => void exportAs("json", id)),
    action("delete", t.remove, "trash", () => (toDelete.value = findEntry(id))),
  ];
}

function viewCommand(view: View): Command {
  return {
    key: `view-${view}`,
    group: "views",
    label: t.nav[view as keyof typeof t.nav],
    icon: VIEW_ICONS[view] ?? "chat",
    run: () => navigate(pathOf(view)),
  };
}

export function conversationCommand(entry: ConversationEntry): Command {
  return {
    key: entry.context_id,
    group: "conversations",
    label: entry.title,
    icon: "chat",
    run: () => navigate(pathOf("chat", entry.context_id)),
  };
}
