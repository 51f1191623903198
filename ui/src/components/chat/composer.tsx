// The message box: Enter sends, Shift+Enter is a new line, Escape stops. What is typed is kept until it is sent.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { readDraft, writeDraft } from "../../state/drafts.ts";
import { t } from "../../texts.ts";
import { SendIcon, StopIcon } from "../icons.tsx";

interface ComposerProps {
  /** Whose draft it is. */
  draftOf: string;
  isWorking: boolean;
  isStopping: boolean;
  onSend(text: string): void;
  onStop(): void;
}

const SAVE_MILLISECONDS = 300;

export function Composer({ draftOf, isWorking, isStopping, onSend, onStop }: ComposerProps) {
  const [text, setText] = useDraft(draftOf);
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) box.current?.focus();
  }, [draftOf]);
  useLayoutEffect(() => fitHeight(box.current!), [text]);
  const submit = () => {
    if (!text.trim()) return;
    onSend(text.trim());
    setText("");
    writeDraft(draftOf, "");
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape" && isWorking) {
      onStop();
    }
  };
  return (
    <form
      class="composer"
      onSubmit={event => {
        event.preventDefault();
        submit();
      }}
    >
      <textarea
        id="message"
        ref={box}
        aria-label={t.message}
        aria-description={t.sendHint}
        placeholder={t.askPlaceholder}
        rows={1}
        value={text}
        dir="auto"
        onInput={event => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {isWorking && (
        <button
          type="button"
          class="round"
          onClick={onStop}
          disabled={isStopping}
          title={isStopping ? t.stopping : t.stop}
        >
          <StopIcon />
          <span class="visually-hidden">{isStopping ? t.stopping : t.stop}</span>
        </button>
      )}
      {(!isWorking || text.trim() !== "") && (
        <button type="submit" class="round primary" disabled={!text.trim()} title={t.send}>
          <SendIcon />
          <span class="visually-hidden">{t.send}</span>
        </button>
      )}
    </form>
  );
}

function useDraft(draftOf: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => readDraft(draftOf));
  const latest = useRef(text);
  latest.current = text;
  useEffect(() => {
    setText(readDraft(draftOf));
  }, [draftOf]);
  useEffect(() => {
    const timer = setTimeout(() => writeDraft(draftOf, text), SAVE_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [text, draftOf]);
  useEffect(() => {
    const save = () => writeDraft(draftOf, latest.current);
    addEventListener("pagehide", save);
    return () => removeEventListener("pagehide", save);
  }, [draftOf]);
  return [text, setText];
}

function fitHeight(box: HTMLTextAreaElement): void {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}
