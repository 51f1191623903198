// Every view but the conversation; the page loads them when one of them is opened.
import type { Route } from "../state/route.ts";
import { AgentsView } from "./agents.tsx";
import { InboxView } from "./inbox.tsx";
import { KnowledgeView } from "./knowledge.tsx";
import { RunsView } from "./runs.tsx";
import { SettingsView } from "./settings.tsx";
import { SetupView } from "./setup.tsx";
import { SharedView } from "./shared.tsx";
import { SkillsView } from "./skills.tsx";
import { WorkflowsView } from "./workflows.tsx";

export function OtherView({ view, id }: Route) {
  switch (view) {
    case "chat":
      return null;
    case "inbox":
      return <InboxView id={id} />;
    case "agents":
      return <AgentsView id={id} />;
    case "workflows":
      return <WorkflowsView id={id} />;
    case "skills":
      return <SkillsView id={id} />;
    case "knowledge":
      return <KnowledgeView id={id} />;
    case "runs":
      return <RunsView />;
    case "settings":
      return <SettingsView />;
    case "setup":
      return <SetupView />;
    case "shared":
      return <SharedView key={id} token={id ?? ""} />;
  }
}
