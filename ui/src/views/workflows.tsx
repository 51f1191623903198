// Workflows: what each does, and a form that starts it as a question of a new conversation.
import { useState } from "preact/hooks";
import { FormCard } from "../components/form_card.tsx";
import { Page } from "../components/page.tsx";
import type { Form, InputField, JsonValue } from "../generated/events.ts";
import { useResource } from "../state/resource.ts";
import { startConversation } from "../state/start.ts";
import { t } from "../texts.ts";

interface Workflow {
  name: string;
  title: string;
  description: string;
  available: boolean;
  missing: string[];
  input_fields: InputField[];
}

export function WorkflowsView() {
  const { value, problem } = useResource<{ workflows: Workflow[] }>("/workflows");
  return (
    <Page title={t.nav.workflows} hint={t.workflowsHint} problem={problem}>
      <ul class="cards">
        {(value?.workflows ?? []).map(workflow => (
          <WorkflowCard key={workflow.name} workflow={workflow} />
        ))}
      </ul>
    </Page>
  );
}

function WorkflowCard({ workflow }: { workflow: Workflow }) {
  const [isOpen, setOpen] = useState(false);
  const form: Form = {
    type: "form",
    title: workflow.title,
    description: null,
    response: "",
    fields: workflow.input_fields,
    expires_at: null,
  };
  const start = async (values: { [name: string]: JsonValue }) => {
    if (values["type"] === "reject") setOpen(false);
    else startConversation(describeStart(workflow, values));
  };
  return (
    <li class="card">
      <h2>{workflow.title}</h2>
      <p>{workflow.description}</p>
      {!workflow.available && <p class="hint">{t.needs(workflow.missing.join(", "))}</p>}
      {isOpen ? (
        <FormCard form={form} wrong={{}} onAnswer={start} />
      ) : (
        <button type="button" disabled={!workflow.available} onClick={() => setOpen(true)}>
          {t.start}
        </button>
      )}
    </li>
  );
}

/** The workflow by its title, and its values as lines that the server reads as the form's answer. */
function describeStart(workflow: Workflow, values: { [name: string]: JsonValue }): string {
  const lines = Object.entries(values).map(([name, value]) => `${name}: ${String(value)}`);
  return [workflow.title, ...lines].join("\n");
}
