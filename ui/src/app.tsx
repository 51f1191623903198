// The page: sidebar and the view of the current address.
import { render } from "preact";
import { useState } from "preact/hooks";
import { MenuIcon } from "./components/icons.tsx";
import { Sidebar } from "./components/sidebar.tsx";
import { watchInbox } from "./state/inbox.ts";
import { route, type Route } from "./state/route.ts";
import "./state/theme.ts";
import { t } from "./texts.ts";
import { AgentsView } from "./views/agents.tsx";
import { ChatView } from "./views/chat.tsx";
import { InboxView } from "./views/inbox.tsx";
import { KnowledgeView } from "./views/knowledge.tsx";
import { RunsView } from "./views/runs.tsx";
import { SettingsView } from "./views/settings.tsx";
import { SkillsView } from "./views/skills.tsx";
import { WorkflowsView } from "./views/workflows.tsx";

function App() {
  const [isMenuOpen, setMenuOpen] = useState(false);
  const { view, id } = route.value;
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
  switch (view) {
    case "chat":
      return <ChatView contextId={id} />;
    case "inbox":
      return <InboxView />;
    case "agents":
      return <AgentsView />;
    case "workflows":
      return <WorkflowsView />;
    case "skills":
      return <SkillsView />;
    case "knowledge":
      return <KnowledgeView />;
    case "runs":
      return <RunsView />;
    case "settings":
      return <SettingsView />;
  }
}

watchInbox();
render(<App />, document.getElementById("app")!);
