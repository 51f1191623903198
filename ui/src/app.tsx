// The page: sidebar and the view of the current address.
import { render } from "preact";
import { IconButton } from "./components/icon_button.tsx";
import { Icon, MenuIcon } from "./components/icons.tsx";
import { ConversationDialogs } from "./components/shell/conversation_dialogs.tsx";
import { HelpDialog } from "./components/shell/help_dialog.tsx";
import { Palette } from "./components/shell/palette.tsx";
import { Sidebar } from "./components/shell/sidebar.tsx";
import { Toasts } from "./components/shell/toasts_view.tsx";
import { isSignedOut } from "./api/session.ts";
import { watchInbox } from "./state/inbox.ts";
import { route, type Route } from "./state/route.ts";
import { isDrawerOpen, isNarrow, isSidebarShown, toggleSidebar } from "./state/shell.ts";
import { watchShortcuts } from "./state/shortcuts.ts";
import "./state/theme.ts";
import { t } from "./texts.ts";
import { ChatView } from "./views/chat.tsx";
import { LazyView } from "./views/lazy_view.tsx";
import { LoginView } from "./views/login.tsx";

function App() {
  const { view, id } = route.value;
  const isShown = isNarrow.value ? isDrawerOpen.value : isSidebarShown.value;
  if (isSignedOut.value) return <LoginView />;
  return (
    <div class={`app ${isShown ? "sidebar-shown" : "sidebar-hidden"}`}>
      <a class="skip" href="#main">
        {t.skipToContent}
      </a>
      <Sidebar />
      {isNarrow.value && isShown && <div class="backdrop" onClick={toggleSidebar} />}
      <header class="topbar">
        <IconButton label={t.openMenu} expanded={isShown} onClick={toggleSidebar}>
          {isNarrow.value ? <MenuIcon /> : <Icon name="sidebar" />}
        </IconButton>
      </header>
      <main id="main" tabIndex={-1} inert={isNarrow.value && isShown}>
        <CurrentView view={view} id={id} />
      </main>
      <Palette />
      <HelpDialog />
      <ConversationDialogs />
      <Toasts />
    </div>
  );
}

function CurrentView({ view, id }: Route) {
  return view === "chat" ? <ChatView contextId={id} /> : <LazyView view={view} id={id} />;
}

watchInbox();
watchShortcuts();
render(<App />, document.getElementById("app")!);
