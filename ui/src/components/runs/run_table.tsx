// The table of runs; on a narrow screen each run is a card.
import { pathOf } from "../../state/route.ts";
import { t } from "../../texts.ts";
import { formatDuration } from "../../text/format.ts";
import { Link } from "../link.tsx";
import { Moment } from "../parts/moment.tsx";
import { StatusBadge } from "../parts/status_badge.tsx";
import { countTokens, isOpen, type Run, TONES } from "./runs.ts";

export function RunTable({ runs }: { runs: Run[] }) {
  const texts = t.views.runs;
  return (
    <table class="table">
      <thead>
        <tr>
          <th scope="col">{t.stateLabel}</th>
          <th scope="col">{texts.question}</th>
          <th scope="col">{texts.agents}</th>
          <th scope="col">{texts.started}</th>
          <th scope="col" class="number">
            {texts.took}
          </th>
          <th scope="col" class="number">
            {texts.tokens}
          </th>
        </tr>
      </thead>
      <tbody>
        {runs.map(run => (
          <RunRow key={run.task_id} run={run} />
        ))}
      </tbody>
    </table>
  );
}

function RunRow({ run }: { run: Run }) {
  const tokens = countTokens(run);
  const milliseconds = Date.parse(run.updated) - Date.parse(run.started);
  return (
    <tr>
      <td>
        <StatusBadge tone={TONES[run.state]}>{t.state[run.state]}</StatusBadge>
      </td>
      <td class="cell-main">
        <Link to={`${pathOf("chat", run.context_id)}#task-${encodeURIComponent(run.task_id)}`}>
          <bdi>{run.question || run.task_id}</bdi>
        </Link>
      </td>
      <td>
        {run.agents.map(agent => (
          <span class="tag" key={agent}>
            {agent}
          </span>
        ))}
      </td>
      <td>
        <Moment at={run.started} />
      </td>
      <td class="number">{isOpen(run) ? "" : formatDuration(milliseconds)}</td>
      <td class="number">{tokens === null ? "" : tokens.toLocaleString()}</td>
    </tr>
  );
}
