// Skills: what there is, and what each says.
import { useState } from "preact/hooks";
import { MarkdownView } from "../components/markdown_view.tsx";
import { Page } from "../components/page.tsx";
import { useResource } from "../state/resource.ts";
import { t } from "../texts.ts";

interface Skill {
  id: string;
  name: string;
  description: string;
  source: string;
}

export function SkillsView() {
  const [words, setWords] = useState("");
  const { value, problem } = useResource<{ skills: Skill[] }>(`/skills?q=${encodeURIComponent(words)}`);
  return (
    <Page title={t.nav.skills} hint={t.skillsHint} problem={problem}>
      <input
        type="search"
        aria-label={t.searchSkills}
        placeholder={t.searchSkills}
        value={words}
        onInput={event => setWords(event.currentTarget.value)}
      />
      <ul class="cards">
        {(value?.skills ?? []).map(skill => (
          <li class="card" key={skill.id}>
            <h2>
              {skill.name} <span class="tag">{skill.source}</span>
            </h2>
            <p>{skill.description}</p>
            <SkillContent id={skill.id} />
          </li>
        ))}
      </ul>
    </Page>
  );
}

function SkillContent({ id }: { id: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>{t.read}</summary>
      {isOpen && <LoadedContent id={id} />}
    </details>
  );
}

function LoadedContent({ id }: { id: string }) {
  const path = `/skills?q=${encodeURIComponent(id)}&include_content=true`;
  const { value, problem } = useResource<{ skills: (Skill & { content?: string })[] }>(path);
  const content = value?.skills.find(skill => skill.id === id)?.content;
  if (problem) return <p class="problem">{problem}</p>;
  return content === undefined ? null : <MarkdownView text={content} isFinal />;
}
