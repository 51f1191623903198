// Icons as inline SVG: shapes that look the same everywhere, next to a text that says the same.
const PATHS = {
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  skip: "M4 8h8",
  plus: "M8 3.5v9M3.5 8h9",
  send: "M8 13V3M3.5 7.5L8 3l4.5 4.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  up: "M5.2 13.2V7.4L8 2.6c.9.1 1.4.7 1.3 1.6L9 6.5h3.1c.8 0 1.4.7 1.2 1.5l-.9 4c-.1.7-.7 1.2-1.4 1.2zM2.8 7.4h2.4v5.8H2.8z",
  down: "M10.8 2.8v5.8L8 13.4c-.9-.1-1.4-.7-1.3-1.6L7 9.5H3.9c-.8 0-1.4-.7-1.2-1.5l.9-4c.1-.7.7-1.2 1.4-1.2zM13.2 8.6h-2.4V2.8h2.4z",
  chevron: "M6 4l4 4-4 4",
  search: "M11 11l3 3M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10z",
  sidebar: "M2.5 3.5h11v9h-11zM6.5 3.5v9",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  copy: "M5.5 5.5V3.2c0-.4.3-.7.7-.7h6.6c.4 0 .7.3.7.7v6.6c0 .4-.3.7-.7.7h-2.3M3.2 5.5h6.6c.4 0 .7.3.7.7v6.6c0 .4-.3.7-.7.7H3.2c-.4 0-.7-.3-.7-.7V6.2c0-.4.3-.7.7-.7z",
  edit: "M3 13l.6-2.8L10.8 3l2.2 2.2-7.2 7.2zM9.4 4.4l2.2 2.2",
  retry: "M13 8a5 5 0 1 1-1.5-3.6M13 2.5v2.6h-2.6",
  share: "M8 10V2.5M5 5.2l3-2.7 3 2.7M3.5 8.5v4.2c0 .4.3.8.8.8h7.4c.5 0 .8-.4.8-.8V8.5",
  download: "M8 2.5V10M5 7.3L8 10l3-2.7M3 13.5h10",
  trash: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5",
  inbox: "M2.5 9l1.7-5.5h7.6L13.5 9v3.5h-11zM2.5 9h3l1 1.8h3l1-1.8h3",
  agents: "M8 2.5v2M4.5 4.5h7c.8 0 1.5.7 1.5 1.5v5c0 .8-.7 1.5-1.5 1.5h-7c-.8 0-1.5-.7-1.5-1.5V6c0-.8.7-1.5 1.5-1.5zM6 8v1M10 8v1",
  workflows: "M2.5 3h4v3.5h-4zM9.5 9.5h4V13h-4zM4.5 6.5v3c0 1 .8 1.8 1.8 1.8h3.2",
  skills: "M8 2l1.6 4.4L14 8l-4.4 1.6L8 14l-1.6-4.4L2 8l4.4-1.6z",
  knowledge: "M3 3.2c2-.6 3.7-.4 5 .6 1.3-1 3-1.2 5-.6v9.3c-2-.6-3.7-.4-5 .6-1.3-1-3-1.2-5-.6zM8 3.8v9.3",
  runs: "M2.5 8H5l1.7-4.5 2.6 9L11 8h2.5",
  settings: "M2.5 5h6M11.5 5h2M2.5 11h2M7.5 11h6M10 3.5v3M6 9.5v3",
  chat: "M3 3.5h10c.6 0 1 .4 1 1v6c0 .6-.4 1-1 1H7.5L4.5 14v-2.5H3c-.6 0-1-.4-1-1v-6c0-.6.4-1 1-1z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  system: "M2.5 3.5h11v7.5h-11zM6 13.5h4M8 11v2.5",
  bell: "M4 11V7.5a4 4 0 0 1 8 0V11l1 1.2H3zM6.8 14h2.4",
  help: "M6 6a2 2 0 1 1 2.8 1.8c-.5.3-.8.7-.8 1.4M8 11.8h.01M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  clock: "M8 4.8V8l2.2 1.4M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  person: "M8 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3.5 13.5c.4-2.4 2.2-3.7 4.5-3.7s4.1 1.3 4.5 3.7",
  alert: "M8 5.5v3.2M8 11h.01M7 2.9L2 12c-.4.7.1 1.5.9 1.5h10.2c.8 0 1.3-.8.9-1.5L9 2.9c-.4-.8-1.6-.8-2 0z",
  arrowDown: "M8 3v10M3.5 8.5L8 13l4.5-4.5",
  link: "M6.8 9.2a2.5 2.5 0 0 0 3.6 0l2.2-2.2a2.5 2.5 0 0 0-3.6-3.6l-.8.8M9.2 6.8a2.5 2.5 0 0 0-3.6 0L3.4 9a2.5 2.5 0 0 0 3.6 3.6l.8-.8",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

export const CheckIcon = () => <Icon name="check" />;
export const CrossIcon = () => <Icon name="cross" />;
export const SkipIcon = () => <Icon name="skip" />;
export const PlusIcon = () => <Icon name="plus" />;
export const SendIcon = () => <Icon name="send" />;
export const MenuIcon = () => <Icon name="menu" />;
export const UpIcon = () => <Icon name="up" />;
export const DownIcon = () => <Icon name="down" />;
export const DotIcon = () => (
  <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <circle cx="8" cy="8" r="4" />
  </svg>
);
export const StopIcon = () => (
  <svg class="icon solid" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <rect x="4.5" y="4.5" width="7" height="7" rx="1.5" />
  </svg>
);
export const SpinnerIcon = () => (
  <svg class="icon spinner" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <circle class="spinner-track" cx="8" cy="8" r="5.5" />
    <path d="M8 2.5A5.5 5.5 0 0 1 13.5 8" />
  </svg>
);
