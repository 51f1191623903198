// One skill: what it says, its files, what the scan found; switched on and off, deleted where it is stored here.
import { useState } from "preact/hooks";
import { describeError } from "../../api/rest.ts";
import { useResource } from "../../state/resource.ts";
import { pathOf } from "../../state/route.ts";
import { t } from "../../texts.ts";
import { formatBytes } from "../../text/relative_time.ts";
import { Link } from "../link.tsx";
import { MarkdownView } from "../markdown_view.tsx";
import { ConfirmDialog } from "../parts/confirm_dialog.tsx";
import { LoadingRows, ProblemNote } from "../parts/states.tsx";
import { StatusBadge } from "../parts/status_badge.tsx";
import { BackIcon, FileIcon, TrashIcon } from "../parts/view_icons.tsx";
import { Findings, Problems } from "./findings.tsx";
import { bodyOf, contentPath, deleteSkill, setEnabled, type Skill, stateOf, TONES } from "./skills.ts";

interface DetailProps {
  skill: Skill;
  onChanged(): void;
  onDeleted(): void;
}

export function SkillDetail({ skill, onChanged, onDeleted }: DetailProps) {
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [isDeleting, setDeleting] = useState(false);
  const texts = t.views.skills;
  const run = async (action: () => Promise<unknown>, done: () => void) => {
    setBusy(true);
    setProblem(null);
    try {
      await action();
      done();
    } catch (error) {
      setProblem(describeError(error));
    } finally {
      setBusy(false);
      setDeleting(false);
    }
  };
  const state = stateOf(skill);
  return (
    <section class="split-detail" aria-label={skill.name}>
      <div class="panel-head">
        <Link to={pathOf("skills")} class="button small split-back">
          <BackIcon /> {t.nav.skills}
        </Link>
        <h2>{skill.name}</h2>
        <label class="switch">
          <input
            type="checkbox"
            role="switch"
            checked={skill.enabled}
            disabled={isBusy}
            onChange={() => void run(() => setEnabled(skill, !skill.enabled), onChanged)}
          />
          <span>{texts.enabled}</span>
        </label>
        {skill.origin === "stored" && (
          <button type="button" class="small danger" disabled={isBusy} onClick={() => setDeleting(true)}>
            <TrashIcon /> {t.remove}
          </button>
        )}
      </div>
      {problem !== null && <ProblemNote text={problem} />}
      <p>{skill.description}</p>
      <p class="facts">
        <StatusBadge tone={TONES[state]}>{texts.state[state]}</StatusBadge>
        <span class="tag">{texts.origin[skill.origin]}</span>
        {skill.license && <span>{skill.license}</span>}
        {skill.shadowed_by !== null && <span>{texts.shadowedBy(texts.origin[skill.shadowed_by])}</span>}
      </p>
      {skill.problems.length > 0 && <Problems problems={skill.problems} />}
      {skill.findings.length > 0 && <Findings findings={skill.findings} />}
      <SkillContent skill={skill} />
      {isDeleting && (
        <ConfirmDialog
          title={texts.deleteTitle(skill.name)}
          text={texts.deleteText}
          action={t.remove}
          onConfirm={() => run(() => deleteSkill(skill), onDeleted)}
          onClose={() => setDeleting(false)}
        />
      )}
    </section>
  );
}

function SkillContent({ skill }: { skill: Skill }) {
  const { value, problem, reload } = useResource<Skill>(contentPath(skill));
  const texts = t.views.skills;
  if (problem !== null) return <ProblemNote text={problem} onRetry={reload} />;
  if (value === null) return <LoadingRows count={3} />;
  const others = skill.files.filter(file => file.path !== "SKILL.md");
  return (
    <>
      <div class="document">
        <MarkdownView text={bodyOf(value.content ?? "")} isFinal />
      </div>
      {others.length > 0 && <h3>{texts.files}</h3>}
      {others.map(file => (
        <details class="file" key={file.path}>
          <summary>
            <FileIcon /> <code>{file.path}</code> <span class="hint">{formatBytes(file.size)}</span>
          </summary>
          {value.ancillary_files[file.path] === undefined ? (
            <p class="hint">{texts.notText}</p>
          ) : (
            <pre tabIndex={0}>{value.ancillary_files[file.path]}</pre>
          )}
        </details>
      ))}
    </>
  );
}
