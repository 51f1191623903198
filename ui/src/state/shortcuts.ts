// Keys that work everywhere in the page.
import { isHelpOpen, isPaletteOpen, toggleSidebar } from "./shell.ts";
import { navigate, pathOf } from "./route.ts";

const isApple = /Mac|iPhone|iPad/.test(navigator.platform);
export const MODIFIER = isApple ? "⌘" : "Ctrl";

export function watchShortcuts(): void {
  addEventListener("keydown", onKeyDown);
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.isComposing) return;
  const action = findAction(event);
  if (action === null) return;
  event.preventDefault();
  action();
}

function findAction(event: KeyboardEvent): (() => void) | null {
  const key = event.key.toLowerCase();
  if (isApple ? event.metaKey : event.ctrlKey) {
    if (key === "k" && !event.shiftKey) return () => (isPaletteOpen.value = !isPaletteOpen.value);
    if (key === "o" && event.shiftKey) return () => navigate(pathOf("chat"));
    if (key === "b" && !event.shiftKey) return toggleSidebar;
    return null;
  }
  if (event.altKey || isWriting(event.target)) return null;
  if (key === "?") return () => (isHelpOpen.value = true);
  if (key === "/") return () => document.getElementById("message")?.focus();
  return null;
}

function isWriting(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.matches("input, textarea, select, [contenteditable]") || target.closest("dialog") !== null;
}
