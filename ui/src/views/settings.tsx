// Settings: how the page looks, and how the server stands.
import { Page } from "../components/page.tsx";
import { useResource } from "../state/resource.ts";
import { theme, type Theme } from "../state/theme.ts";
import { t } from "../texts.ts";
import { Status } from "./agents.tsx";

interface Readiness {
  components?: { [name: string]: { status: string; name?: string; message?: string; backend?: string } };
}

const THEMES: Theme[] = ["system", "light", "dark"];

export function SettingsView() {
  const { value, problem } = useResource<Readiness>("/ready", 15);
  const components = Object.entries(value?.components ?? {}).filter(([name]) => !name.startsWith("agent "));
  return (
    <Page title={t.nav.settings} problem={problem}>
      <fieldset class="choices">
        <legend>{t.appearance}</legend>
        {THEMES.map(name => (
          <label key={name}>
            <input
              type="radio"
              name="theme"
              checked={theme.value === name}
              onChange={() => {
                theme.value = name;
              }}
            />{" "}
            {t.theme[name]}
          </label>
        ))}
      </fieldset>
      <h2>{t.server}</h2>
      <ul class="cards">
        {components.map(([name, component]) => (
          <li class="card" key={name}>
            <h3>
              {name} <Status status={component.status} />
            </h3>
            {(component.name ?? component.backend) && <p class="hint">{component.name ?? component.backend}</p>}
            {component.message && <p>{component.message}</p>}
          </li>
        ))}
      </ul>
    </Page>
  );
}
