// Asks before something is removed.
import { t } from "../../texts.ts";
import { Dialog } from "../shell/dialog.tsx";

interface ConfirmProps {
  title: string;
  text: string;
  action: string;
  onConfirm(): Promise<void>;
  onClose(): void;
}

export function ConfirmDialog({ title, text, action, onConfirm, onClose }: ConfirmProps) {
  return (
    <Dialog label={title} onClose={onClose}>
      <p>{text}</p>
      <div class="buttons end">
        <button type="button" onClick={onClose}>
          {t.cancel}
        </button>
        <button type="button" class="danger-fill" onClick={() => void onConfirm()}>
          {action}
        </button>
      </div>
    </Dialog>
  );
}
