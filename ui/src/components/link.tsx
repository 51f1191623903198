// A link inside the page: a plain one with modifier keys, without a reload otherwise.
import type { ComponentChildren } from "preact";
import { navigate } from "../state/route.ts";

interface LinkProps {
  to: string;
  class?: string;
  current?: boolean;
  children: ComponentChildren;
}

export function Link({ to, class: className, current = false, children }: LinkProps) {
  const follow = (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    navigate(to);
  };
  return (
    <a href={to} class={className ?? ""} aria-current={current ? "page" : undefined} onClick={follow}>
      {children}
    </a>
  );
}
