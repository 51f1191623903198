// What a view shows while it has nothing else to show: loading, nothing there, a problem.
import type { ComponentChildren } from "preact";
import { t } from "../../texts.ts";
import { WarningIcon } from "./view_icons.tsx";

/** Grey rows in the place of what is loaded, so that nothing jumps when it is there. */
export function LoadingRows({ count = 4 }: { count?: number }) {
  return (
    <div class="skeleton" aria-busy="true">
      <span class="visually-hidden">{t.views.loading}</span>
      {Array.from({ length: count }, (_, index) => (
        <div class="skeleton-row" key={index} aria-hidden="true">
          <span class="skeleton-line short" />
          <span class="skeleton-line" />
        </div>
      ))}
    </div>
  );
}

interface EmptyProps {
  icon?: ComponentChildren;
  title: string;
  children?: ComponentChildren;
}

export function Empty({ icon, title, children }: EmptyProps) {
  return (
    <div class="empty">
      {icon && <div class="empty-icon">{icon}</div>}
      <p class="empty-title">{title}</p>
      {children && <div class="empty-words">{children}</div>}
    </div>
  );
}

export function ProblemNote({ text, onRetry }: { text: string; onRetry?: (() => void) | undefined }) {
  return (
    <div class="note note-bad" role="alert">
      <WarningIcon />
      <p>{text}</p>
      {onRetry && (
        <button type="button" class="small" onClick={onRetry}>
          {t.retry}
        </button>
      )}
    </div>
  );
}
