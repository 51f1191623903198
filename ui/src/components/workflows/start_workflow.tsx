// The form of a workflow: filled in once, it starts the run and answers its first form with the same values.
import { useState } from "preact/hooks";
import { runWorkflow } from "../../a2a/workflow_start.ts";
import { describeError } from "../../api/rest.ts";
import type { Form, JsonValue } from "../../generated/events.ts";
import { loadConversations } from "../../state/conversations.ts";
import { navigate, pathOf } from "../../state/route.ts";
import { t } from "../../texts.ts";
import { FormCard } from "../form_card.tsx";
import { ProblemNote } from "../parts/states.tsx";
import { WorkflowSteps } from "./workflow_card.tsx";
import type { Workflow } from "./workflows.ts";

export function StartWorkflow({ workflow }: { workflow: Workflow }) {
  const [problem, setProblem] = useState<string | null>(null);
  const [attempt, setAttempt] = useState(0);
  const start = async (values: { [name: string]: JsonValue }) => {
    if (values["type"] === "reject") return navigate(pathOf("workflows"));
    try {
      const contextId = await runWorkflow(workflow, values, workflow.fields.length > 0);
      void loadConversations();
      navigate(pathOf("chat", contextId));
    } catch (error) {
      setProblem(describeError(error));
      setAttempt(attempt + 1);
    }
  };
  if (!workflow.available) return <ProblemNote text={t.needs(workflow.missing.join(", "))} />;
  return (
    <div class="columns">
      <div>
        {problem !== null && <ProblemNote text={problem} />}
        <FormCard key={attempt} form={formOf(workflow)} wrong={{}} onAnswer={start} />
      </div>
      <section class="columns-side">
        <h2>{t.views.workflows.steps}</h2>
        <WorkflowSteps workflow={workflow} />
        <p class="hint">{t.views.workflows.startHint}</p>
      </section>
    </div>
  );
}

function formOf(workflow: Workflow): Form {
  return {
    type: "form",
    title: workflow.fields.length > 0 ? t.views.workflows.details : t.views.workflows.noDetails,
    description: null,
    response: "",
    fields: workflow.fields,
    expires_at: null,
  };
}
