// A command or a line of a file, with a button that copies it.
import { useState } from "preact/hooks";
import { t } from "../../texts.ts";

const SHOWN = 1500; // milliseconds that the button says it was copied

export function CopyCommand({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), SHOWN);
  };
  return (
    <div class="copy-line">
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
      <button type="button" class="quiet" aria-label={t.views.copyText(text)} onClick={() => void copy()}>
        {isCopied ? t.copied : t.copy}
      </button>
    </div>
  );
}
