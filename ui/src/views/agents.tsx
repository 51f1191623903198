// Agents: where each one runs, how it is, and which tools it has.
import { Page } from "../components/page.tsx";
import { useResource } from "../state/resource.ts";
import { t } from "../texts.ts";

interface Component {
  status: string;
  message?: string;
  placement?: string;
  name?: string;
}

interface Readiness {
  status: string;
  components?: { [name: string]: Component };
}

const PREFIX = "agent ";

export function AgentsView() {
  const ready = useResource<Readiness>("/ready", 15);
  const tools = useResource<{ tools: { [agent: string]: string[] } }>("/tools");
  const components = Object.entries(ready.value?.components ?? {});
  const agents = components.filter(([name]) => name.startsWith(PREFIX));
  agents.sort(([, first], [, second]) => rank(first) - rank(second));
  return (
    <Page title={t.nav.agents} problem={ready.problem}>
      <ul class="cards">
        {agents.map(([name, agent]) => (
          <li class="card" key={name}>
            <h2>
              {name.slice(PREFIX.length)} <Status status={agent.status} />
            </h2>
            <p class="hint">{agent.placement}</p>
            {agent.message && <p>{agent.message}</p>}
            <ToolNames names={tools.value?.tools[name.slice(PREFIX.length)] ?? []} />
          </li>
        ))}
      </ul>
    </Page>
  );
}

function rank(agent: Component): number {
  return ["ready", "ok", "degraded", "unavailable", "unreachable", "not_configured"].indexOf(agent.status);
}

export function Status({ status }: { status: string }) {
  const isGood = status === "ready" || status === "ok";
  const kind = isGood ? "good" : status === "not_configured" ? "neutral" : "bad";
  return <span class={`status status-${kind}`}>{status.replaceAll("_", " ")}</span>;
}

function ToolNames({ names }: { names: string[] }) {
  if (names.length === 0) return null;
  return (
    <details>
      <summary>{t.toolCount(names.length)}</summary>
      <ul class="names">
        {names.map(name => (
          <li key={name}>
            <code>{name}</code>
          </li>
        ))}
      </ul>
    </details>
  );
}
