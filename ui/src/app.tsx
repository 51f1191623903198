// The page: sidebar and the view of the current address.
import { render } from "preact";
import { useState } from "preact/hooks";
import { MenuIcon } from "./components/icons.tsx";
import { Sidebar } from "./components/sidebar.tsx";
import { isSignedOut } from "./api/session.ts";
import { watchInbox } from "./state/inbox.ts";
import { route, type Route } from "./state/route.ts";
import "./state/theme.ts";
import { t } from "./texts.ts";
import { ChatView } from "./views/chat.tsx";
import { LazyView } from "./views/lazy_view.tsx";
import { LoginView } from "./views/login.tsx";

function App() {
  const [isMenuOpen, setMenuOpen] = useState(false);
  const { view, id } = route.value;
  if (isSignedOut.value) return <LoginView />;
  return (
    <div class={`app ${isMenuOpen ? "menu-open" : ""}`}>
      <a class="skip" href="#main">
        {t.skipToContent}
      </a>
      <header class="topbar">
        <button type="button" class="quiet" aria-expanded={isMenuOpen} onClick={() => setMenuOpen(!isMenuOpen)}>
          <MenuIcon />
          <span class="visually-hidden">{t.nav.chat}</span>
        </button>
        <span class="brand">{t.product}</span>
      </header>
      <Sidebar onNavigate={() => setMenuOpen(false)} />
      <main id="main" tabIndex={-1}>
        <CurrentView view={view} id={id} />
      </main>
    </div>
  );
}

function CurrentView({ view, id }: Route) {
  return view === "chat" ? <ChatView contextId={id} /> : <LazyView view={view} id={id} />;
}

watchInbox();
render(<App />, document.getElementById("app")!);
