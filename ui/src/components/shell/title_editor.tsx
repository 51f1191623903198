// The title of a conversation, edited in its place: Enter keeps it, Escape does not.
import { useEffect, useRef } from "preact/hooks";
import { rename, renamed } from "../../state/conversation_actions.ts";
import { t } from "../../texts.ts";

export function TitleEditor({ contextId, title }: { contextId: string; title: string }) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => box.current?.select(), []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") renamed.value = null;
    if (event.key === "Enter" && !event.isComposing) void rename(contextId, box.current!.value);
  };
  return (
    <input
      ref={box}
      class="title-editor"
      aria-label={t.rename}
      defaultValue={title}
      maxLength={120}
      onKeyDown={onKeyDown}
      onBlur={event => renamed.value !== null && void rename(contextId, event.currentTarget.value)}
    />
  );
}
