// The steps of a first start: what is done, what is missing, and how to set it.
import { useState } from "preact/hooks";
import { pathOf } from "../../state/route.ts";
import { t } from "../../texts.ts";
import { CheckIcon } from "../icons.tsx";
import { Link } from "../link.tsx";
import { CopyCommand } from "../parts/copy_command.tsx";
import { modelLines, type Setup, type SetupStep, splitHow } from "./setup.ts";

export function SetupSteps({ setup }: { setup: Setup }) {
  return (
    <ol class="setup-steps">
      {setup.steps.map((step, index) => (
        <li key={step.id} class={step.done ? "setup-done" : ""}>
          <span class="setup-mark" aria-hidden="true">
            {step.done ? <CheckIcon /> : index + 1}
          </span>
          <div>
            <h2>
              {step.title}
              <span class="visually-hidden"> ({step.done ? t.views.setup.done : t.views.setup.open})</span>
            </h2>
            <StepBody step={step} setup={setup} />
          </div>
        </li>
      ))}
    </ol>
  );
}

function StepBody({ step, setup }: { step: SetupStep; setup: Setup }) {
  const texts = t.views.setup;
  if (step.id === "model") {
    return step.done ? (
      <p class="hint">{texts.model(setup.model.name ?? "")}</p>
    ) : (
      <>
        <How text={step.how} />
        <ModelChoice setup={setup} />
      </>
    );
  }
  if (step.id === "agents") {
    return (
      <>
        <p class="hint">{texts.agents(setup.agents.ready, setup.agents.not_configured)}</p>
        {!step.done && <How text={step.how} />}
        <Link to={pathOf("agents")} class="button small">
          {texts.openAgents}
        </Link>
      </>
    );
  }
  return (
    <>
      {step.done ? <p class="hint">{texts.knowledge}</p> : <How text={step.how} />}
      {step.id === "knowledge" && (
        <Link to={pathOf("knowledge")} class="button small">
          {texts.openKnowledge}
        </Link>
      )}
    </>
  );
}

export function How({ text }: { text: string }) {
  return (
    <p>
      {splitHow(text).map((piece, index) => (piece.isCode ? <code key={index}>{piece.text}</code> : piece.text))}
    </p>
  );
}

function ModelChoice({ setup }: { setup: Setup }) {
  const providers = setup.model.providers;
  const [name, setName] = useState(providers[0]?.name ?? "");
  const provider = providers.find(other => other.name === name);
  const texts = t.views.setup;
  if (provider === undefined) return null;
  return (
    <div class="model-choice">
      <label class="filter">
        <span>{texts.provider}</span>
        <select value={name} onChange={event => setName(event.currentTarget.value)}>
          {providers.map(other => (
            <option key={other.name} value={other.name}>
              {other.name}
            </option>
          ))}
        </select>
      </label>
      <CopyCommand text={modelLines(provider)} />
      {provider.extra !== null && <p class="hint">{texts.extra(provider.extra)}</p>}
    </div>
  );
}
