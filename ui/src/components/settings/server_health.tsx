// How the parts of the server stand, as /ready says.
import { useResource } from "../../state/resource.ts";
import { t } from "../../texts.ts";
import { LoadingRows, ProblemNote } from "../parts/states.tsx";
import { StatusBadge, type Tone } from "../parts/status_badge.tsx";

interface Component {
  status: string;
  name?: string;
  message?: string;
  backend?: string;
}

interface Readiness {
  components?: { [name: string]: Component };
}

const SECONDS = 30;
const TONES: { [status: string]: Tone } = { ok: "good", ready: "good", degraded: "warn", opening: "busy" };

export function ServerHealth() {
  const { value, problem, reload } = useResource<Readiness>("/ready", SECONDS);
  const components = Object.entries(value?.components ?? {}).filter(([name]) => !name.startsWith("agent "));
  return (
    <section aria-label={t.server}>
      <h2>{t.server}</h2>
      {problem !== null && <ProblemNote text={problem} onRetry={reload} />}
      {value === null && problem === null && <LoadingRows count={2} />}
      <ul class="rows">
        {components.map(([name, component]) => (
          <li class="row" key={name}>
            <span class="row-main">
              <span class="row-title capital">{name}</span>
              {component.message && <span class="row-text row-whole">{component.message}</span>}
            </span>
            <span class="row-side">
              {(component.name ?? component.backend) && <span class="row-fact">{component.name ?? component.backend}</span>}
              <StatusBadge tone={TONES[component.status] ?? "bad"}>{component.status.replaceAll("_", " ")}</StatusBadge>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
