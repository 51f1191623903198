// The plan of a run, as the last event has it.
import type { PlanStep } from "../generated/events.ts";

export interface Plan {
  title: string;
  steps: PlanStep[];
}

export function openSteps(plan: Plan): PlanStep[] {
  return plan.steps.filter(step => step.status === "pending" || step.status === "in_progress");
}

/** The step in progress, when there is exactly one. */
export function currentStep(plan: Plan): string | null {
  const running = plan.steps.filter(step => step.status === "in_progress");
  return running.length === 1 ? running[0]!.step_id : null;
}
