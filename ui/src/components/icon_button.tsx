// A button that is only an icon; its name is its label and its tooltip.
import type { ComponentChildren } from "preact";

interface IconButtonProps {
  label: string;
  class?: string;
  pressed?: boolean;
  expanded?: boolean;
  disabled?: boolean;
  onClick(event: MouseEvent): void;
  children: ComponentChildren;
}

export function IconButton(props: IconButtonProps) {
  return (
    <button
      type="button"
      class={`icon-button ${props.class ?? ""}`}
      aria-label={props.label}
      title={props.label}
      aria-pressed={props.pressed}
      aria-expanded={props.expanded}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}
