// The frame of a view: its heading, what it is for, its actions, and what went wrong.
import type { ComponentChildren } from "preact";
import { ProblemNote } from "./states.tsx";

interface ViewProps {
  title: string;
  hint?: string;
  count?: number | null;
  actions?: ComponentChildren;
  problem?: string | null;
  isWide?: boolean;
  onRetry?: () => void;
  children: ComponentChildren;
}

export function View({ title, hint, count = null, actions, problem = null, isWide = false, onRetry, children }: ViewProps) {
  return (
    <div class={`view ${isWide ? "view-wide" : ""}`}>
      <header class="view-head">
        <div class="view-words">
          <h1>
            {title}
            {count !== null && <span class="view-count">{count.toLocaleString()}</span>}
          </h1>
          {hint && <p class="hint">{hint}</p>}
        </div>
        {actions && <div class="view-actions">{actions}</div>}
      </header>
      {problem !== null && <ProblemNote text={problem} onRetry={onRetry} />}
      {children}
    </div>
  );
}
