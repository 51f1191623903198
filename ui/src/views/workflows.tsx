// Workflows: what each does, and a form that starts it in a new conversation.
import { StartWorkflow } from "../components/workflows/start_workflow.tsx";
import { WorkflowCard } from "../components/workflows/workflow_card.tsx";
import { readWorkflow, type WorkflowData } from "../components/workflows/workflows.ts";
import { Link } from "../components/link.tsx";
import { Empty, LoadingRows, ProblemNote } from "../components/parts/states.tsx";
import { View } from "../components/parts/view.tsx";
import { BackIcon, WorkflowIcon } from "../components/parts/view_icons.tsx";
import { useResource } from "../state/resource.ts";
import { pathOf } from "../state/route.ts";
import { t } from "../texts.ts";

interface WorkflowList {
  workflows: WorkflowData[];
  problems: string[];
}

export function WorkflowsView({ id }: { id: string | null }) {
  const { value, problem, reload } = useResource<WorkflowList>("/workflows");
  const workflows = (value?.workflows ?? []).map(readWorkflow);
  workflows.sort((first, second) => Number(second.available) - Number(first.available));
  const chosen = workflows.find(workflow => workflow.name === id);
  if (chosen !== undefined) {
    return (
      <View
        title={chosen.title}
        hint={chosen.description}
        actions={
          <Link to={pathOf("workflows")} class="button small">
            <BackIcon /> {t.views.workflows.all}
          </Link>
        }
      >
        <StartWorkflow key={chosen.name} workflow={chosen} />
      </View>
    );
  }
  return (
    <View title={t.nav.workflows} hint={t.workflowsHint} problem={problem} onRetry={reload}>
      {value === null && problem === null && <LoadingRows />}
      {value !== null && workflows.length === 0 && (
        <Empty icon={<WorkflowIcon />} title={t.views.workflows.none}>
          <p>{t.views.workflows.noneHint}</p>
        </Empty>
      )}
      <ul class="tiles" aria-label={t.nav.workflows}>
        {workflows.map(workflow => (
          <WorkflowCard key={workflow.name} workflow={workflow} />
        ))}
      </ul>
      {(value?.problems ?? []).map(text => (
        <ProblemNote key={text} text={text} />
      ))}
    </View>
  );
}
