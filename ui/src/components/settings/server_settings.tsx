// What is configured and from where; a secret is only said to be set.
import { useState } from "preact/hooks";
import { useResource } from "../../state/resource.ts";
import { t } from "../../texts.ts";
import { ChoiceBar } from "../parts/choice_bar.tsx";
import { SearchBox } from "../parts/search_box.tsx";
import { Empty, LoadingRows, ProblemNote } from "../parts/states.tsx";
import { groupSettings, type Setting, type SettingGroup } from "./settings.ts";

export function ServerSettings() {
  const [words, setWords] = useState("");
  const [shown, setShown] = useState<"changed" | "all">("changed");
  const { value, problem, reload } = useResource<{ settings: Setting[]; files: string[] }>("/v1/settings");
  const texts = t.views.settings;
  const settings = value?.settings ?? [];
  const groups = groupSettings(settings, words, shown === "changed");
  const choices = [
    { value: "changed" as const, label: texts.changed, count: settings.filter(isChanged).length },
    { value: "all" as const, label: texts.all, count: settings.length },
  ];
  return (
    <section aria-label={texts.configured}>
      <h2>{texts.configured}</h2>
      {value !== null && value.files.length > 0 && <p class="hint">{texts.files(value.files.join(", "))}</p>}
      {value !== null && (
        <div class="toolbar">
          <ChoiceBar label={texts.shown} choices={choices} value={shown} onChoose={setShown} />
          <SearchBox label={texts.search} value={words} onInput={setWords} />
        </div>
      )}
      {problem !== null && <ProblemNote text={problem} onRetry={reload} />}
      {value === null && problem === null && <LoadingRows count={6} />}
      {value !== null && groups.length === 0 && <Empty title={words ? t.noMatches : texts.noneChanged} />}
      {groups.map(group => (
        <GroupSection key={group.name} group={group} />
      ))}
    </section>
  );
}

const isChanged = (setting: Setting) => setting.source !== "default";

function GroupSection({ group }: { group: SettingGroup }) {
  return (
    <section class="setting-group" aria-label={group.name}>
      <h3>{group.name.replaceAll("_", " ")}</h3>
      <dl class="settings">
        {group.settings.map(setting => (
          <div key={setting.name} class="setting">
            <dt>
              <code>{setting.name}</code>
              {setting.description && <p class="hint">{setting.description}</p>}
            </dt>
            <dd>
              <SettingValue setting={setting} />
              <span class={`tag ${isChanged(setting) ? "tag-accent" : ""}`}>
                {t.views.settings.source[setting.source] ?? setting.source}
              </span>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function SettingValue({ setting }: { setting: Setting }) {
  if (setting.value === null) return <span class="hint">{t.views.settings.notSet}</span>;
  if (!setting.secret) return <code class="setting-value">{setting.value}</code>;
  return (
    <span class="hint">
      <span aria-hidden="true">{setting.value} </span>
      {t.views.settings.secretSet}
    </span>
  );
}
