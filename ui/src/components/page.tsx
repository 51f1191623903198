// The frame of a view: a heading, what it is for, and what went wrong.
import type { ComponentChildren } from "preact";

interface PageProps {
  title: string;
  hint?: string;
  problem?: string | null;
  children: ComponentChildren;
}

export function Page({ title, hint, problem, children }: PageProps) {
  return (
    <div class="view">
      <h1>{title}</h1>
      {hint && <p class="hint">{hint}</p>}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {children}
    </div>
  );
}
