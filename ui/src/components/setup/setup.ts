// What a first start lacks, as GET /v1/setup gives it.

export interface Provider {
  name: string;
  variables: string[];
  missing?: string[];
  extra: string | null;
}

export interface SetupStep {
  id: string;
  done: boolean;
  title: string;
  how: string;
}

export interface Setup {
  model: { status: string; name: string | null; message: string; providers: Provider[] };
  agents: { ready: number; not_configured: number };
  knowledge: { status?: string; has_documents?: boolean };
  steps: SetupStep[];
}

export const SETUP_PATH = "/v1/setup";

export const openSteps = (setup: Setup) => setup.steps.filter(step => !step.done);

/** The lines of an `.env` file that choose a provider's model; `…` is for people to fill in. */
export function modelLines(provider: Provider): string {
  const model = `LLM_MODEL=${provider.name}:…`;
  return [model, ...provider.variables.map(name => `${name}=…`)].join("\n");
}

export interface HowPiece {
  text: string;
  isCode: boolean;
}

/** The words of a step; what stands between backticks is code. */
export function splitHow(how: string): HowPiece[] {
  const pieces = how.split("`").map((text, index) => ({ text, isCode: index % 2 === 1 }));
  return pieces.filter(piece => piece.text !== "");
}
