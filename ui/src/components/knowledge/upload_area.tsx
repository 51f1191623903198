// Uploads files, chosen or dropped, one after the other.
import { useEffect, useRef, useState } from "preact/hooks";
import { describeError } from "../../api/rest.ts";
import { t } from "../../texts.ts";
import { formatBytes } from "../../text/relative_time.ts";
import { CheckIcon, SpinnerIcon } from "../icons.tsx";
import { FileIcon, UploadIcon, WarningIcon } from "../parts/view_icons.tsx";
import { upload } from "./knowledge.ts";

interface Upload {
  file: File;
  state: "waiting" | "sending" | "sent" | "failed";
  problem: string;
}

const MAX_FILES = 50; // at once

export function UploadArea({ onUploaded }: { onUploaded(): void }) {
  const [uploads, setUploads] = useState<Upload[]>([]);
  const [isOver, setOver] = useState(false);
  const abort = useRef(new AbortController());
  const texts = t.views.knowledge;
  useEffect(() => () => abort.current.abort(), []);
  const next = uploads.findIndex(item => item.state === "waiting");
  const isSending = uploads.some(item => item.state === "sending");
  useEffect(() => {
    if (next < 0 || isSending) return;
    const set = (state: Upload["state"], problem = "") =>
      setUploads(all => all.map((item, index) => (index === next ? { ...item, state, problem } : item)));
    set("sending");
    upload(uploads[next]!.file, abort.current.signal).then(
      () => {
        set("sent");
        onUploaded();
      },
      (error: unknown) => set("failed", describeError(error)),
    );
  }, [next, isSending]);
  const take = (files: FileList | null | undefined) => {
    const taken = [...(files ?? [])].slice(0, MAX_FILES);
    setUploads(all => [...all, ...taken.map(file => ({ file, state: "waiting" as const, problem: "" }))]);
  };
  return (
    <>
      <label
        class={`drop ${isOver ? "drop-over" : ""}`}
        onDragOver={event => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={event => {
          event.preventDefault();
          setOver(false);
          take(event.dataTransfer?.files);
        }}
      >
        <UploadIcon />
        <strong>{texts.drop}</strong>
        <span class="hint">{texts.dropHint}</span>
        <input
          type="file"
          multiple
          aria-label={texts.choose}
          onChange={event => {
            take(event.currentTarget.files);
            event.currentTarget.value = "";
          }}
        />
      </label>
      <ul class="uploads" aria-label={texts.uploads}>
        {uploads.map((item, index) => (
          <li key={index}>
            <FileIcon />
            <span class="upload-name">{item.file.name}</span>
            <span class="hint">{formatBytes(item.file.size)}</span>
            <UploadState item={item} />
          </li>
        ))}
      </ul>
    </>
  );
}

function UploadState({ item }: { item: Upload }) {
  const texts = t.views.knowledge.uploadState;
  switch (item.state) {
    case "waiting":
      return <span class="hint">{texts.waiting}</span>;
    case "sending":
      return (
        <span class="hint">
          <SpinnerIcon /> {texts.sending}
        </span>
      );
    case "sent":
      return (
        <span class="fact-good">
          <CheckIcon /> {texts.sent}
        </span>
      );
    case "failed":
      return (
        <span class="fact-bad" role="alert">
          <WarningIcon /> {item.problem}
        </span>
      );
  }
}
