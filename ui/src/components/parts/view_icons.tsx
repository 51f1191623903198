// Icons of the views, in the form of components/icons.tsx.
import type { ComponentChildren } from "preact";

function Icon({ children }: { children: ComponentChildren }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      {children}
    </svg>
  );
}

export const WarningIcon = () => (
  <Icon>
    <path d="M8 2.5l6 11H2zM8 6.5v3M8 11.6v.1" />
  </Icon>
);
export const SearchIcon = () => (
  <Icon>
    <circle cx="7" cy="7" r="4.2" />
    <path d="M10.2 10.2L13.5 13.5" />
  </Icon>
);
export const RefreshIcon = () => (
  <Icon>
    <path d="M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3" />
  </Icon>
);
export const ChevronIcon = () => (
  <Icon>
    <path d="M6 3.5L10.5 8 6 12.5" />
  </Icon>
);
export const BackIcon = () => (
  <Icon>
    <path d="M10 3.5L5.5 8l4.5 4.5" />
  </Icon>
);
export const InboxIcon = () => (
  <Icon>
    <path d="M2 9.5h3.5l1 2h3l1-2H14M2 9.5v3.5h12V9.5L12 3H4z" />
  </Icon>
);
export const AgentIcon = () => (
  <Icon>
    <rect x="3" y="5" width="10" height="8" rx="2" />
    <path d="M8 5V2.5M6 8.5v1M10 8.5v1" />
  </Icon>
);
export const WorkflowIcon = () => (
  <Icon>
    <circle cx="3.8" cy="8" r="1.8" />
    <circle cx="12.2" cy="3.8" r="1.8" />
    <circle cx="12.2" cy="12.2" r="1.8" />
    <path d="M5.6 8H8V3.8h2.4M8 8v4.2h2.4" />
  </Icon>
);
export const BookIcon = () => (
  <Icon>
    <path d="M8 4C6.5 2.8 4.3 2.6 2 3v9.5c2.3-.4 4.5-.2 6 1 1.5-1.2 3.7-1.4 6-1V3c-2.3-.4-4.5-.2-6 1zM8 4v9.5" />
  </Icon>
);
export const DatabaseIcon = () => (
  <Icon>
    <ellipse cx="8" cy="3.8" rx="5" ry="1.8" />
    <path d="M3 3.8v8.4c0 1 2.2 1.8 5 1.8s5-.8 5-1.8V3.8M3 8c0 1 2.2 1.8 5 1.8S13 9 13 8" />
  </Icon>
);
export const UploadIcon = () => (
  <Icon>
    <path d="M8 10.5V3M4.8 6L8 2.8 11.2 6M2.5 10.5V13h11v-2.5" />
  </Icon>
);
export const FolderIcon = () => (
  <Icon>
    <path d="M2 4h4l1.5 1.7H14V13H2z" />
  </Icon>
);
export const GlobeIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="5.8" />
    <path d="M2.2 8h11.6M8 2.2c2 1.6 2.5 3.7 2.5 5.8S10 12.2 8 13.8C6 12.2 5.5 10.1 5.5 8S6 3.8 8 2.2z" />
  </Icon>
);
export const BranchIcon = () => (
  <Icon>
    <circle cx="4.5" cy="3.5" r="1.5" />
    <circle cx="4.5" cy="12.5" r="1.5" />
    <circle cx="11.5" cy="5" r="1.5" />
    <path d="M4.5 5v6M11.5 6.5c0 2.5-3.5 2.5-7 3.5" />
  </Icon>
);
export const ListIcon = () => (
  <Icon>
    <path d="M6 4h7.5M6 8h7.5M6 12h7.5M2.8 4h.1M2.8 8h.1M2.8 12h.1" />
  </Icon>
);
export const KeyIcon = () => (
  <Icon>
    <circle cx="5" cy="11" r="2.7" />
    <path d="M7 9l6-6M10.5 5.5l2 2" />
  </Icon>
);
export const FileIcon = () => (
  <Icon>
    <path d="M4 2h5l3 3v9H4zM9 2v3h3" />
  </Icon>
);
export const TrashIcon = () => (
  <Icon>
    <path d="M2.5 4.5h11M6 4.5V2.8h4v1.7M4 4.5l.6 9h6.8l.6-9" />
  </Icon>
);
export const ShieldIcon = () => (
  <Icon>
    <path d="M8 2l5 1.8v3.7c0 3-2 5.2-5 6.5-3-1.3-5-3.5-5-6.5V3.8z" />
  </Icon>
);
export const ClockIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="5.8" />
    <path d="M8 4.8V8l2.2 1.5" />
  </Icon>
);
export const LinkIcon = () => (
  <Icon>
    <path d="M9 3h4v4M13 3L7.5 8.5M11 9.5V13H3V5h3.5" />
  </Icon>
);
