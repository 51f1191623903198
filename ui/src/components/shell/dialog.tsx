// A modal dialog: the browser keeps the focus inside, Escape closes it, and the focus goes back.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { t } from "../../texts.ts";
import { IconButton } from "../icon_button.tsx";
import { Icon } from "../icons.tsx";

interface DialogProps {
  label: string;
  class?: string;
  hasHead?: boolean;
  onClose(): void;
  children: ComponentChildren;
}

export function Dialog({ label, class: className, hasHead = true, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current!;
    const before = document.activeElement;
    element.showModal();
    return () => {
      element.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`modal ${className ?? ""}`}
      aria-label={label}
      onCancel={event => {
        event.preventDefault();
        onClose();
      }}
      onClick={event => event.target === dialog.current && onClose()}
    >
      <div class="modal-content">
        {hasHead && (
          <header class="modal-head">
            <h2>{label}</h2>
            <IconButton label={t.close} onClick={onClose}>
              <Icon name="cross" />
            </IconButton>
          </header>
        )}
        {children}
      </div>
    </dialog>
  );
}
