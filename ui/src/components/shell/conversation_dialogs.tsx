// The dialogs of conversations: delete with confirmation, share by link.
import { useEffect, useState } from "preact/hooks";
import { confirmDelete, toDelete, toShare } from "../../state/conversation_actions.ts";
import type { ConversationEntry } from "../../state/conversations.ts";
import { createShare, deleteShare, type Share } from "../../state/shares.ts";
import { t } from "../../texts.ts";
import { CopyButton } from "../copy_button.tsx";
import { Dialog } from "./dialog.tsx";

export function ConversationDialogs() {
  return (
    <>
      {toDelete.value !== null && <DeleteDialog entry={toDelete.value} />}
      {toShare.value !== null && <ShareDialog entry={toShare.value} />}
    </>
  );
}

function DeleteDialog({ entry }: { entry: ConversationEntry }) {
  const close = () => (toDelete.value = null);
  return (
    <Dialog label={t.deleteTitle} onClose={close}>
      <p>{t.removeConfirm(entry.title)}</p>
      <div class="buttons end">
        <button type="button" onClick={close}>
          {t.cancel}
        </button>
        <button type="button" class="danger-fill" onClick={() => void confirmDelete()}>
          {t.remove}
        </button>
      </div>
    </Dialog>
  );
}

function ShareDialog({ entry }: { entry: ConversationEntry }) {
  const [share, setShare] = useState<Share | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const attempt = (work: Promise<void>) => {
    setProblem(null);
    work.catch((error: unknown) => setProblem(error instanceof Error ? error.message : String(error)));
  };
  useEffect(() => setShare(null), [entry]);
  const url = share === null ? "" : new URL(share.path, location.origin).href;
  return (
    <Dialog label={t.shareTitle} onClose={() => (toShare.value = null)}>
      <p>{t.shareHint}</p>
      {problem !== null && (
        <p class="field-error" role="alert">
          {problem}
        </p>
      )}
      {share === null ? (
        <div class="buttons end">
          <button type="button" class="primary" onClick={() => attempt(createShare(entry.context_id).then(setShare))}>
            {t.shareCreate}
          </button>
        </div>
      ) : (
        <>
          <div class="share-link">
            <input readOnly aria-label={t.shareLink} value={url} onFocus={event => event.currentTarget.select()} />
            <CopyButton text={url} label={t.copyLink} />
          </div>
          <div class="buttons end">
            <button
              type="button"
              class="danger"
              onClick={() => attempt(deleteShare(share.token).then(() => setShare(null)))}
            >
              {t.shareStop}
            </button>
          </div>
        </>
      )}
    </Dialog>
  );
}
