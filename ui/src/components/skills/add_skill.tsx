// Adds a skill: its text is checked and scanned first; or a hub, a git repository with skills.
import { useState } from "preact/hooks";
import { describeError, RestError } from "../../api/rest.ts";
import type { Problem } from "../../api/rest.ts";
import { t } from "../../texts.ts";
import { ChoiceBar } from "../parts/choice_bar.tsx";
import { ProblemNote } from "../parts/states.tsx";
import { TextField } from "../parts/text_field.tsx";
import { Dialog } from "../shell/dialog.tsx";
import { Findings, Problems } from "./findings.tsx";
import { addHub, addSkill, checkSkill, type SkillCheck } from "./skills.ts";

interface AddProps {
  onAdded(): void;
  onClose(): void;
}

export function AddSkillDialog({ onAdded, onClose }: AddProps) {
  const [way, setWay] = useState<"text" | "hub">("text");
  const texts = t.views.skills;
  return (
    <Dialog label={texts.add} class="dialog-wide" onClose={onClose}>
      <ChoiceBar
        label={texts.add}
        choices={[
          { value: "text", label: texts.byText },
          { value: "hub", label: texts.byHub },
        ]}
        value={way}
        onChoose={setWay}
      />
      {way === "text" ? <TextForm onAdded={onAdded} /> : <HubForm onAdded={onAdded} />}
    </Dialog>
  );
}

function TextForm({ onAdded }: { onAdded(): void }) {
  const [content, setContent] = useState<string>(t.views.skills.template);
  const [check, setCheck] = useState<SkillCheck | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const texts = t.views.skills;
  const edit = (text: string) => {
    setContent(text);
    setCheck(null); // what was checked is another text
  };
  const run = async (action: () => Promise<void>) => {
    setBusy(true);
    setProblem(null);
    try {
      await action();
    } catch (error) {
      setProblem(describeError(error));
    } finally {
      setBusy(false);
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      if (check?.valid) {
        await addSkill(content);
        onAdded();
      } else setCheck(await checkSkill(content));
    });
  };
  return (
    <form onSubmit={submit}>
      <div class="field">
        <label for="skill-text">{texts.text}</label>
        <textarea
          id="skill-text"
          class="code-input"
          rows={12}
          spellcheck={false}
          value={content}
          onInput={event => edit(event.currentTarget.value)}
        />
        <p class="hint">{texts.textHint}</p>
      </div>
      {problem !== null && <ProblemNote text={problem} />}
      {check !== null && <CheckResult check={check} />}
      <div class="buttons">
        <button type="submit" class="primary" disabled={isBusy || !content.trim()}>
          {check?.valid ? texts.addChecked : texts.check}
        </button>
      </div>
    </form>
  );
}

function CheckResult({ check }: { check: SkillCheck }) {
  const texts = t.views.skills;
  return (
    <section role="status" aria-label={texts.findings}>
      <h3>{check.valid ? texts.checked(check.name ?? "") : texts.invalid}</h3>
      <Problems problems={check.problems} />
      {check.valid && <Findings findings={check.findings} />}
      {check.blocked && <p class="hint">{texts.blockedHint}</p>}
    </section>
  );
}

function HubForm({ onAdded }: { onAdded(): void }) {
  const [url, setUrl] = useState("");
  const [ref, setRef] = useState("");
  const [path, setPath] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [problems, setProblems] = useState<Problem[]>([]);
  const [isBusy, setBusy] = useState(false);
  const texts = t.views.skills;
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await addHub(url.trim(), ref.trim(), path.trim());
      onAdded();
    } catch (error) {
      setProblem(describeError(error));
      setProblems(error instanceof RestError ? error.problems : []);
      setBusy(false);
    }
  };
  return (
    <form onSubmit={event => void submit(event)}>
      <TextField id="hub-url" label={texts.hubUrl} hint={texts.hubHint} value={url} onInput={setUrl} />
      <div class="field-pair">
        <TextField id="hub-ref" label={texts.hubRef} value={ref} onInput={setRef} />
        <TextField id="hub-path" label={texts.hubPath} value={path} onInput={setPath} />
      </div>
      {problem !== null && <ProblemNote text={problem} />}
      {problems.length > 1 && <Problems problems={problems} />}
      <div class="buttons">
        <button type="submit" class="primary" disabled={isBusy || !url.trim()}>
          {isBusy ? texts.fetching : texts.addHub}
        </button>
      </div>
    </form>
  );
}
