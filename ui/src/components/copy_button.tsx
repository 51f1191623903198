// Copies a text and says so.
import { useState } from "preact/hooks";
import { t } from "../texts.ts";
import { copyText } from "../text/clipboard.ts";
import { Icon } from "./icons.tsx";
import { IconButton } from "./icon_button.tsx";

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [said, setSaid] = useState<string | null>(null);
  const copy = async () => {
    setSaid((await copyText(text)) ? t.copied : t.copyFailed);
    setTimeout(() => setSaid(null), 1500);
  };
  return (
    <>
      <IconButton label={label} onClick={() => void copy()}>
        <Icon name={said === t.copied ? "check" : "copy"} />
      </IconButton>
      <span class="visually-hidden" role="status">
        {said ?? ""}
      </span>
    </>
  );
}
