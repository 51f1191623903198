// A menu behind a button: arrow keys move, Escape closes, a click elsewhere too.
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "../icons.tsx";
import { IconButton } from "../icon_button.tsx";

export interface MenuItem {
  label: string;
  icon: IconName;
  isDangerous?: boolean;
  onChoose(): void;
}

export function Menu({ label, items, class: className }: { label: string; items: MenuItem[]; class?: string }) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const close = () => {
    setOpen(false);
    root.current?.querySelector<HTMLElement>(".icon-button")?.focus();
  };
  useEffect(() => {
    if (!isOpen) return undefined;
    root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const onDown = (event: PointerEvent) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", onDown);
    return () => removeEventListener("pointerdown", onDown);
  }, [isOpen]);
  return (
    <div class={`menu ${className ?? ""}`} ref={root} onKeyDown={event => isOpen && onMenuKey(event, root.current!, close)}>
      <IconButton label={label} expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name="more" />
      </IconButton>
      {isOpen && (
        <div class="menu-items" role="menu" aria-label={label}>
          {items.map(item => (
            <button
              type="button"
              role="menuitem"
              key={item.label}
              class={item.isDangerous ? "danger" : ""}
              onClick={() => {
                setOpen(false);
                item.onChoose();
              }}
            >
              <Icon name={item.icon} /> {item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

function onMenuKey(event: KeyboardEvent, root: HTMLElement, close: () => void): void {
  if (event.key === "Escape" || event.key === "Tab") {
    if (event.key === "Escape") event.preventDefault();
    return close();
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const items = Array.from(root.querySelectorAll<HTMLElement>("[role=menuitem]"));
  const index = items.indexOf(document.activeElement as HTMLElement);
  items[(index + step + items.length) % items.length]?.focus();
}
