// The arguments of a call: all of them, with what cannot be seen made visible; when they are edited, what was and what is.
import { type ArgumentDrafts, listChanged, readArgument, showArgument } from "../forms/argument_drafts.ts";
import type { Approval, JsonValue } from "../generated/events.ts";
import { reveal } from "../text/reveal.ts";
import { t } from "../texts.ts";

interface ArgumentListProps {
  approval: Approval;
  drafts: ArgumentDrafts | null;
  onDraft(drafts: ArgumentDrafts): void;
  wrong: { [field: string]: string };
}

export function ArgumentList({ approval, drafts, onDraft, wrong }: ArgumentListProps) {
  const entries = Object.entries(approval.arguments);
  if (entries.length === 0) return <p class="hint">{t.approvalNone}</p>;
  const changed = drafts === null ? [] : listChanged(approval.arguments, drafts);
  return (
    <dl class="arguments" aria-label={t.argumentsLabel}>
      {entries.map(([name, value]) => (
        <div key={name} class={changed.includes(name) ? "changed" : ""}>
          <dt>
            {reveal(name)}
            {changed.includes(name) && <span class="tag">{t.changed}</span>}
          </dt>
          <dd>
            {drafts === null ? (
              <pre tabIndex={0}>{reveal(showArgument(value))}</pre>
            ) : (
              <ArgumentEditor
                name={name}
                value={value}
                draft={drafts[name] ?? ""}
                isChanged={changed.includes(name)}
                onDraft={draft => onDraft({ ...drafts, [name]: draft })}
              />
            )}
            {wrong[name] && (
              <p class="field-error" role="alert">
                {wrong[name]}
              </p>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

interface EditorProps {
  name: string;
  value: JsonValue;
  draft: string;
  isChanged: boolean;
  onDraft(draft: string): void;
}

function ArgumentEditor({ name, value, draft, isChanged, onDraft }: EditorProps) {
  const isUnreadable = readArgument(value, draft) === undefined;
  return (
    <>
      <textarea
        aria-label={name}
        aria-invalid={isUnreadable}
        rows={Math.min(10, draft.split("\n").length)}
        value={draft}
        onInput={event => onDraft(event.currentTarget.value)}
      />
      {isUnreadable && <p class="field-error">{t.notJson}</p>}
      {isChanged && !isUnreadable && (
        <p class="difference">
          <del>{reveal(showArgument(value))}</del> <ins>{reveal(draft)}</ins>
        </p>
      )}
    </>
  );
}
