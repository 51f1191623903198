// Icons as inline SVG: shapes that look the same everywhere, next to a text that says the same.
import type { ComponentChildren } from "preact";

function Icon({ children }: { children: ComponentChildren }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      {children}
    </svg>
  );
}

export const CheckIcon = () => (
  <Icon>
    <path d="M3.5 8.5l3 3 6-7" />
  </Icon>
);
export const CrossIcon = () => (
  <Icon>
    <path d="M4 4l8 8M12 4l-8 8" />
  </Icon>
);
export const DotIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="4.5" />
  </Icon>
);
export const SkipIcon = () => (
  <Icon>
    <path d="M4 8h8" />
  </Icon>
);
export const SpinnerIcon = () => (
  <svg class="icon spinner" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <path d="M8 2a6 6 0 1 1-6 6" />
  </svg>
);
export const PlusIcon = () => (
  <Icon>
    <path d="M8 3v10M3 8h10" />
  </Icon>
);
export const SendIcon = () => (
  <Icon>
    <path d="M8 13V3M3.5 7.5L8 3l4.5 4.5" />
  </Icon>
);
export const StopIcon = () => (
  <Icon>
    <rect x="4" y="4" width="8" height="8" rx="1.5" />
  </Icon>
);
export const MenuIcon = () => (
  <Icon>
    <path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" />
  </Icon>
);
export const UpIcon = () => (
  <Icon>
    <path d="M5 14V7l3-5 1 .7V6h4l-1 8z" />
  </Icon>
);
export const DownIcon = () => (
  <Icon>
    <path d="M11 2v7l-3 5-1-.7V10H3l1-8z" />
  </Icon>
);
