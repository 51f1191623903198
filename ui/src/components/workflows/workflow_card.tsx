// One workflow in the list: its steps, and whether it can be started.
import { pathOf } from "../../state/route.ts";
import { t } from "../../texts.ts";
import { Link } from "../link.tsx";
import { StatusBadge } from "../parts/status_badge.tsx";
import type { Workflow } from "./workflows.ts";

export function WorkflowCard({ workflow }: { workflow: Workflow }) {
  return (
    <li class="tile">
      <h2>{workflow.title}</h2>
      <p class="tile-text">{workflow.description}</p>
      <WorkflowSteps workflow={workflow} />
      <div class="tile-foot">
        {workflow.available ? (
          <Link to={pathOf("workflows", workflow.name)} class="button small">
            {t.start}
            <span class="visually-hidden"> {workflow.title}</span>
          </Link>
        ) : (
          <StatusBadge tone="warn">{t.needs(workflow.missing.join(", "))}</StatusBadge>
        )}
      </div>
    </li>
  );
}

export function WorkflowSteps({ workflow }: { workflow: Workflow }) {
  return (
    <ol class="step-list" aria-label={t.views.workflows.steps}>
      {workflow.steps.map(step => (
        <li key={step.name}>
          <span>{step.title}</span>
          {step.agent !== null && <span class="tag">{step.agent}</span>}
        </li>
      ))}
    </ol>
  );
}
