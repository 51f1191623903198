// A question: it can be copied, and changed and asked again.
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../../texts.ts";
import { CopyButton } from "../copy_button.tsx";
import { IconButton } from "../icon_button.tsx";
import { Icon } from "../icons.tsx";

interface QuestionProps {
  text: string;
  onAsk: ((text: string) => void) | undefined;
}

const LONG = 1_200; // characters that are shown of a question

export function Question({ text, onAsk }: QuestionProps) {
  const [draft, setDraft] = useState<string | null>(null);
  const [isWhole, setWhole] = useState(false);
  if (draft !== null && onAsk !== undefined) {
    return <QuestionEditor draft={draft} onDraft={setDraft} onAsk={onAsk} />;
  }
  const isLong = text.length > LONG && !isWhole;
  return (
    <div class="question">
      <div class="bubble">
        <span class="visually-hidden">{t.you}: </span>
        <p dir="auto">{isLong ? `${text.slice(0, LONG)}…` : text}</p>
        {isLong && (
          <button type="button" class="quiet" onClick={() => setWhole(true)}>
            {t.showAll}
          </button>
        )}
      </div>
      <div class="question-actions">
        <CopyButton text={text} label={t.copy} />
        {onAsk !== undefined && (
          <IconButton label={t.editAndAsk} onClick={() => setDraft(text)}>
            <Icon name="edit" />
          </IconButton>
        )}
      </div>
    </div>
  );
}

interface EditorProps {
  draft: string;
  onDraft(draft: string | null): void;
  onAsk(text: string): void;
}

function QuestionEditor({ draft, onDraft, onAsk }: EditorProps) {
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => box.current?.focus(), []);
  const submit = () => {
    if (draft.trim()) onAsk(draft.trim());
    onDraft(null);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") onDraft(null);
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  };
  return (
    <div class="question editing">
      <textarea
        ref={box}
        aria-label={t.editAndAsk}
        value={draft}
        dir="auto"
        onInput={event => onDraft(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <div class="buttons">
        <button type="button" onClick={() => onDraft(null)}>
          {t.cancel}
        </button>
        <button type="button" class="primary" onClick={submit}>
          {t.send}
        </button>
      </div>
    </div>
  );
}
