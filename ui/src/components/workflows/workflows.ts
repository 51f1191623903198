// Workflows as GET /workflows gives them, and how one is started.
import { readFields } from "../../api/input_requests.ts";
import type { InputField } from "../../generated/events.ts";

interface WorkflowStep {
  name: string;
  title: string;
  agent: string | null;
}

export interface WorkflowData {
  name: string;
  title: string;
  description: string;
  available: boolean;
  missing: string[];
  input_fields: (Partial<InputField> & { field_name: string })[];
  steps: WorkflowStep[];
}

export interface Workflow extends Omit<WorkflowData, "input_fields"> {
  fields: InputField[];
}

export function readWorkflow(data: WorkflowData): Workflow {
  return { ...data, fields: readFields(data.input_fields) };
}
