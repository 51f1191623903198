// A modal dialog: the browser keeps the focus inside, and Escape closes it.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { t } from "../../texts.ts";
import { CrossIcon } from "../icons.tsx";

interface DialogProps {
  title: string;
  isWide?: boolean;
  onClose(): void;
  children: ComponentChildren;
}

export function Dialog({ title, isWide = false, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement) opener.focus();
    };
  }, []);
  const closeOutside = (event: MouseEvent) => {
    if (event.target === dialog.current) onClose();
  };
  return (
    <dialog
      ref={dialog}
      class={`dialog ${isWide ? "dialog-wide" : ""}`}
      aria-labelledby={id}
      onCancel={event => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={closeOutside}
    >
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" class="quiet" aria-label={t.views.close} onClick={onClose}>
          <CrossIcon />
        </button>
      </header>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  text: string;
  action: string;
  onConfirm(): Promise<void>;
  onClose(): void;
}

/** Asks before something is removed. */
export function ConfirmDialog({ title, text, action, onConfirm, onClose }: ConfirmProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      <div class="buttons">
        <button type="button" class="danger" onClick={() => void onConfirm()}>
          {action}
        </button>
        <button type="button" autofocus onClick={onClose}>
          {t.cancel}
        </button>
      </div>
    </Dialog>
  );
}
