// Runs: all of mine, by state; each opens its conversation.
import { useEffect, useState } from "preact/hooks";
import { type ListedTask, listRuns, STATES } from "../a2a/runs.ts";
import { Link } from "../components/link.tsx";
import { Page } from "../components/page.tsx";
import type { TranscriptState } from "../events/transcript.ts";
import { pathOf } from "../state/route.ts";
import { t } from "../texts.ts";
import { formatMoment } from "../text/format.ts";

export function RunsView() {
  const [state, setState] = useState<TranscriptState | "">("");
  const [runs, setRuns] = useState<ListedTask[]>([]);
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const load = async (pageToken: string) => {
    try {
      const page = await listRuns(state, pageToken);
      setRuns(pageToken ? [...runs, ...page.runs] : page.runs);
      setToken(page.nextToken);
      setProblem(null);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  useEffect(() => void load(""), [state]);
  return (
    <Page title={t.nav.runs} problem={problem}>
      <label>
        {t.stateLabel}{" "}
        <select
          class="narrow"
          value={state}
          onChange={event => setState(event.currentTarget.value as TranscriptState | "")}
        >
          <option value="">{t.allStates}</option>
          {STATES.map(name => (
            <option key={name} value={name}>
              {t.state[name]}
            </option>
          ))}
        </select>
      </label>
      <div class="table-scroll">
        <table>
          <tbody>
            {runs.map(run => (
              <tr key={run.taskId}>
                <td>{run.state && t.state[run.state]}</td>
                <td class="wide">
                  <Link to={pathOf("chat", run.contextId)}>{run.question || run.taskId}</Link>
                </td>
                <td>{run.at && formatMoment(run.at)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {token && (
        <button type="button" onClick={() => void load(token)}>
          {t.loadMore}
        </button>
      )}
    </Page>
  );
}
