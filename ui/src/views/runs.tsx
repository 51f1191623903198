// Runs: all of mine, by state, agent and words; each opens at its place in the conversation.
import { useEffect, useState } from "preact/hooks";
import { describeError, get } from "../api/rest.ts";
import { Empty, LoadingRows, ProblemNote } from "../components/parts/states.tsx";
import { SearchBox } from "../components/parts/search_box.tsx";
import { View } from "../components/parts/view.tsx";
import { ListIcon } from "../components/parts/view_icons.tsx";
import { RunTable } from "../components/runs/run_table.tsx";
import { mergeRuns, type Run, type RunFilter, type RunPage, runsPath, STATES } from "../components/runs/runs.ts";
import type { TranscriptState } from "../events/transcript.ts";
import { useResource } from "../state/resource.ts";
import { t } from "../texts.ts";

const SECONDS = 10;
const TYPING = 250; // milliseconds of quiet before a search is sent

export function RunsView() {
  const [filter, setFilter] = useState<RunFilter>({ state: "", agent: "", query: "" });
  const [words, setWords] = useState("");
  const agents = useResource<{ agents: { name: string; title: string }[] }>("/v1/agents");
  useEffect(() => {
    if (words === filter.query) return undefined;
    const timer = setTimeout(() => setFilter({ ...filter, query: words }), TYPING);
    return () => clearTimeout(timer);
  }, [words, filter]);
  return (
    <View title={t.nav.runs} hint={t.views.runs.hint} isWide>
      <div class="toolbar">
        <label class="filter">
          <span>{t.stateLabel}</span>
          <select
            value={filter.state}
            onChange={event => setFilter({ ...filter, state: event.currentTarget.value as TranscriptState | "" })}
          >
            <option value="">{t.allStates}</option>
            {STATES.map(name => (
              <option key={name} value={name}>
                {t.state[name]}
              </option>
            ))}
          </select>
        </label>
        <label class="filter">
          <span>{t.views.runs.agent}</span>
          <select value={filter.agent} onChange={event => setFilter({ ...filter, agent: event.currentTarget.value })}>
            <option value="">{t.allStates}</option>
            {(agents.value?.agents ?? []).map(agent => (
              <option key={agent.name} value={agent.name}>
                {agent.title}
              </option>
            ))}
          </select>
        </label>
        <SearchBox label={t.views.runs.search} value={words} onInput={setWords} />
      </div>
      <RunList key={runsPath(filter)} filter={filter} />
    </View>
  );
}

function RunList({ filter }: { filter: RunFilter }) {
  const newest = useResource<RunPage>(runsPath(filter), SECONDS);
  const [older, setOlder] = useState<Run[]>([]);
  const [token, setToken] = useState<string | null | undefined>(undefined); // undefined: that of the first page
  const [problem, setProblem] = useState<string | null>(null);
  const [isLoading, setLoading] = useState(false);
  const next = token === undefined ? newest.value?.next_page_token : token;
  const more = async (pageToken: string) => {
    setLoading(true);
    try {
      const page = await get<RunPage>(runsPath(filter, pageToken));
      // What a new run pushes off the first page stays in the list.
      setOlder(mergeRuns(mergeRuns(newest.value?.runs ?? [], older), page.runs));
      setToken(page.next_page_token ?? null);
      setProblem(null);
    } catch (error) {
      setProblem(describeError(error));
    } finally {
      setLoading(false);
    }
  };
  if (newest.value === null) {
    return newest.problem === null ? (
      <LoadingRows count={8} />
    ) : (
      <ProblemNote text={newest.problem} onRetry={newest.reload} />
    );
  }
  const runs = mergeRuns(newest.value.runs, older);
  const isFiltered = filter.state !== "" || filter.agent !== "" || filter.query !== "";
  return (
    <>
      {newest.problem !== null && <ProblemNote text={newest.problem} onRetry={newest.reload} />}
      {runs.length === 0 && (
        <Empty icon={<ListIcon />} title={isFiltered ? t.noMatches : t.views.runs.none}>
          {!isFiltered && <p>{t.views.runs.noneHint}</p>}
        </Empty>
      )}
      {runs.length > 0 && <RunTable runs={runs} />}
      {problem !== null && <ProblemNote text={problem} />}
      {next && (
        <button type="button" class="load-more" disabled={isLoading} onClick={() => void more(next)}>
          {t.loadMore}
        </button>
      )}
    </>
  );
}
