// The message box: Enter sends, Shift+Enter is a new line, Escape stops.
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../texts.ts";
import { SendIcon, StopIcon } from "./icons.tsx";

interface ComposerProps {
  isWorking: boolean;
  onSend(text: string): void;
  onStop(): void;
}

export function Composer({ isWorking, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => box.current?.focus(), []);
  const submit = () => {
    if (!text.trim()) return;
    onSend(text.trim());
    setText("");
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
        ref={box}
        aria-label={t.message}
        placeholder={t.askPlaceholder}
        rows={Math.min(8, text.split("\n").length)}
        value={text}
        dir="auto"
        onInput={event => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {isWorking && (
        <button type="button" class="round" onClick={onStop} title={t.stop}>
          <StopIcon />
          <span class="visually-hidden">{t.stop}</span>
        </button>
      )}
      <button type="submit" class="round primary" disabled={!text.trim()} title={t.send}>
        <SendIcon />
        <span class="visually-hidden">{t.send}</span>
      </button>
    </form>
  );
}
