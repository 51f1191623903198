// The sidebar: a new conversation, the search, the list, and the other views.
import { useEffect } from "preact/hooks";
import { waiting } from "../../state/inbox.ts";
import { pathOf, route, type View } from "../../state/route.ts";
import { isDrawerOpen, isNarrow, isPaletteOpen, isSidebarShown, toggleSidebar } from "../../state/shell.ts";
import { MODIFIER } from "../../state/shortcuts.ts";
import { t } from "../../texts.ts";
import { IconButton } from "../icon_button.tsx";
import { Icon, type IconName, PlusIcon } from "../icons.tsx";
import { Link } from "../link.tsx";
import { ConversationList } from "./conversation_list.tsx";
import { SidebarFooter } from "./sidebar_footer.tsx";

export const VIEW_ICONS: { [view in View]?: IconName } = {
  inbox: "inbox",
  agents: "agents",
  workflows: "workflows",
  skills: "skills",
  knowledge: "knowledge",
  runs: "runs",
  settings: "settings",
};
export const VIEWS = Object.keys(VIEW_ICONS) as (keyof typeof t.nav)[];

export function Sidebar() {
  const isShown = isNarrow.value ? isDrawerOpen.value : isSidebarShown.value;
  useEffect(() => {
    if (!isDrawerOpen.value) return undefined;
    const close = (event: KeyboardEvent) => {
      if (event.key === "Escape") isDrawerOpen.value = false;
    };
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, [isDrawerOpen.value]);
  const closeDrawer = (event: MouseEvent) => {
    if (event.target instanceof Element && event.target.closest("a") !== null) isDrawerOpen.value = false;
  };
  return (
    <nav class="sidebar" aria-label={t.navigation} inert={!isShown} onClick={closeDrawer}>
      <div class="sidebar-head">
        <img src="/assets/icon.svg" alt="" width="22" height="22" />
        <span class="brand">{t.product}</span>
        <IconButton label={t.toggleSidebar} onClick={toggleSidebar}>
          <Icon name="sidebar" />
        </IconButton>
      </div>
      <div class="sidebar-actions">
        <Link to={pathOf("chat")} class="entry new" current={route.value.view === "chat" && route.value.id === null}>
          <PlusIcon /> {t.newConversation}
        </Link>
        <button type="button" class="entry" onClick={() => (isPaletteOpen.value = true)}>
          <Icon name="search" /> {t.search}
          <kbd aria-hidden="true">{MODIFIER} K</kbd>
        </button>
        <ViewLink view="inbox" />
      </div>
      <ConversationList />
      <div class="sidebar-views">
        {VIEWS.filter(view => view !== "inbox").map(view => (
          <ViewLink key={view} view={view as View} />
        ))}
      </div>
      <SidebarFooter />
    </nav>
  );
}

function ViewLink({ view }: { view: View }) {
  const count = view === "inbox" ? waiting.value.length : 0;
  return (
    <Link to={pathOf(view)} class="entry" current={route.value.view === view}>
      <Icon name={VIEW_ICONS[view] ?? "chat"} />
      {t.nav[view as keyof typeof t.nav]}
      {count > 0 && <span class="count">{count}</span>}
    </Link>
  );
}
