// Skills: what there is and what each says, switched on and off, added after a scan.
import { useState } from "preact/hooks";
import { PlusIcon } from "../components/icons.tsx";
import { Link } from "../components/link.tsx";
import { SearchBox } from "../components/parts/search_box.tsx";
import { Empty, LoadingRows, ProblemNote } from "../components/parts/states.tsx";
import { StatusBadge } from "../components/parts/status_badge.tsx";
import { View } from "../components/parts/view.tsx";
import { BookIcon } from "../components/parts/view_icons.tsx";
import { AddSkillDialog } from "../components/skills/add_skill.tsx";
import { HubList } from "../components/skills/hub_list.tsx";
import { SkillDetail } from "../components/skills/skill_detail.tsx";
import { type Hub, type Skill, type SkillList, stateOf, TONES } from "../components/skills/skills.ts";
import { useResource } from "../state/resource.ts";
import { navigate, pathOf } from "../state/route.ts";
import { t } from "../texts.ts";

export function SkillsView({ id }: { id: string | null }) {
  const [words, setWords] = useState("");
  const [isAdding, setAdding] = useState(false);
  const list = useResource<SkillList>("/skills");
  const hubs = useResource<{ hubs: Hub[] }>("/skills/hubs");
  const skills = list.value?.skills ?? [];
  const shown = filterSkills(skills, words);
  const selected = skills.find(skill => skill.id === id) ?? (id === null ? shown[0] : undefined);
  const reload = () => {
    list.reload();
    hubs.reload();
  };
  return (
    <View
      title={t.nav.skills}
      hint={t.skillsHint}
      count={list.value?.meta.total ?? null}
      problem={list.problem}
      onRetry={reload}
      isWide
      actions={
        <button type="button" class="primary" onClick={() => setAdding(true)}>
          <PlusIcon /> {t.views.skills.add}
        </button>
      }
    >
      {(list.value?.meta.source_problems ?? []).map(source => (
        <ProblemNote key={source.source} text={`${source.source}: ${source.reason}`} />
      ))}
      {list.value === null && list.problem === null && <LoadingRows />}
      {list.value !== null && skills.length === 0 && (
        <Empty icon={<BookIcon />} title={t.views.skills.none}>
          <p>{t.skillsHint}</p>
        </Empty>
      )}
      {skills.length > 0 && (
        <div class={`split ${id === null ? "" : "split-open"}`}>
          <div class="split-list">
            <SearchBox label={t.searchSkills} value={words} onInput={setWords} />
            {shown.length === 0 && <p class="hint">{t.noMatches}</p>}
            <SkillRows skills={shown} current={selected?.id ?? null} />
          </div>
          {selected === undefined ? (
            <div class="split-detail">
              <Empty title={t.noMatches} />
            </div>
          ) : (
            <SkillDetail
              key={selected.id}
              skill={selected}
              onChanged={reload}
              onDeleted={() => {
                navigate(pathOf("skills"));
                reload();
              }}
            />
          )}
        </div>
      )}
      <HubList hubs={hubs.value?.hubs ?? []} onChanged={reload} />
      {isAdding && (
        <AddSkillDialog
          onAdded={() => {
            setAdding(false);
            reload();
          }}
          onClose={() => setAdding(false)}
        />
      )}
    </View>
  );
}

function SkillRows({ skills, current }: { skills: Skill[]; current: string | null }) {
  return (
    <ul class="rows" aria-label={t.nav.skills}>
      {skills.map(skill => (
        <li key={skill.id}>
          <Link to={pathOf("skills", skill.id)} class="row row-link" current={skill.id === current}>
            <span class="row-main">
              <span class="row-title">{skill.name}</span>
              <span class="row-text">{skill.description}</span>
            </span>
            {stateOf(skill) !== "used" && (
              <StatusBadge tone={TONES[stateOf(skill)]}>{t.views.skills.state[stateOf(skill)]}</StatusBadge>
            )}
          </Link>
        </li>
      ))}
    </ul>
  );
}

function filterSkills(skills: Skill[], words: string): Skill[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return skills.filter(skill => {
    const text = `${skill.name} ${skill.description}`.toLowerCase();
    return wanted.every(word => text.includes(word));
  });
}
