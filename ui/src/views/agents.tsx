// Agents: where each one runs, how it is, what it lacks, and which tools it has.
import { useEffect, useState } from "preact/hooks";
import { AgentRow } from "../components/agents/agent_row.tsx";
import { type Agent, type AgentGroup, countGroups, filterAgents, GROUPS } from "../components/agents/agents.ts";
import { ChoiceBar } from "../components/parts/choice_bar.tsx";
import { SearchBox } from "../components/parts/search_box.tsx";
import { Empty, LoadingRows } from "../components/parts/states.tsx";
import { View } from "../components/parts/view.tsx";
import { AgentIcon, RefreshIcon } from "../components/parts/view_icons.tsx";
import { useResource } from "../state/resource.ts";
import { t } from "../texts.ts";

const SECONDS = 15;

export function AgentsView({ id }: { id: string | null }) {
  const [words, setWords] = useState("");
  const [group, setGroup] = useState<AgentGroup>("all");
  const { value, problem, isLoading, reload } = useResource<{ agents: Agent[] }>("/v1/agents", SECONDS);
  useEffect(() => {
    // Somebody comes back from the page of an authorization server.
    window.addEventListener("focus", reload);
    return () => window.removeEventListener("focus", reload);
  });
  const agents = value?.agents ?? [];
  const shown = filterAgents(agents, group, words);
  const counts = countGroups(agents);
  const choices = GROUPS.map(name => ({ value: name, label: t.views.agents.groups[name], count: counts[name] }));
  return (
    <View
      title={t.nav.agents}
      hint={t.views.agents.hint}
      problem={problem}
      onRetry={reload}
      actions={
        <button type="button" class="small" disabled={isLoading} onClick={reload}>
          <RefreshIcon /> {t.views.refresh}
        </button>
      }
    >
      <div class="toolbar">
        <ChoiceBar label={t.stateLabel} choices={choices} value={group} onChoose={setGroup} />
        <SearchBox label={t.views.agents.search} value={words} onInput={setWords} />
      </div>
      {value === null && problem === null && <LoadingRows count={6} />}
      {value !== null && shown.length === 0 && <Empty icon={<AgentIcon />} title={t.noMatches} />}
      {shown.length > 0 && (
        <ul class="rows" aria-label={t.nav.agents}>
          {shown.map(agent => (
            <AgentRow key={agent.name} agent={agent} isOpen={agent.name === id} onChanged={reload} />
          ))}
        </ul>
      )}
    </View>
  );
}
