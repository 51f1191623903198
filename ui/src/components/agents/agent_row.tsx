// One agent: a line, and on demand what it lacks and its tools.
import { useState } from "preact/hooks";
import { t } from "../../texts.ts";
import { CopyCommand } from "../parts/copy_command.tsx";
import { StatusBadge } from "../parts/status_badge.tsx";
import { ChevronIcon } from "../parts/view_icons.tsx";
import { AgentLogins } from "./agent_logins.tsx";
import { type Agent, type AgentTool, envLines, needsSignIn, toneOf } from "./agents.ts";

export function AgentRow({ agent, isOpen, onChanged }: { agent: Agent; isOpen: boolean; onChanged(): void }) {
  const [isShown, setShown] = useState(isOpen);
  const texts = t.views.agents;
  return (
    <li>
      <details class="row-details" open={isOpen} onToggle={event => setShown(event.currentTarget.open)}>
        <summary class="row">
          <ChevronIcon />
          <span class="row-main">
            <span class="row-title">{agent.title}</span>
            <span class="row-text">{agent.description}</span>
          </span>
          <span class="row-side">
            {agent.tools.length > 0 && <span class="row-fact">{t.toolCount(agent.tools.length)}</span>}
            {agent.status === "ready" && needsSignIn(agent) && <span class="tag tag-warn">{texts.needsSignIn}</span>}
            {agent.placement !== "disabled" && <span class="tag">{texts.placement[agent.placement]}</span>}
            <StatusBadge tone={toneOf(agent)}>{texts.status[agent.status] ?? agent.status.replaceAll("_", " ")}</StatusBadge>
          </span>
        </summary>
        {isShown && <AgentDetails agent={agent} onChanged={onChanged} />}
      </details>
    </li>
  );
}

function AgentDetails({ agent, onChanged }: { agent: Agent; onChanged(): void }) {
  const texts = t.views.agents;
  return (
    <div class="row-body">
      <p>{agent.description}</p>
      {agent.message && agent.missing_variables.length === 0 && <p class="note note-plain">{agent.message}</p>}
      {agent.missing_variables.length > 0 && (
        <section>
          <h3>{texts.missing(agent.missing_variables.length)}</h3>
          <p class="hint">{texts.missingHint}</p>
          <CopyCommand text={envLines(agent)} />
          {agent.missing_variables.some(names => names.includes("|")) && (
            <p class="hint">{agent.missing_variables.filter(names => names.includes("|")).map(texts.oneOf).join(" ")}</p>
          )}
        </section>
      )}
      {agent.logins.length > 0 && agent.missing_variables.length === 0 && <AgentLogins agent={agent} onChanged={onChanged} />}
      <h3>{texts.tools}</h3>
      {agent.tools.length > 0 ? (
        <ul class="tools">
          {agent.tools.map(tool => (
            <ToolItem key={tool.name} tool={tool} />
          ))}
        </ul>
      ) : (
        <p class="hint">{agent.tools_known ? texts.noTools : texts.toolsUnknown}</p>
      )}
    </div>
  );
}

function ToolItem({ tool }: { tool: AgentTool }) {
  const texts = t.views.agents;
  return (
    <li class="tool">
      <div class="tool-head">
        <code>{tool.name}</code>
        {tool.read_only === true && <span class="tag">{texts.readOnly}</span>}
        {tool.needs_approval === true && <span class="tag tag-warn">{texts.asksFirst}</span>}
      </div>
      {tool.description && <p>{tool.description}</p>}
    </li>
  );
}
